"""Print a report as a comment on a pull request.

The report may come from a job that ran somebody else's code: it is read within limits, by a strict schema, and nothing
of it can be markup, a link or a mention. An earlier comment of tfbench's is found by its first line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.gate.decide import as_comment, decided, load_artifact


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("report", metavar="REPORT", type=Path, help="a report, or the folder or archive that holds it")
    parser.add_argument("--link", default="", metavar="URL", help="where the whole report is")
    parser.add_argument("--output", type=Path, metavar="PATH", help="write it there instead of printing it")


def run(arguments: argparse.Namespace) -> int:
    """Print or write it; 0 whatever the gate says."""
    report, agreed = load_artifact(arguments.report)
    text = as_comment(report, decided(report, agreed), arguments.link)
    if arguments.output:
        write_whole(arguments.output, text)
    else:
        print(text, end="")
    return 0
