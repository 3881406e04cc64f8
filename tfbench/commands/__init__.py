"""Commands, several of one subject per file: ``add_NAME`` adds the options, ``run_NAME`` runs and has the help text."""

import sys

from tfbench.errors import UsageError

PYTEST = (sys.executable, "-m", "pytest", "-p", "tfbench.plugin")
"""The command of pytest with the plugin of tfbench."""


def asked_reason(given: str, refusal: str) -> str:
    """Return the given reason of a change, or ask for it. Raises `UsageError` without a terminal or an answer."""
    reason = given.strip() or (sys.stdin.isatty() and input("why is this change intended? ").strip())
    if not reason:
        raise UsageError(f"{refusal} without a reason: give --reason TEXT")
    return reason
