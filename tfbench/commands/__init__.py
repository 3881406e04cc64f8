"""Commands, several of one subject per file: ``add_NAME`` adds the options, ``run_NAME`` runs and has the help text."""

import sys

PYTEST = (sys.executable, "-m", "pytest", "-p", "tfbench.plugin")
"""The command of pytest with the plugin of tfbench."""
