"""The command line ``tfbench``. It finds the commands and maps errors to exit codes."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from tfbench import __version__, commands
from tfbench.errors import TfbenchError, UsageError

USAGE, ERROR = 2, 5
"""Exit codes of a wrong command line and of a failure. `tfbench.commands.gate` has the others."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(prog="tfbench", description="Performance regression suite for TensorFlow.")
    parser.add_argument("--version", action="version", version=f"tfbench {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = {}
    for found in pkgutil.iter_modules(commands.__path__):
        if found.name.startswith("_"):
            continue  # shared code of the commands
        command = found.name.replace("_", "-")
        module = modules[command] = importlib.import_module(f"{commands.__name__}.{found.name}")
        text, formatter = module.__doc__ or "", argparse.RawDescriptionHelpFormatter
        summary = text.partition("\n")[0].rstrip(".")
        module.add(subparsers.add_parser(command, help=summary, description=text, formatter_class=formatter))
    arguments = parser.parse_args(argv)
    try:
        return int(modules[arguments.command].run(arguments))
    except TfbenchError as error:
        print(f"tfbench {arguments.command}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else ERROR
    except KeyboardInterrupt:
        print(f"tfbench {arguments.command}: interrupted", file=sys.stderr)
        return 130
