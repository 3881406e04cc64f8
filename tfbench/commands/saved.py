"""Commands about saved results: reports for people, two files side by side, and the history."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from tfbench import compare
from tfbench.commands import asked_reason
from tfbench.compare import contrast, read_inputs
from tfbench.errors import UsageError
from tfbench.fs import project_root, write_whole
from tfbench.model import Report
from tfbench.policy import preset
from tfbench.report import json_format, markdown, report_page, terminal
from tfbench.report.page import check_library
from tfbench.report.report_page import PageContext
from tfbench.report.screen import Screen, say
from tfbench.report.trends import Trends, render_case, render_history, render_overview
from tfbench.storage.baselines import HISTORY, Layout
from tfbench.untrusted import render_json


def add_report(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="files")
    option("files", metavar="FILE", type=Path, nargs="+", help="a report or another result file")
    option("--html", type=Path, metavar="PATH", help="write a page: one file with charts, for a browser")
    option("--markdown", type=Path, metavar="PATH", help="write Markdown, for a pull request")
    option("--tensorboard", metavar="DIR", help="write TensorBoard scalars and hyperparameters, one run per case")
    option("--text", action="store_true", help="print the summary, beside writing files")
    words = "print the report as JSON, as Markdown, or as text of at most 2,000 tokens for assistants and scripts"
    option("--format", choices=["json", "markdown", "llm"], help=words)
    option("--title", default="", metavar="TEXT", help="title of the page")


def run_report(arguments: argparse.Namespace) -> int:
    """Make a report for people from saved files: a page, Markdown, or the summary of the terminal.

    A FILE is a report of --report-json, or each of the shards of one run; a saved baseline; a file of plain
    pytest-benchmark or of asv. Several files with times are put side by side. Without an option, the command prints the summary.
    """
    if arguments.html:
        check_library()
    export = _tensorboard() if arguments.tensorboard else None
    report, context = read_inputs(arguments.files)
    if arguments.html:
        context = replace(context, title=arguments.title or context.title, shared=True)
        write_whole(arguments.html, report_page.render(report, context))
    if arguments.markdown:
        write_whole(arguments.markdown, _markdown(report, context))
    if export:
        say(export(report, arguments.tensorboard))
    if arguments.format:
        say(_FORMATS[arguments.format](report, context).removesuffix("\n"))
    if arguments.text or not (arguments.html or arguments.markdown or export or arguments.format):
        screen = Screen()
        colour = screen.is_terminal and not screen.no_color
        text = terminal.render(report, width=screen.width, colour=colour, shared=True)
        screen.print(Text.from_ansi(text.removesuffix("\n")), soft_wrap=True)
        if context.versions:
            screen.print(terminal.side_by_side(context.versions))
        for note in context.notes:
            screen.print(note, soft_wrap=True)
    for path in filter(None, (arguments.html, arguments.markdown)):
        say(f"report written: {path}", error=bool(arguments.format))
    return 0


def _markdown(report: Report, context: PageContext) -> str:
    return markdown.render(report) + markdown.side_by_side(context.versions)


_FORMATS: Mapping[str, Callable[[Report, PageContext], str]] = {
    "json": lambda report, context: json_format.render(report),
    "markdown": _markdown,
    "llm": lambda report, context: markdown.summary_text(report, context.notes),
}


def _tensorboard() -> Callable[[Report, str], str]:
    """Import the writer of TensorBoard's files; raises `UsageError` if TensorBoard is not installed."""
    try:
        export: Callable[[Report, str], str] = importlib.import_module("tfbench.report.tensorboard").export
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorboard":
            raise
        raise UsageError("--tensorboard needs tensorboard: pip install tensorboard") from None
    return export


SCHEMA = "tfbench-comparison/1"


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", type=_path, help="a result file, or the name of a saved baseline")
    parser.add_argument("second", metavar="B", type=_path, help="the file or baseline to compare with it")
    parser.add_argument("--all", action="store_true", help="also list unchanged verdicts of reports")
    parser.add_argument("--report-json", type=Path, metavar="PATH", help="write the comparison as JSON")


def _path(text: str) -> Path:
    """Return the path of a file, or of the saved baseline with this name if there is no such file."""
    path, saved = Path(text), Layout.of(project_root()).baselines / f"{text}.json"
    return saved if not path.exists() and path.name == text and saved.exists() else path


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare two result files: reports, baselines and files of plain pytest-benchmark.

    With raw times (a baseline, or pytest-benchmark's --benchmark-json or --benchmark-save-data), each ratio has an
    interval. Two files cannot show how much two runs of the same code differ. The comparison therefore suggests and does
    not decide: the exit code is 0 even if a case is slower.
    """
    first, second = (compare.read(path) for path in (arguments.first, arguments.second))
    console = Screen()
    for name, file in (("first", first), ("second", second)):
        console.print(Text(f"{name}: {file.path} ({file.kind}{', of ' + file.saved if file.saved else ''})"))
        if not file.times:
            console.print(Text(f"{name}: {compare.NO_TIMES}", "yellow"))
        for why in file.left_out:
            console.print(Text(f"{name}: {why}", "yellow"))
    differences = compare.differences(first, second)
    if why := differences.incomparable:
        console.print(Text(f"incomparable, because {why}", "yellow"))
    if differences.patch:
        console.print(Text(f"another patch version of Python: {'; '.join(differences.patch)}", "yellow"))
    rows = [contrast(case, first.times.get(case), second.times.get(case)) for case in {**first.times, **second.times}]
    if first.report or second.report:
        console.print(compare.verdicts(first.report, second.report, arguments.all))
    if first.times and second.times:
        console.print(compare.contrasts(rows, not differences.incomparable))
    if not first.cases & second.cases:
        console.print(Text("the files have no case in common", "yellow"))
    if arguments.report_json:
        content = {"schema": SCHEMA, "differences": list(differences), "cases": [row.as_json() for row in rows]}
        write_whole(arguments.report_json, render_json(content, 1) + "\n")
        console.print(f"comparison written: {arguments.report_json}")
    return 0


def add_history(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("words", metavar="CASE", nargs="*", help="a case, its end or a part of it; or accept CASE")
    text = f"folder or database (default: the project's {HISTORY})"
    option("--folder", default=str(project_root() / HISTORY), metavar="DIR|URL", help=text)
    option("--html", type=Path, metavar="PATH", help="write the history as a page")
    option("--reason", default="", metavar="TEXT", help="with accept: why the change is intended")


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
    trends = Trends(arguments.folder, preset("standard"), "" if arguments.html else action)
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
        screen.print(render_case(trends.of_case(named[0].series.case), screen.width))
    else:
        screen.print(render_overview(named, trends.runs, screen.width))


def _accept(arguments: argparse.Namespace, cases: list[str]) -> int:
    if len(cases) != 1:
        raise UsageError("name one case: tfbench history accept CASE --reason TEXT")
    reason = asked_reason(arguments.reason, "a change is not accepted")
    accepted = Trends(arguments.folder, preset("standard"), cases[0]).accept(cases[0], reason)
    say(f"{accepted.case}: its history restarts with the run of {accepted.session[:16]}: {reason}")
    return 0
