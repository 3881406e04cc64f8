"""No file of the repository installs tfbench by a name that its authors do not own on a package index."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_NAME = r"(?<![\w./+-])(?:pytest-)?tfbench(?![\w./-])(?:\[[\w,]*\])?(?!\[)(?!\s*@\s*[\w\"$'{+])"
BY_NAME = re.compile(
    rf"(?:\b(?:pip|pipx|uv|uvx|conda|poetry)\b[^\n`]*?\b(?:install|add|run)\b|TFBENCH_INSTALL:)[^\n`]*?{_NAME}"
)
EXTRA = re.compile(r"pytest-tfbench\[[\w,]*\](?!\s*@\s*\w)")
"""An extra without an address, as a message would ask to install it."""
ALLOWED = ("Do not `pip install tfbench`", "pip uninstall tfbench")


def by_name(text):
    """Return the lines that install this project by its name."""
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    return [line for line in text.splitlines() if BY_NAME.search(line) or EXTRA.search(line)]


@pytest.mark.parametrize(
    "line",
    [
        "pip install pytest-tfbench",
        "uv pip install 'pytest-tfbench[gpu]' tensorflow",
        "TFBENCH_INSTALL: -r requirements.txt pytest-tfbench[versions]",
        "needs `pytest-tfbench[profile]`",
        "uvx tfbench run; uv add tfbench",
    ],
)
def test_an_installation_by_name_is_found(line):
    assert by_name(line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        'pip install "pytest-tfbench[versions] @ file://$TFBENCH"',
        "pip install 'pytest-tfbench[versions,report] @ git+https://HOST/OWNER/REPOSITORY@v0.1.0'",
        "pip install '../tfbench[versions,report]' tensorflow",
        "TFBENCH_INSTALL: pytest-tfbench[versions]@git+https://HOST/OWNER/REPOSITORY@v0.1.0",
        "Do not `pip install tfbench`: that name belongs to an unrelated project.",
        "pip install uv, and `tfbench versions` works",
    ],
)
def test_an_address_or_a_path_is_no_name(line):
    assert by_name(line) == []


def test_no_tracked_file_installs_the_project_by_name():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    files = [ROOT / name for name in listed.split("\0") if name and name != "tests/test_installation.py"]
    texts = {file: file.read_bytes().decode(errors="replace") for file in files if file.is_file()}
    assert texts
    assert {str(file.relative_to(ROOT)): lines for file, text in texts.items() if (lines := by_name(text))} == {}
