"""Print a report as a comment on a pull request.

The report may come from a job that ran untrusted code. tfbench therefore limits its size and checks it against a
strict schema, and no part of it can become markup, a link or a mention. The first line marks comments of tfbench.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.gate.decide import as_comment, decided, load_artifact


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="REPORT", type=Path, help="a report, or a folder or archive with one")
    parser.add_argument("--link", default="", metavar="URL", help="address of the full report")
    parser.add_argument("--output", type=Path, metavar="PATH", help="write to a file instead of printing")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the comment; 0 whatever the gate decides."""
    report, agreed = load_artifact(arguments.report)
    text = as_comment(report, decided(report, agreed), arguments.link)
    if arguments.output:
        write_whole(arguments.output, text)
    else:
        print(text, end="")
    return 0
