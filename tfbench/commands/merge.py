"""Put the reports of shards together, and confirm what regressed by a second run's report.

Every shard of the suite has to be there once, with every one of its cases, measured alike; otherwise it is an error
(exit code 5) that names what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.gate.artifact import files_of
from tfbench.gate.decide import load_report
from tfbench.gate.merge import confirm, merge
from tfbench.report import json_reader, json_writer


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("reports", metavar="REPORT", type=Path, nargs="+", help="reports of shards, or folders of them")
    parser.add_argument("--confirmed-by", type=Path, metavar="REPORT", help="a second run of what regressed")
    parser.add_argument("--report-json", type=Path, required=True, metavar="PATH", help="where to write the whole")


def run(arguments: argparse.Namespace) -> int:
    """Merge and write; 0 if it is whole."""
    found = [
        (name, json_reader.read(text, name)) for path in arguments.reports for name, text in files_of(path).items()
    ]
    whole = found[0][1] if len(found) == 1 and found[0][1].shard is None else merge(found)
    if arguments.confirmed_by:
        whole = confirm(whole, load_report(arguments.confirmed_by))
    write_whole(arguments.report_json, json_writer.render(whole))
    print(
        f"{len(found)} reports, {len({verdict.case.name for verdict in whole.verdicts})} cases: {arguments.report_json}"
    )
    return 0
