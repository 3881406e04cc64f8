"""The command ``tfbench example``: one file is a command."""

from __future__ import annotations

import argparse

from tfbench.report.screen import say


def add_example(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="reader", help="who is greeted (default: reader)")


def run_example(arguments: argparse.Namespace) -> int:
    """Greet a reader."""
    say(f"hello, {arguments.name}")
    return 0
