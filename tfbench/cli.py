"""``tfbench``: the command line. Wiring only."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from tfbench import __version__
from tfbench.errors import TfbenchError, UsageError

COMMANDS = {
    "doctor": "what spoils timing on this machine, and what can be detected here",
    "calibrate": "measure the error rates of the gate on this machine",
    "compare": "compare two result files",
    "gate": "turn a report into an exit code",
    "baseline": "list, show, accept or remove saved baselines",
}
USAGE, ERROR = 2, 5
"""Exit codes of a wrong command line and of a failure; the others are in `commands.gate`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="tfbench", description="Performance regression suite for TensorFlow.")
    parser.add_argument("--version", action="version", version=f"tfbench {__version__}")
    words = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = {}
    for name, summary in COMMANDS.items():
        modules[name] = importlib.import_module(f"tfbench.commands.{name}")
        modules[name].add(words.add_parser(name, help=summary, description=modules[name].__doc__))
    arguments = parser.parse_args(argv)
    try:
        return int(modules[arguments.command].run(arguments))
    except UsageError as error:
        print(f"tfbench {arguments.command}: {error}", file=sys.stderr)
        return USAGE
    except TfbenchError as error:
        print(f"tfbench {arguments.command}: {error}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print(f"tfbench {arguments.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
