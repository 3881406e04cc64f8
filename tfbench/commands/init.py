"""The command that writes the first files of a project, from templates."""

from __future__ import annotations

import argparse
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.fs import read_text, write_whole
from tfbench.report.screen import say
from tfbench.sides.environments import minor
from tfbench.sides.yardstick import SETTINGS
from tfbench.untrusted import an_object, brief, parse_json

_TEMPLATES = Path(__file__).parent / "templates"
BENCHMARKS, INI, WORKFLOW = "benchmarks/test_first.py", "pytest.ini", ".github/workflows/tfbench.yml"
_SECTIONS = "[pytest]", "[tool:pytest]", "[tool.pytest"
_UNKNOWN = "git+https://HOST/OWNER/REPOSITORY@TAG"
_NEXT = """
next:
  pytest --benchmark                                            race the variants of each benchmark
  pytest --benchmark --against self --inject-slowdown 0.10      prove that a slowdown of 10% is found: exit code 1
  pytest --benchmark --against git:HEAD                         race the working tree against the last commit"""


def add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", metavar="FOLDER", nargs="?", type=Path, default=Path(), help="the project (default: .)")


def run_init(arguments: argparse.Namespace) -> int:
    """Write the first benchmark of a project, pytest's settings, and a workflow that gates pull requests.

    It lists the files that it wrote, and never changes a file that exists: where the project has settings of pytest of its
    own, it says what to add to them.
    """
    root: Path = arguments.root
    if not root.is_dir():
        raise UsageError(f"{brief(root)} is no folder; give the folder of a project")
    if (root / "benchmarks").is_file():
        raise UsageError(f"{brief(root / 'benchmarks')} is a file, and benchmarks need a folder there; rename the file")
    files = {WORKFLOW: _workflow(root)}
    if not list((root / "benchmarks").rglob("test_*.py")):
        files[BENCHMARKS] = read_text(_TEMPLATES / "benchmark.txt")
    settings = next((name for name in SETTINGS if any(mark in _text(root / name) for mark in _SECTIONS)), "")
    if not settings:
        files[INI] = read_text(_TEMPLATES / "pytest.ini")
    elif "pythonpath" not in _text(root / settings):
        say(f'to do: {settings}: add pythonpath = "." to the settings of pytest, if benchmarks import the project')
    for name, text in files.items():
        if (root / name).exists():
            say(f"present: {name}")
        else:
            write_whole(root / name, text)
            say(f"written: {name}")
            if _UNKNOWN in text:
                say(f"to do: {name}: replace {_UNKNOWN} by the address that tfbench comes from")
    say(_NEXT)
    return 0


def _workflow(root: Path) -> str:
    """Fill in the version of Python, the project's requirements, and the address that tfbench was installed from."""
    wanted = "tensorflow"
    if (root / "requirements.txt").is_file():
        wanted = "-r requirements.txt"
    elif (root / "setup.py").is_file() or "[project]" in _text(root / "pyproject.toml"):
        wanted = "-e . tensorflow"
    workflow = read_text(_TEMPLATES / "workflow.yml").replace("PYTHON", minor(platform.python_version()), 1)
    return workflow.replace("REQUIREMENTS", wanted, 1).replace("SOURCE", _installed_from(), 1)


def _installed_from() -> str:
    """Return the commit that this distribution was installed from, in pip's form (PEP 610), or a place to fill in.

    An index is never named: the name `tfbench` belongs to an unrelated project there.
    """
    with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        text = metadata.distribution("pytest-tfbench").read_text("direct_url.json")
        content = an_object(parse_json(text or "{}"), "it")
        source = f"{content['vcs_info']['vcs']}+{content['url']}@{content['vcs_info']['commit_id']}"
        if not set(source) & set("\"'$`\\ \n"):
            return source
    return _UNKNOWN


def _text(file: Path) -> str:
    return read_text(file) if file.is_file() else ""
