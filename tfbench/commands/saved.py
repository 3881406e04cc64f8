"""Commands about saved results: reports for people, and the history."""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable
from pathlib import Path

from tfbench.commands import asked_reason
from tfbench.errors import UsageError
from tfbench.fs import project_root, write_whole
from tfbench.model import Report
from tfbench.report import markdown, report_page, terminal
from tfbench.report.page import check_library
from tfbench.report.saved import read_inputs
from tfbench.report.screen import Screen, say
from tfbench.report.trends import Trends, render_case, render_history, render_overview
from tfbench.session.options import read_fraction
from tfbench.storage.baselines import HISTORY, Layout
from tfbench.untrusted import some


def add_report(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="files")
    option("files", metavar="FILE", type=_path, nargs="+", help="a report, another result file, or a baseline's name")
    option("--html", type=Path, metavar="PATH", help="write a page: one file with charts, for a browser")
    option("--markdown", type=Path, metavar="PATH", help="write Markdown, for a pull request")
    option("--tensorboard", metavar="DIR", help="write TensorBoard scalars and hyperparameters, one run per case")
    option("--fail-on-regression", metavar="F", help="of two files, end with 1 if a median is larger by more than F, such as 10%%")
    # fmt: on


def _path(text: str) -> Path:
    """Return the path of a file, or of the saved baseline with this name if there is no such file."""
    path, saved = Path(text), Layout.of(project_root()).baselines / f"{text}.json"
    return saved if not path.exists() and path.name == text and saved.exists() else path


def run_report(arguments: argparse.Namespace) -> int:
    """Print the summary of saved files, and write a page or Markdown of them.

    A FILE is a report of --report-json, or each of the shards of one run; a saved baseline; a file of plain
    pytest-benchmark or of asv. The times of several files are put side by side. Their runs did not race each other, so
    --fail-on-regression is for limits well above the scatter between runs.
    """
    limit = read_fraction(given) if (given := arguments.fail_on_regression) else 0.0
    if given and not 0 < limit < math.inf:
        raise UsageError(f"--fail-on-regression {given!r}: write the growth that fails, such as 10% or 0.1")
    if arguments.html:
        check_library()
    export = _tensorboard() if arguments.tensorboard else None
    report, versions, notes = read_inputs(arguments.files)
    if limit and not versions:
        raise UsageError("--fail-on-regression compares the times of two files; give both")
    screen = Screen()
    if versions:
        screen.print(terminal.side_by_side(versions))
    else:
        terminal.show(screen, report)
    for note in notes:
        screen.print(note, soft_wrap=True)
    if arguments.html:
        write_whole(arguments.html, report_page.render(report, versions, notes))
    if arguments.markdown:
        text = markdown.side_by_side(versions) if versions else markdown.render(report)
        write_whole(arguments.markdown, text)
    for path in filter(None, (arguments.html, arguments.markdown)):
        say(f"report written: {path}")
    if export:
        say(export(report, arguments.tensorboard))
    slower = versions.slower(limit) if limit and versions else []
    if slower:
        say(f"slower by more than {given}: {some(slower, 5)}", error=True)
    return int(bool(slower))


def _tensorboard() -> Callable[[Report, str], str]:
    """Import the writer of TensorBoard's files; raises `UsageError` if TensorBoard is not installed."""
    try:
        export: Callable[[Report, str], str] = importlib.import_module("tfbench.report.tensorboard").export
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorboard":
            raise
        raise UsageError("--tensorboard needs tensorboard: pip install tensorboard") from None
    return export


def add_history(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    option("words", metavar="CASE", nargs="*", help="a case, its end or a part of it; or accept CASE")
    option("--folder", default=str(project_root() / HISTORY), type=Path, metavar="DIR", help=f"folder (default: the project's {HISTORY})")
    option("--html", type=Path, metavar="PATH", help="write the history as a page")
    option("--reason", default="", metavar="TEXT", help="with accept: why the change is intended")
    # fmt: on


def run_history(arguments: argparse.Namespace) -> int:
    """Show how the cases changed over many runs, or accept a change.

    A run with `pytest --benchmark --against SPEC --history DIR` adds itself. Without CASE, one line per case that changed.
    Exit code 1 if a shown case is slower than before, or drifted since the last release, and the change is not accepted.
    """
    action, *rest = arguments.words or [""]
    if action == "accept" or arguments.reason:
        return _accept(arguments, rest if action == "accept" else [])
    if rest:
        raise UsageError(f"give one case, not {len(arguments.words)}; quote a name with blanks")
    if arguments.html:
        check_library()
    trends = Trends(arguments.folder, "" if arguments.html else action)
    for problem in trends.problems:
        say(problem, error=True)
    _show(trends, action)
    if arguments.html:
        cases = (trends.of_case(trend.series.case) for trend in trends.followed)
        write_whole(arguments.html, render_history(cases, trends.runs, trends.problems))
        say(f"history written: {arguments.html}")
    return trends.exit_code(action)


def _show(trends: Trends, case: str) -> None:
    screen, named = Screen(), trends.named(case)
    if len(named) == 1 and case:
        screen.print(render_case(trends.of_case(named[0].series.case)))
    else:
        screen.print(render_overview(named, trends.runs, screen.width))


def _accept(arguments: argparse.Namespace, cases: list[str]) -> int:
    if len(cases) != 1:
        raise UsageError("name one case: tfbench history accept CASE --reason TEXT")
    reason = asked_reason(arguments.reason, "a change is not accepted")
    accepted = Trends(arguments.folder, cases[0]).accept(cases[0], reason)
    say(f"{accepted.case}: its history restarts with the run of {accepted.session[:16]}: {reason}")
    return 0
