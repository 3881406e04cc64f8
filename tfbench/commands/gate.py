"""Decide by the exit code whether a run passes, and print why not.

0: enough cases were compared and none is slower. 1: a case regressed. 2: the command line is wrong. 3: a case is
inconclusive. 4: a case is incomparable or missing, or no case was compared with a baseline. 5: a case broke, the run
was interrupted, the report cannot be read, or an accepted regression has expired or is no longer needed. A regression
takes precedence over all other codes, and then the largest code counts.

On GitHub's runners, it also annotates the lines of the benchmarks and writes the step summary.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from pathlib import Path

from rich.text import Text

from tfbench.errors import ReportError, UsageError
from tfbench.fs import write_whole
from tfbench.model import TIME, Outcome, Report
from tfbench.policy import Policy
from tfbench.report.artifact import as_json, load_accepted, load_report
from tfbench.report.comment import annotation, headline_annotation, render
from tfbench.report.screen import COLOURS, Screen
from tfbench.ruling import GateDecision, Result, decided
from tfbench.suite.fingerprint import line_of
from tfbench.untrusted import brief, is_case


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("report", metavar="REPORT", type=Path, help="a report of --report-json or tfbench merge")
    option("--accepted", type=Path, metavar="FILE", help="accepted regressions, see docs/ci.md")
    option("--root", type=Path, default=Path(), metavar="PATH", help="root of the benchmarks, for annotations")
    option("--write-accepted", type=Path, metavar="PATH", help="write the accepted regressions, for the comment")
    text = "least share of the cases whose times must have been compared (default: %(default)s)"
    option("--min-compared", type=float, default=Policy().min_compared, metavar="SHARE", help=text)
    option("--write-regressed", type=Path, metavar="PATH", help="write the regressed cases, one per line")


def run(arguments: argparse.Namespace) -> int:
    """Decide, print, and return the exit code."""
    if not 0 <= arguments.min_compared <= 1:
        raise UsageError(f"--min-compared {arguments.min_compared:g}: write a share from 0 to 1")
    report = load_report(arguments.report)
    agreed = load_accepted(arguments.accepted) if arguments.accepted else []
    decision = decided(report, agreed, min_compared=arguments.min_compared)
    if arguments.write_accepted:
        write_whole(arguments.write_accepted, as_json(agreed))
    if arguments.write_regressed:
        write_whole(arguments.write_regressed, regressed(report, arguments.report))
    announce(report, decision, arguments.root)
    return decision.ruling.result.code


def announce(report: Report, decision: GateDecision, root: Path) -> None:
    """Print a decision, and on GitHub's runners annotate the benchmarks below ``root`` and write the step summary."""
    ruling, console = decision.ruling, Screen(soft_wrap=True)
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    for verdict, entry in decision.accepted.verdicts:
        console.print(Text(f"accepted until {entry.until}: {verdict.case.name}: {entry.reason}", "dim"))
    for verdict in ruling.verdicts:
        metric = "" if verdict.metric == TIME else f" ({verdict.metric})"
        outcome = Text(str(verdict.outcome), COLOURS[verdict.outcome])
        console.print(Text.assemble(outcome, f" {verdict.case.name}{metric}: {verdict.reason.message}"))
        if verdict.metric == TIME and verdict.outcome is Outcome.REGRESSED:
            for line in report.why(verdict.case.name):
                console.print(Text(f"  {line}"))
        if github:
            print(annotation(verdict, line_of(root, verdict.case.name)))  # escaped by itself
    for problem in decision.accepted.problems:
        console.print(Text(problem, "red"))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(render(report, decision))
    if github and ruling.result is not Result.PASS:
        print(headline_annotation(ruling))
    for skip in report.skips:
        console.print(Text(f"skipped {skip.case.name}: {skip.reason}", "dim"))
    console.print(Text.assemble((str(ruling.result), ruling.result.style), f": {ruling.because}"))


def regressed(report: Report, name: Path) -> str:
    """Return the regressed cases of a report, a line each, as words for pytest.

    Raises:
        ReportError: A case has no name of a benchmark. pytest reads options in the file as well.
    """
    cases = [verdict.case.name for verdict in report.verdicts if verdict.outcome is Outcome.REGRESSED]
    lines = [f"{_root_from_here(report)}{case}" for case in dict.fromkeys(cases)]
    if strange := next((line for line in lines if not is_case(line)), ""):
        text = f"has a case named {brief(repr(strange))}, which is no name of a benchmark"
        raise ReportError(f"{brief(name)} {text}")
    return "".join(f"{line}\n" for line in lines)


def _root_from_here(report: Report) -> str:
    """Return the prefix by which pytest finds the cases from this folder, if their root is a folder below it."""
    root, here = str(report.sides.get("contender", {}).get("root", "")), Path.cwd()
    with suppress(OSError, ValueError):  # the text may be anything
        place = Path(root).resolve()
        if root and place != here.resolve() and place.is_relative_to(here.resolve()) and place.is_dir():
            return f"{place.relative_to(here.resolve()).as_posix()}/"
    return ""
