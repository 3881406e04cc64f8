"""Write the first benchmark of a project, pytest's settings, and a workflow that gates pull requests.

It lists the files that it wrote, and never changes a file that exists: where the project has settings of pytest of its
own, it says what to add to them. A project that has everything stays as it is.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.report.screen import say
from tfbench.sides.environments import minor
from tfbench.suite.first_files import plan
from tfbench.untrusted import brief

_NEXT = """
next:
  pytest --benchmark                                            race the variants of each benchmark
  pytest --benchmark --against self --inject-slowdown 0.10      prove that a slowdown of 10% is found: exit code 1
  pytest --benchmark --against git:HEAD                         race the working tree against the last commit"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", metavar="FOLDER", nargs="?", type=Path, default=Path(), help="the project (default: .)")


def run(arguments: argparse.Namespace) -> int:
    """Write what is missing; 0 whether anything was."""
    root: Path = arguments.root
    if not root.is_dir():
        raise UsageError(f"{brief(root)} is no folder; give the folder of a project")
    found = plan(root.resolve(), minor(platform.python_version()))
    for one in found.present:
        say(f"present: {one}")
    for name, text in found.files.items():
        try:
            write_whole(root / name, text, replace=False)
        except FileExistsError:
            say(f"not written: {name} exists")
        else:
            say(f"written: {name}")
    for one in found.advice:
        say(f"to do: {one}")
    say(_NEXT if found.files else "the project has it all: no file was written")
    return 0
