"""Print a report as a comment on a pull request.

The report may come from a job that ran untrusted code. tfbench therefore limits its size and checks it against a
strict schema, and no part of it can become markup, a link or a mention. The first line marks comments of tfbench.

With --conclusion and --commit, the headline says what GitHub knows of the run, which a report cannot forge. Without a
report, the comment says that there is none.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.fs import read_text, write_whole
from tfbench.report.artifact import load_artifact, own_files
from tfbench.report.comment import GithubRun, render, without_report
from tfbench.report.screen import say
from tfbench.ruling import decided
from tfbench.untrusted import brief


def add(parser: argparse.ArgumentParser) -> None:
    text = "a report, or a folder or archive with one (default: the comment says that there is none)"
    parser.add_argument("report", metavar="REPORT", type=Path, nargs="?", help=text)
    parser.add_argument("--link", default="", metavar="URL", help="address of the full report")
    parser.add_argument(
        "--conclusion", default="", metavar="WORD", help="GitHub's conclusion of the run, for the headline"
    )
    parser.add_argument("--commit", default="", metavar="SHA", help="the commit of the run, for the headline")
    text = "names of the pull request's changed files, one per line, to flag changes of the gate itself; run in a trusted checkout"
    parser.add_argument("--changed-files", type=Path, metavar="FILE", help=text)
    parser.add_argument("--output", type=Path, metavar="PATH", help="write to a file instead of printing")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the comment; 0 whatever the gate decides."""
    github = _run(arguments)
    if arguments.report is not None:
        report, agreed = load_artifact(arguments.report)
        text = render(report, decided(report, agreed), arguments.link, github)
    elif github is not None:
        text = without_report(github, "the run uploaded none, or one that cannot be read", arguments.link)
    else:
        raise UsageError("give a REPORT, or --conclusion for a run without one")
    if arguments.output:
        write_whole(arguments.output, text)
    else:
        say(text.removesuffix("\n"))
    return 0


def _run(arguments: argparse.Namespace) -> GithubRun | None:
    """Check what the command line says of the run.

    Raises:
        UsageError: A value has another form than GitHub's.
    """
    for option, value, form in (
        ("--conclusion", arguments.conclusion, r"[a-z_]{0,30}"),
        ("--commit", arguments.commit, r"(?:[0-9a-f]{7,64})?"),
        ("--link", arguments.link, r"(?:https?://[\w.:/?=&%#~-]{1,500})?"),
    ):
        if not re.fullmatch(form, value, re.ASCII):
            raise UsageError(f"{option} {brief(repr(value))} is not what GitHub gives")
    if not arguments.conclusion:
        return None
    changed = read_text(arguments.changed_files).splitlines() if arguments.changed_files else []
    return GithubRun(arguments.conclusion, arguments.commit, own_files(changed, Path()))
