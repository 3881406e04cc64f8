"""The command that writes the first files of a project."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
from _pytest.config.findpaths import load_config_dict_from_file  # pytest offers it nowhere else

from tfbench.errors import ReportError, SideError, UsageError
from tfbench.fs import read_text, write_whole
from tfbench.imports import ini_file
from tfbench.report.screen import say
from tfbench.sides.environments import minor
from tfbench.sides.source_tree import tree_of
from tfbench.untrusted import an_object, brief, parse_json

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
    own, it says what to add to them. A project that has everything stays as it is.
    """
    root: Path = arguments.root
    if not root.is_dir():
        raise UsageError(f"{brief(root)} is no folder; give the folder of a project")
    setup = plan(root.resolve(), minor(platform.python_version()))
    for part in setup.present:
        say(f"present: {part}")
    for name, text in setup.files.items():
        try:
            write_whole(root / name, text, replace=False)
        except FileExistsError:
            say(f"not written: {name} exists")
        else:
            say(f"written: {name}")
    for advice in setup.advice:
        say(f"to do: {advice}")
    commands = _NEXT.replace("--benchmark", f"--benchmark{setup.options}")
    try:
        tree_of(root, "HEAD")
    except SideError:
        commands += ", once there is one"
    say(commands if setup.files else "the project has it all: no file was written")
    return 0


BENCHMARKS, INI, WORKFLOW = "benchmarks/test_first.py", "pytest.ini", ".github/workflows/tfbench.yml"
DISTRIBUTION = "pytest-tfbench"
_UNKNOWN = "git+https://HOST/OWNER/REPOSITORY@TAG"
"""What stands for its address where that is not known."""
_TEMPLATES = Path(__file__).parent / "templates"
_TAKES = re.compile(r"^[ \t]*def test\w*\([^)]*\bbenchmark\b", re.MULTILINE)
"""A test that takes the fixture of pytest-benchmark."""

_FOR_TESTS = {
    "-n0": ("pytest-xdist", r"(?:-n|--numprocesses)[= ]?(?!0\b)\w", "addopts has -n, and benchmarks need one process"),
    "--timeout=0": ("pytest-timeout", r"--timeout[= ]", "the timeout is one for tests, and races take longer"),
    "--no-cov": ("pytest-cov", r"--cov(?!\S)|--cov=", "addopts has --cov, and benchmarks run in other processes"),
}
"""Option that benchmarks need where addopts matches a pattern -> plugin that has the option, pattern and reason."""


@dataclass
class FirstFiles:
    """The files that a project lacks, and what its user should know."""

    files: dict[str, str] = field(default_factory=dict)
    """Path below the root -> content."""
    present: list[str] = field(default_factory=list)
    """What the project has, a line each."""
    advice: list[str] = field(default_factory=list)
    """Changes of existing files, which are left to the user."""
    options: str = ""
    """What pytest needs besides ``--benchmark`` here, with a blank before each option."""
    plugins: list[str] = field(default_factory=list)
    """The plugins of pytest that have these options."""


def plan(root: Path, python: str) -> FirstFiles:
    """Return the files that a project lacks. The workflow gets the minor version ``python``, such as ``3.12``.

    Raises `UsageError` if a path is occupied by something else, or pytest cannot read the project's settings.
    """
    first = FirstFiles()
    settings, where = _settings(root)
    _benchmarks(first, root, settings)
    _ini(first, root, settings, where)
    _workflow(first, root, python)
    return first


