"""Say by the exit code whether the run of a report may pass, and why not.

0: every case was compared and none is slower. 1: a case regressed. 3: a case is inconclusive. 4: a case is
incomparable or missing, or nothing was compared with a baseline. 5: a case broke, the run was interrupted, or the
report cannot be read. 2 is a wrong command line. A regression is told whatever else is open; of the
others the gravest counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.analysis.gating import Gate, rule
from tfbench.model import TIME
from tfbench.report import reading
from tfbench.report.style import COLOURS
from tfbench.store.files import read_text

MEANING = {
    Gate.PASS: ("pass", "bold green"),
    Gate.REGRESSED: ("regressed", "bold red"),
    Gate.INCONCLUSIVE: ("inconclusive", "bold yellow"),
    Gate.INCOMPARABLE: ("incomparable", "bold yellow"),
    Gate.ERROR: ("error", "bold red"),
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("report", metavar="REPORT", type=Path, help="what --report-json wrote")


def run(arguments: argparse.Namespace) -> int:
    """Rule on a report; returns the exit code."""
    report = reading.read(read_text(arguments.report), str(arguments.report))
    ruling = rule(report)
    console = Console(highlight=False, soft_wrap=True)
    for verdict in ruling.verdicts:
        metric = "" if verdict.metric == TIME else f" ({verdict.metric})"
        outcome = Text(str(verdict.outcome), COLOURS[verdict.outcome])
        console.print(Text.assemble(outcome, f" {verdict.case.name}{metric}: {verdict.reason.message}"))
    word, style = MEANING[ruling.gate]
    console.print(Text.assemble((word, style), f": {ruling.because}"))
    return int(ruling.gate)
