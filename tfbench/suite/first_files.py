"""The files that a new suite starts with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.config.findpaths import load_config_dict_from_file  # pytest offers it nowhere else

from tfbench.errors import UsageError
from tfbench.fs import read_text
from tfbench.untrusted import brief

# Find pytest's configuration file of a source tree that lies below another one


_NAMES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In pytest's order of preference."""


def ini_file(root: Path, top: Path) -> str:
    """Return the configuration file of ``root``, or a file without settings if its tree has none.

    The trees of other commits lie below the working tree, whose configuration pytest would use and whose code it would
    import.

    Args:
        top: Top folder of the tree. The folders above it do not count.
    """
    root, top = root.resolve(), top.resolve()
    for folder in (one for one in (root, *root.parents) if one.is_relative_to(top)):
        for file in (folder / name for name in _NAMES):
            if file.is_file() and load_config_dict_from_file(file) is not None:
                return str(file)
    return os.devnull


# Plan the first files of a project: a benchmark, pytest's settings, and a workflow that gates pull requests


BENCHMARKS, INI, WORKFLOW = "benchmarks/test_first.py", "pytest.ini", ".github/workflows/tfbench.yml"

_BENCHMARK = '''\
"""First benchmarks: run them with ``pytest --benchmark``, and replace the layer by a step of your own."""

import tensorflow as tf

from tfbench import Axis, Level, across

COMPILER = Axis(
    "compiler",
    Level("none", compile=lambda step: tf.function(step, jit_compile=False)),
    Level("xla", compile=lambda step: tf.function(step, jit_compile=True)),
)


@across(COMPILER)
def test_dense_layer(bench, variant):
    """A dense layer, with and without XLA."""
    images, weights = tf.random.normal([64, 256]), tf.random.normal([256, 128])
    step = variant.compile(lambda x, w: tf.nn.relu(tf.matmul(x, w)))
    bench(step, images, weights, flops=2 * 64 * 256 * 128, max_traces=1)
'''
_WORKFLOW = """\
# Races the benchmarks of a pull request against its base, in turns on one machine, and fails if one got slower.
name: tfbench

on:
  pull_request:

permissions:
  contents: read

concurrency:
  group: tfbench-${{ github.event.pull_request.number }}
  cancel-in-progress: true

jobs:
  gate:
    runs-on: ubuntu-24.04
    timeout-minutes: 45
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          fetch-depth: 0 # the base must be there
          persist-credentials: false
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "PYTHON"
      - name: install
        run: python -m pip install --quiet REQUIREMENTS "pytest-tfbench[versions]"
      - name: race
        run: |
          # GitHub has checked out the merge of the pull request. Its first parent is the base.
          code=0
          pytest --benchmark --policy quick --against "git:$(git rev-parse HEAD^1)" --report-json=tfbench.json || code=$?
          # With 1, a case failed, and the gate says which. Any other code means that the run is not whole.
          if [ "$code" -gt 1 ]; then exit "$code"; fi
      - name: gate
        run: tfbench gate tfbench.json
      - uses: actions/upload-artifact@ea165f8d65b6e75b540449e92b4886f43607fa02 # v4.6.2
        if: ${{ !cancelled() }}
        with:
          name: tfbench
          path: tfbench.json
          if-no-files-found: error
"""


@dataclass
class FirstFiles:
    """The files that a project lacks, and what its user should know."""

    files: dict[str, str] = field(default_factory=dict)
    """Path below the root -> content."""
    present: list[str] = field(default_factory=list)
    """What the project has, a line each."""
    advice: list[str] = field(default_factory=list)
    """Changes of existing files, which are left to the user."""


def plan(root: Path, python: str) -> FirstFiles:
    """Return the files that a project lacks.

    Args:
        root: Folder of the project.
        python: Minor version of Python for the workflow, such as ``3.12``.

    Raises:
        UsageError: A path is occupied by something else, or pytest cannot read the project's settings.
    """
    found = FirstFiles()
    settings, where = _settings(root)
    _benchmarks(found, root, settings)
    _ini(found, root, settings, where)
    _workflow(found, root, python)
    return found


def _settings(root: Path) -> tuple[Mapping[str, object] | None, str]:
    """Return pytest's settings and their file relative to the root, ``None`` if there are none."""
    top = next((one for one in (root, *root.parents) if (one / ".git").exists()), root)
    try:
        if (file := ini_file(root, top)) == os.devnull:
            return None, ""
        loaded = load_config_dict_from_file(Path(file)) or {}
    except (pytest.UsageError, pytest.fail.Exception) as error:
        raise UsageError(f"pytest cannot read the settings of {brief(root)}: {brief(error)}") from None
    # Newer versions of pytest wrap each value.
    return {name: getattr(value, "value", value) for name, value in loaded.items()}, os.path.relpath(file, root)


def _words(value: object) -> list[str]:
    return value.split() if isinstance(value, str) else [str(one) for one in value] if isinstance(value, list) else []


def _benchmarks(found: FirstFiles, root: Path, settings: Mapping[str, object] | None) -> None:
    folders = _words((settings or {}).get("tfbench_paths")) or ["benchmarks"]
    for name in folders:
        place = root / name
        if place.is_file() or any(place.rglob("test_*.py")) or any(place.rglob("*_test.py")):
            if not place.is_dir() and name == "benchmarks":
                raise UsageError(f"{brief(place)} is a file, and benchmarks need a folder there; rename the file")
            found.present.append(f"benchmarks in {name}")
            return
    folder = folders[0].rstrip("/")
    found.files[f"{folder}/{Path(BENCHMARKS).name}"] = _BENCHMARK


def _ini(found: FirstFiles, root: Path, settings: Mapping[str, object] | None, where: str) -> None:
    # pytest imports from the folder of a benchmark, and projects keep their modules elsewhere.
    folders = [".", *(["src"] if (root / "src").is_dir() else [])]
    if settings is None:
        found.files[INI] = f"[pytest]\ntfbench_paths = benchmarks\npythonpath = {' '.join(folders)}\n"
        return
    found.present.append(f"settings of pytest in {where}")
    if "pythonpath" not in settings:
        toml = where.endswith(".toml")
        value = json.dumps(folders) if toml else " ".join(folders)
        section = {"pyproject.toml": "[tool.pytest.ini_options]", "setup.cfg": "[tool:pytest]"}
        name = section.get(Path(where).name, "[pytest]")
        found.advice.append(
            f"{where}: add `pythonpath = {value}` to {name}, so that benchmarks can import the project's modules "
            "(not needed if it is installed with pip install -e)"
        )
    options = _words(settings.get("addopts"))
    if any(one == "-n" or (one.startswith("-n") and one[2:].isdigit()) for one in options):
        found.advice.append(f"{where}: addopts has -n, and benchmarks need one process; run them with -n 0")


def _workflow(found: FirstFiles, root: Path, python: str) -> None:
    for file in sorted((root / ".github" / "workflows").glob("*.y*ml")):
        if "tfbench" in file.name or "tfbench" in read_text(file):
            found.present.append(f"a workflow in {file.relative_to(root).as_posix()}")
            return
    wanted = "tensorflow"
    if (root / "requirements.txt").is_file():
        wanted = "-r requirements.txt"
    elif (root / "setup.py").is_file() or "[project]" in _text(root / "pyproject.toml"):
        wanted = "-e . tensorflow"
    found.files[WORKFLOW] = _WORKFLOW.replace("PYTHON", python, 1).replace("REQUIREMENTS", wanted, 1)


def _text(file: Path) -> str:
    return read_text(file) if file.is_file() else ""
