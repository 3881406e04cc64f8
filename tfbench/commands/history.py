"""Show how the cases changed over many runs, accept a change, or rebuild the index.

A run with `pytest --benchmark --against SPEC --history DIR` adds itself. Without CASE, one line per case that changed.
Exit code 1 if a case is slower than before, or drifted since the last release, and the change is not accepted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.policy import preset
from tfbench.report.html import history_page
from tfbench.report.html.page import check_library
from tfbench.report.screen import Screen, say
from tfbench.report.trends import SHOWN, TrendLine, Trends, render_case, render_overview
from tfbench.stats.change_points import Trend
from tfbench.storage.baselines import HISTORY


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("words", metavar="CASE", nargs="*", help="a case, its end or a part of it; accept CASE; or rebuild")
    option("--folder", default=HISTORY, metavar="DIR|URL", help=f"folder or database (default: {HISTORY})")
    option("--html", type=Path, metavar="PATH", help="write the history as a page")
    option("--reason", default="", metavar="TEXT", help="with accept: why the change is intended")


def run(arguments: argparse.Namespace) -> int:
    """Show, accept or rebuild; 1 if a case is slower, 5 if a file cannot be read."""
    action, *rest = arguments.words or [""]
    if action == "accept" or arguments.reason:
        return _accept(arguments, rest if action == "accept" else [])
    if len(arguments.words) > 1 or (action == "rebuild" and rest):
        raise UsageError(f"give one case, not {len(arguments.words)}; quote a name with blanks")
    if arguments.html:
        check_library()
    with closing(Trends(arguments.folder, preset("standard"), rebuild=action == "rebuild")) as trends:
        for problem in trends.problems:
            say(problem, error=True)
        if action == "rebuild":
            say(f"{trends.index.runs()} runs and {len(trends.all)} series indexed in {trends.index.history.place}")
        else:
            _show(trends, action)
        if arguments.html:
            cases = (_lines(trends, trends.of_case(one.series.case)) for one in trends.followed)
            write_whole(arguments.html, history_page.render(cases, trends.index.runs(), trends.problems))
            say(f"history written: {arguments.html}")
        return trends.exit_code


def _show(trends: Trends, case: str) -> None:
    """Print one case, or a line for each of several."""
    screen, found = Screen(), trends.named(case)
    if len(found) == 1 and case:
        screen.print(render_case(_lines(trends, trends.of_case(found[0].series.case)), screen.width))
    else:
        lines = [TrendLine(one, trends.points(one) if one.state in SHOWN else ()) for one in found]
        screen.print(render_overview(lines, trends.index.runs(), screen.width))


def _lines(trends: Trends, chosen: Iterable[Trend]) -> list[TrendLine]:
    return [TrendLine(trend, trends.points(trend)) for trend in chosen]


def _accept(arguments: argparse.Namespace, cases: list[str]) -> int:
    """Accept the newest change of a case."""
    if len(cases) != 1:
        raise UsageError("name one case: tfbench history accept CASE --reason TEXT")
    reason = arguments.reason.strip()
    if not reason and sys.stdin.isatty():
        reason = input("why is this change intended? ").strip()
    if not reason:
        raise UsageError("a change is not accepted without a reason: give --reason TEXT")
    with closing(Trends(arguments.folder, preset("standard"))) as trends:
        accepted = trends.accept(cases[0], reason)
    say(f"{accepted.case}: its history restarts with the run of {accepted.session[:16]}: {reason}")
    return 0