def _settings(root: Path) -> tuple[Mapping[str, object] | None, str]:
    """Return pytest's settings and their file relative to the root, ``None`` if there are none."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    try:
        if (file := ini_file(root, top)) == os.devnull:
            return None, ""
        loaded = load_config_dict_from_file(Path(file)) or {}
    except (pytest.UsageError, pytest.fail.Exception) as error:
        raise UsageError(f"pytest cannot read the settings of {brief(root)}: {brief(error)}") from None
    # Newer versions of pytest wrap each value.
    return {name: getattr(value, "value", value) for name, value in loaded.items()}, os.path.relpath(file, root)


def _words(value: object) -> list[str]:
    return value.split() if isinstance(value, str) else list(map(str, value)) if isinstance(value, list) else []


def _benchmarks(first: FirstFiles, root: Path, settings: Mapping[str, object] | None) -> None:
    folders = _words((settings or {}).get("tfbench_paths")) or ["benchmarks"]
    for name in folders:
        place = root / name
        if place.is_file() or any(place.rglob("test_*.py")) or any(place.rglob("*_test.py")):
            if not place.is_dir() and name == "benchmarks":
                raise UsageError(f"{brief(place)} is a file, and benchmarks need a folder there; rename the file")
            first.present.append(f"benchmarks in {name}")
            return
    folder = folders[0].rstrip("/")
    first.files[f"{folder}/{Path(BENCHMARKS).name}"] = read_text(_TEMPLATES / "benchmark.txt")


def _ini(first: FirstFiles, root: Path, settings: Mapping[str, object] | None, where: str) -> None:
    # pytest imports from the folder of a benchmark, and projects keep their modules elsewhere.
    imports = [".", *(["src"] if (root / "src").is_dir() else [])]
    paths = ["benchmarks", *_adopted(root, settings or {})]
    if settings is None:
        first.files[INI] = f"[pytest]\ntfbench_paths = {shlex.join(paths)}\npythonpath = {' '.join(imports)}\n"
        return
    first.present.append(f"settings of pytest in {where}")
    section = {"pyproject.toml": "[tool.pytest.ini_options]", "setup.cfg": "[tool:pytest]"}
    name = section.get(Path(where).name, "[pytest]")
    if "[tool.pytest]" in _text(root / where):  # pytest reads it from 9.0 on
        name = "[tool.pytest]"

    def add(setting: str, words: list[str], why: str) -> None:
        value = json.dumps(words) if where.endswith(".toml") else shlex.join(words)
        first.advice.append(f"{where}: add `{setting} = {value}` to {name}, so that {why}")

    if "pythonpath" not in settings:
        installed = "(not needed if it is installed with pip install -e)"
        add("pythonpath", imports, f"benchmarks can import the project's modules {installed}")
    if "tfbench_paths" not in settings and len(paths) > 1 and "/" not in where:
        add("tfbench_paths", paths, "the tests of pytest-benchmark race as well")
    options = " ".join(_words(settings.get("addopts")))
    for option, (package, pattern, why) in _FOR_TESTS.items():
        if re.search(rf"(?<!\S){pattern}", options) or (option == "--timeout=0" and "timeout" in settings):
            first.options += f" {option}"
            first.plugins.append(package)
            first.advice.append(f"{where}: {why}; run them with {option}")


def _adopted(root: Path, settings: Mapping[str, object]) -> list[str]:
    """Return the folders with tests of pytest-benchmark outside of benchmarks/, and such files of the root itself."""
    patterns, found = _words(settings.get("python_files")) or ["test_*.py", "*_test.py"], set[str]()
    for top, folders, names in os.walk(root):
        place = Path(top)
        left_out = {"build", "dist", "node_modules", *(["benchmarks"] if place == root else [])}
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        folders[:] = [name for name in folders if not (place / name / "pyvenv.cfg").exists()]
        for name in names:
            with suppress(ReportError):
                if any(fnmatch(name, pattern) for pattern in patterns) and _TAKES.search(read_text(place / name)):
                    found.add((place / name if place == root else place).relative_to(root).as_posix())
    return sorted(name for name in found if not any(str(above) in found for above in Path(name).parents))


def _workflow(first: FirstFiles, root: Path, python: str) -> None:
    for file in sorted((root / ".github" / "workflows").glob("*.y*ml")):
        if "tfbench" in file.name or "tfbench" in read_text(file):
            first.present.append(f"a workflow in {file.relative_to(root).as_posix()}")
            return
    wanted = "tensorflow"
    if (root / "requirements.txt").is_file():
        wanted = "-r requirements.txt"
    elif (root / "setup.py").is_file() or "[project]" in _text(root / "pyproject.toml"):
        wanted = "-e . tensorflow"
    # Never by its name alone: whoever registers it on an index would run code on the runner.
    if not re.fullmatch(r"(?!file:)[\w.+:/@~-]+", named := _installed_from()):
        yours = f"yours is from {named or 'an unknown place'}"
        named = _UNKNOWN
        first.advice.append(f"{WORKFLOW}: put the address of {DISTRIBUTION} in place of {named}; {yours}")
    source = f"{DISTRIBUTION}[versions] @ {named}"
    workflow = read_text(_TEMPLATES / "workflow.yml")
    if first.options:  # an unknown option otherwise, where the requirements lack the plugin
        wanted += f" {' '.join(first.plugins)}"
        words = first.options.split()
        lines = words[0] if len(words) == 1 else "$'" + r"\n".join(words) + "'"  # bash's line breaks
        workflow = workflow.replace("tfbench ci", f"tfbench ci --arguments={lines}", 1)
    filled = {"PYTHON": python, "REQUIREMENTS": wanted, "DISTRIBUTION": source}
    for word, value in filled.items():
        workflow = workflow.replace(word, value, 1)
    first.files[WORKFLOW] = workflow


def _installed_from() -> str:
    """Return the address that this distribution was installed from, in pip's form; ``""`` if that is unknown (PEP 610)."""
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        content = an_object(parse_json(text or "{}"), "it")
        version = content.get("vcs_info") or {}
        prefix = f"{version['vcs']}+" if version else ""
        return f"{prefix}{content.get('url', '')}{'@' + version['commit_id'] if version else ''}"
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def _text(file: Path) -> str:
    return read_text(file) if file.is_file() else ""
