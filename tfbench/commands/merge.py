"""Merge the reports of shards or of a fleet's jobs, and confirm regressions by the report of a second run.

Each shard of the suite must be present once, with all of its cases, and with the same policy, sides and kind of
machine. Otherwise the command fails with exit code 5 and names the fault.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.fleet.controller import merge as merge_fleet
from tfbench.fleet.folder import PLAN, FleetFolder
from tfbench.fs import write_whole
from tfbench.report import json_format
from tfbench.report.artifact import FILES, files_of, load_report
from tfbench.report.merge import confirm, merge
from tfbench.report.screen import say


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option(
        "reports",
        metavar="REPORT",
        type=Path,
        nargs="+",
        help="reports of shards, folders of them, or the folder of a fleet",
    )
    option("--confirmed-by", type=Path, metavar="REPORT", help="report of a second run of the regressed cases")
    option("--report-json", type=Path, required=True, metavar="PATH", help="write the merged report")


def run(arguments: argparse.Namespace) -> int:
    """Merge and write; 0 if the reports are complete."""
    if len(arguments.reports) == 1 and (arguments.reports[0] / PLAN).is_file():
        fleet = FleetFolder(arguments.reports[0])
        whole, count = merge_fleet(fleet, {}), fleet.plan().jobs
    else:
        texts = (item for path in arguments.reports for item in files_of(path).items())
        found = [(name, json_format.read(text, name)) for name, text in texts]
        whole = found[0][1] if len(found) == 1 and found[0][1].shard is None else merge(found)
        count = len(found)
    if arguments.confirmed_by:
        whole = confirm(whole, load_report(arguments.confirmed_by))
    write_whole(arguments.report_json, json_format.lines(whole) if count > FILES else json_format.render(whole))
    cases = {verdict.case.name for verdict in whole.verdicts}
    say(f"{count} reports, {len(cases)} cases: {arguments.report_json}")
    return 0
