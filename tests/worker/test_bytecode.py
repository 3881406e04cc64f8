"""Cached bytecode of a side's own files: neither read nor written, by Python or by pytest."""

import os
import subprocess
import sys

import pytest

RUN = """
import os, sys
sys.addaudithook(lambda event, found: event == "open" and print("opens", found[0]))
import pytest
from tfbench.worker import isolation
{before}
raise SystemExit(pytest.main(["-q", "-s", "-p", "no:cacheprovider", "test_it.py"]))
"""
COMPILES = "isolation.compile_own_files()"


def opened(folder, before=""):
    """Returns the cached files in the folder that are opened when pytest imports a test file and a module."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", RUN.format(before=before)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cache = f"opens {folder / '__pycache__'}/"
    return {line.removeprefix(cache).partition(".")[0] for line in done.stdout.splitlines() if line.startswith(cache)}


@pytest.mark.parametrize("place", ["project", "site-packages"])
def test_only_what_is_installed_is_read_from_cached_bytecode(tmp_path, place):
    folder, both = tmp_path / place, {"helper", "test_it"}
    folder.mkdir()
    (folder / "helper.py").write_text("HOLDS = 1\n")
    (folder / "test_it.py").write_text("import helper\n\ndef test():\n    assert helper.HOLDS == 1\n")
    of_installed = both if place == "site-packages" else set()
    assert opened(folder, COMPILES) == of_installed
    assert (folder / "__pycache__").exists() == bool(of_installed)
    assert opened(folder) == opened(folder) == both  # the second time it is there to be read
    assert opened(folder, COMPILES) == of_installed
