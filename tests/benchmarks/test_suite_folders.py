"""Which folders of benchmarks a run without paths collects."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_steps_that_only_tools_race_are_no_part_of_the_suite():
    words = [sys.executable, "-m", "pytest", "--benchmark", "--collect-only", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    folders = {line.split("/")[1].partition("::")[0] for line in listed if line.startswith("benchmarks/")}
    assert "test_linear.py" in folders
    assert not folders & {"neighbours", "reported", "unseen"}
