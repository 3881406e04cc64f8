"""Make a report for people from saved files: a page, Markdown, or the summary of the terminal.

A FILE is a report of --report-json, or each of the shards of one run; a saved baseline; a file of plain
pytest-benchmark or of asv. Several files with times are put side by side. A file of tfbench versions adds its heat
map, and a file of tfbench calibrate adds the measured rate of false alarms. Without an option, the command prints the
summary.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from tfbench.compare import read_inputs
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.model import Report
from tfbench.report import json_format, markdown, terminal
from tfbench.report.html import report_page
from tfbench.report.html.page import check_library
from tfbench.report.html.report_page import PageContext
from tfbench.report.screen import Screen, say


def add(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    """Make the reports; 0 whatever they say."""
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
    """Import the writer of TensorBoard's files.

    Raises:
        UsageError: TensorBoard is not installed.
    """
    try:
        export: Callable[[Report, str], str] = importlib.import_module("tfbench.report.tensorboard").export
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorboard":
            raise
        raise UsageError("--tensorboard needs tensorboard: pip install 'pytest-tfbench[profile]'") from None
    return export
