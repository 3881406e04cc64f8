"""Export a report to other tools: JUnit XML, Prometheus, TensorBoard or MLflow.

Several options write several formats. The merged report of shards is exported like any other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.gate.decide import load_report
from tfbench.report.exports import EXPORTERS
from tfbench.report.screen import say


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="REPORT", type=Path, help="written by --report-json or tfbench merge")
    for one in EXPORTERS:
        needs = f" (needs tfbench[{one.extra}])" if one.extra else ""
        parser.add_argument(f"--{one.name}", metavar=one.metavar, help=f"{one.help}{needs}")


def run(arguments: argparse.Namespace) -> int:
    """Export to every given target; 0 if all were written."""
    targets = [(one, target) for one in EXPORTERS if (target := getattr(arguments, one.name)) is not None]
    if not targets:
        raise UsageError(f"name at least one format: {', '.join(f'--{one.name} {one.metavar}' for one in EXPORTERS)}")
    report = load_report(arguments.report)
    exports = [(one.load(), target) for one, target in targets]  # a missing library is named before anything is written
    for export, target in exports:
        say(export(report, target))
    return 0
