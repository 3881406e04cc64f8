"""The command line ``tfbench``: the commands with their modules, and errors as exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import REPLACED, foreign_distribution, hear_of_children
from tfbench.fs import check_outputs
from tfbench.report.screen import CUT_OFF, say
from tfbench.untrusted import brief, harmless

try:
    from tfbench import __version__
except ImportError:
    raise SystemExit(f"tfbench: {foreign_distribution() or REPLACED}") from None

USAGE, ERROR = 2, 5
"""Exit codes of a wrong command line and of a failure. `tfbench gate` has the others."""
COMMANDS = {
    "baseline": "tfbench.commands.saved", "bisect": "tfbench.commands.versions",
    "calibrate": "tfbench.commands.doctor", "ci": "tfbench.commands.ci", "doctor": "tfbench.commands.doctor",
    "explain": "tfbench.commands.versions", "fleet": "tfbench.commands.fleet", "gate": "tfbench.commands.ci",
    "history": "tfbench.commands.saved", "init": "tfbench.commands.init", "report": "tfbench.commands.saved",
    "versions": "tfbench.commands.versions",
}  # fmt: skip
"""Command -> its module, which has ``add_COMMAND`` for the options and ``run_COMMAND``."""
_OUTPUTS = "report_json", "report_markdown", "markdown", "html", "comment"
"""Settings of commands with the file of an output."""
_FIXES = {
    errno.ENOTDIR: "name a folder", errno.EEXIST: "it is no folder; name one", errno.EISDIR: "name a file in it",
    errno.EACCES: "name another place, or change its permissions", errno.EROFS: "name another place",
    errno.ENOSPC: "free some space, and try again",
}  # fmt: skip
"""What helps against an error of a file that the user named."""
Run = Callable[[argparse.Namespace], int]


def functions(command: str) -> tuple[Callable[[argparse.ArgumentParser], None], Run]:
    """Import a command. Return the function that adds its options, and the one that runs it and has the help text."""
    module, name = importlib.import_module(COMMANDS[command]), command.replace("-", "_")
    return getattr(module, f"add_{name}"), getattr(module, f"run_{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # LANG=C and pipes of Windows lack the characters of charts
    parser = argparse.ArgumentParser(prog="tfbench", description="Performance regression suite for TensorFlow.")
    try:
        os.getcwd()
    except OSError as error:
        parser.exit(ERROR, f"tfbench: the current folder cannot be used: {error.strerror}; change to another one\n")
    parser.add_argument("--version", action="version", version=f"tfbench {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = sys.argv[1:] if argv is None else argv
    # Importing every command takes three times as long as importing one. Only the help needs them all.
    needed = [words[0]] if words and words[0] in COMMANDS else list(COMMANDS)
    runs: dict[str, Run] = {}
    parsers: dict[str, argparse.ArgumentParser] = {}
    for command in needed:
        add, runs[command] = functions(command)
        text, formatter = inspect.getdoc(runs[command]) or "", argparse.RawDescriptionHelpFormatter
        summary = text.partition("\n")[0].rstrip(".")
        parsers[command] = subparsers.add_parser(command, help=summary, description=text, formatter_class=formatter)
        add(parsers[command])
    if not words:
        parser.exit(USAGE, parser.format_help())
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        parser.error(f"no command {harmless(repr(words[0]))}: the commands are {', '.join(COMMANDS)}")
    arguments, rest = parser.parse_known_args(argv)
    # argparse takes the words of a list from one place only, and not again after an option.
    if rest and (not hasattr(arguments, "intermixed") or any(word.startswith("-") for word in rest)):
        fix = "; give options of pytest as --arguments=OPTION" if hasattr(arguments, "arguments") else ""
        parsers[arguments.command].error(f"unrecognized arguments: {harmless(' '.join(rest))}{fix}")
    if rest:  # words without a type: a command makes paths of them itself
        getattr(arguments, arguments.intermixed).extend(rest)
    hear_of_children()
    if warning := foreign_distribution():
        say(f"tfbench: {warning}", error=True)
    try:
        check_outputs({f"--{name.replace('_', '-')}": getattr(arguments, name, None) for name in _OUTPUTS})
        code = runs[arguments.command](arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, wants no more
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return CUT_OFF
    except TfbenchError as error:
        say(f"tfbench {arguments.command}: {error}", error=True)
        return USAGE if isinstance(error, UsageError) else ERROR
    except OSError as error:  # a file that the user named for an output
        fix = f"; {_FIXES[error.errno]}" if error.errno in _FIXES else ""
        text = f"{brief(error.filename or 'a file')}: {str(error.strerror or error).removesuffix(fix)}{fix}"
        say(f"tfbench {arguments.command}: {text}", error=True)
        return ERROR
    except KeyboardInterrupt:
        say(f"tfbench {arguments.command}: interrupted", error=True)
        return 130
