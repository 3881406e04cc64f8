"""Merge the reports of shards, and confirm regressions by the report of a second run.

Each shard of the suite must be present once, with all of its cases, and with the same policy, sides and kind of
machine. Otherwise the command fails with exit code 5 and names the fault.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.gate.artifact import files_of
from tfbench.gate.decide import load_report
from tfbench.gate.merge import confirm, merge
from tfbench.report import json_reader, json_writer
from tfbench.report.screen import say


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("reports", metavar="REPORT", type=Path, nargs="+", help="reports of shards, or folders of them")
    option("--confirmed-by", type=Path, metavar="REPORT", help="report of a second run of the regressed cases")
    option("--report-json", type=Path, required=True, metavar="PATH", help="write the merged report")


def run(arguments: argparse.Namespace) -> int:
    """Merge and write; 0 if the reports are complete."""
    texts = (item for path in arguments.reports for item in files_of(path).items())
    found = [(name, json_reader.read(text, name)) for name, text in texts]
    whole = found[0][1] if len(found) == 1 and found[0][1].shard is None else merge(found)
    if arguments.confirmed_by:
        whole = confirm(whole, load_report(arguments.confirmed_by))
    write_whole(arguments.report_json, json_writer.render(whole))
    cases = {verdict.case.name for verdict in whole.verdicts}
    say(f"{len(found)} reports, {len(cases)} cases: {arguments.report_json}")
    return 0
