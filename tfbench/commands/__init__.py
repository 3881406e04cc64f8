"""Commands, several of one subject per file: ``add_NAME`` adds the options, ``run_NAME`` runs and has the help text."""

import argparse
import sys
from contextlib import suppress

from tfbench.facts import interpreter_options

PYTEST = (sys.executable, *interpreter_options(), "-m", "pytest", "-p", "tfbench.plugin")
"""The command of pytest with the plugin of tfbench."""


def amount(text: str) -> float:
    """Read a number of at least 0, such as seconds, as the ``type`` of an option. NaN is none."""
    with suppress(ValueError):
        if (number := float(text)) >= 0:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}: write a number of at least 0")
