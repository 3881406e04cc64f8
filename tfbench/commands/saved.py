"""Commands about saved results: baselines, reports for people, and the history."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.text import Text

from tfbench.errors import BaselineError, UsageError
from tfbench.fs import project_root, write_whole
from tfbench.model import Report
from tfbench.model.words import duration
from tfbench.report import markdown, report_page, terminal
from tfbench.report.page import check_library
from tfbench.report.saved import read_inputs
from tfbench.report.screen import Screen, add_row, break_name, folded, right, say, table
from tfbench.report.trends import Trends, render_case, render_history, render_overview
from tfbench.session.options import read_fraction
from tfbench.session.record import BaselineStore
from tfbench.sides.spec import TENSORFLOWS
from tfbench.storage.baselines import HISTORY, Layout
from tfbench.untrusted import brief, plural, some


def add_report(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="files")
    option("files", metavar="FILE", nargs="+", help="a report, another result file, or a baseline's name")
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
    report, versions, notes = read_inputs([_path(file) for file in arguments.files])
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
        write_whole(arguments.markdown, markdown.side_by_side(versions) if versions else markdown.render(report))
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
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs tensorboard: pip install tensorboard")
    export: Callable[[Report, str], str] = importlib.import_module("tfbench.report.tensorboard").export
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
    screen, named = Screen(), trends.named(action)
    if len(named) == 1 and action:
        screen.print(render_case(trends.of_case(named[0].series.case)))
    else:
        screen.print(render_overview(named, trends.runs, screen.width))
    if arguments.html:
        cases = (trends.of_case(trend.series.case) for trend in trends.followed)
        write_whole(arguments.html, render_history(cases, trends.runs, trends.problems))
        say(f"history written: {arguments.html}")
    return trends.exit_code(action)


def _accept(arguments: argparse.Namespace, cases: list[str]) -> int:
    if len(cases) != 1:
        raise UsageError("name one case: tfbench history accept CASE --reason TEXT")
    reason = asked_reason(arguments.reason, "a change is not accepted")
    accepted = Trends(arguments.folder, cases[0]).accept(cases[0], reason)
    say(f"{accepted.case}: its history restarts with the run of {accepted.session[:16]}: {reason}")
    return 0


_COMMIT, _MINUTES, _REASON, _NUMBERS = 10, len("2026-01-01T00:00"), 8, 52
"""Characters of a commit and of a date, least width of the reasons, and width of the columns of numbers."""


def add_baseline(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    parser.add_argument("--root", type=Path, default=project_root(), metavar="PATH", help="pytest's root directory (default: this folder, or the nearest one above with .tfbench)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="list all baselines with their environments")
    show = actions.add_parser("show", help="show a baseline: its environment, its cases, why it was accepted")
    accept = actions.add_parser("accept", help="replace a baseline by the last run against it")
    remove = actions.add_parser("remove", help="delete a baseline, and its source tree from git")
    for action in (show, accept, remove):
        action.add_argument("name", metavar="NAME")
    accept.add_argument("--reason", default="", metavar="TEXT", help="why the change is intended (default: ask)")
    accept.add_argument("--drop-missing", action="store_true", help="remove cases from the baseline that the run did not measure")
    # fmt: on


def run_baseline(arguments: argparse.Namespace) -> int:
    """List, show, accept and remove saved baselines.

    A run with `pytest --benchmark --baseline NAME` keeps its measurements as a candidate. If its change is intended,
    `accept NAME --reason ...` makes the candidate the baseline. The file keeps the reasons of all acceptances.
    """
    if not arguments.root.is_dir():
        raise UsageError(f"--root {brief(arguments.root)} is no folder; name pytest's root directory")
    store = BaselineStore(arguments.root)
    console = Screen()
    if arguments.action == "list":
        _list_baselines(store, console)
    elif arguments.action == "show":
        _show_baseline(store, arguments.name, console)
    elif arguments.action == "accept":
        store.saved.fetch(arguments.name)  # an unknown baseline needs no reason
        reason = asked_reason(arguments.reason, "a baseline is not replaced")
        accepted = store.accept(arguments.name, reason, arguments.drop_missing)
        console.print(Text(f"{arguments.name}: {plural(len(accepted.samples), 'case')} accepted: {reason}"))
    else:
        console.print(Text(f"removed: {store.remove(arguments.name)}"))
    return 0


def _list_baselines(store: BaselineStore, console: Console) -> None:
    names = store.saved.names()
    if not names:
        console.print(f"no baseline in {store.saved.folder}; save one with pytest --benchmark --save-baseline NAME")
        return
    commit, reason = folded("commit", min_width=_COMMIT), folded("accepted because", min_width=_REASON)
    made = table("baselines", *folded("name"), "saved", "cases", "policy", *commit, "TensorFlow", *reason)
    problems = []
    for name in names:
        try:
            baseline = store.saved.fetch(name)
        except BaselineError as error:
            add_row(made, Text(name, "red"), "unreadable")
            problems.append(Text(str(error), "yellow"))
            continue
        environment, cases = baseline.environment, str(len(baseline.samples))
        code = f"{environment.commit[:_COMMIT] or '-'}{' + changes' if environment.dirty else ''}"
        tensorflow = next(
            (environment.packages[package] for package in TENSORFLOWS if package in environment.packages), "-"
        )
        why = baseline.accepted[-1].reason if baseline.accepted else ""
        saved = baseline.saved[:_MINUTES].replace("T", " ")
        add_row(made, name, saved, cases, baseline.context.policy or "-", code, tensorflow, why)
    console.print(made, *problems, sep="\n")


def _show_baseline(store: BaselineStore, name: str, console: Console) -> None:
    baseline = store.saved.fetch(name)
    environment = baseline.environment
    facts = [
        ("saved", baseline.saved),
        ("policy", baseline.context.policy),
        ("commit", f"{environment.commit}{', with changes' if environment.dirty else ''}"),
        ("Python", environment.python),
        ("packages", ", ".join(f"{package} {version}" for package, version in sorted(environment.packages.items()))),
        ("settings", ", ".join(f"{key}={value}" for key, value in sorted(environment.settings.items()))),
        ("processors", f"{','.join(map(str, environment.cpus))} ({plural(environment.threads, 'thread')})"),
        ("machine", ", ".join(f"{key} {value}" for key, value in environment.machine.items() if value)),
        *(("accepted", f"{acceptance.when}: {acceptance.reason}") for acceptance in baseline.accepted),
    ]
    for label, value in facts:
        console.print(Text.assemble((f"{label:<11}", "dim"), value or "-"))
    made = table("cases", *folded("case"), *right("median", "floor", "launches"))
    for case, sample in sorted(baseline.samples.items()):
        cells = duration(median(sample.seconds)), duration(min(sample.floors)), str(len(sample.runs))
        add_row(made, break_name(case, max(20, console.width - _NUMBERS)), *cells)
    console.print(made)


def asked_reason(given: str, refusal: str) -> str:
    """Return the given reason of a change, or ask for it. Raises `UsageError` without a terminal or an answer."""
    reason = given.strip() or (sys.stdin.isatty() and input("why is this change intended? ").strip())
    if not reason:
        raise UsageError(f"{refusal} without a reason: give --reason TEXT")
    return reason
