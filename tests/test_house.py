"""The house: who imports whom, what is never used, and bounds that are written twice."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    tomllib = None

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfbench"
FILES = sorted(PACKAGE.rglob("*.py"))

GROUND = {"model", "errors"}
FIRST = GROUND | {"policy", "axes", "protocol"}
ROOMS = {"worker", "analysis", "report", "store", "sides"}
MAY_IMPORT = {
    "model": GROUND,
    "errors": GROUND,
    "policy": GROUND,
    "axes": GROUND,
    "protocol": GROUND,
    **{room: FIRST | {room} for room in ROOMS},
    "race": FIRST | ROOMS | {"race"},
}
"""Everything else is wiring and may import all of these."""
WORKER_NEEDS = {"pytest", "_pytest", "numpy", "tensorflow", "keras", "tf_keras", "tfbench"}
TENSORFLOW = {"tensorflow", "keras", "tf_keras"}
LONGEST = 500


def room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path) -> set[str]:
    """Every module that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(file: Path) -> set[str]:
    parts = (name.split(".") for name in imports(file) if name.startswith("tfbench."))
    return {name[1] for name in parts if (PACKAGE / name[1]).exists() or (PACKAGE / f"{name[1]}.py").exists()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
class TestFile:
    def test_imports_run_one_way(self, file):
        if (allowed := MAY_IMPORT.get(room(file))) is not None:
            assert ours(file) <= allowed

    def test_only_the_worker_imports_tensorflow_and_it_needs_little_else(self, file):
        tops = {name.partition(".")[0] for name in imports(file)}
        if room(file) == "worker":
            assert tops - set(sys.stdlib_module_names) <= WORKER_NEEDS
        elif file.name != "trial_benchmarks.py":  # it runs in the worker
            assert not tops & TENSORFLOW

    def test_nothing_that_runs_what_it_reads(self, file):
        tree = ast.parse(file.read_text())
        assert not {name.partition(".")[0] for name in imports(file)} & {"pickle", "marshal", "shelve", "dill"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"eval", "exec", "os.system", "os.popen", "compile"}, name
                assert not any(keyword.arg == "shell" for keyword in node.keywords), ast.unparse(node)

    def test_it_says_what_it_is_and_can_be_held_in_the_head(self, file):
        text = file.read_text()
        assert ast.get_docstring(ast.parse(text))
        assert len(text.splitlines()) <= LONGEST


def test_the_plugin_costs_no_tensorflow():
    program = (
        "import sys, tfbench, tfbench.plugin, tfbench.runner; print([m for m in sys.modules if m == 'tensorflow'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_need_pytest_alone():
    program = "import sys; before = set(sys.modules); import pytest; mid = set(sys.modules); import tfbench; print(*sorted({m.partition('.')[0] for m in set(sys.modules) - mid} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tfbench"]


@pytest.mark.skipif(tomllib is None, reason="tomllib is of Python 3.11")
def test_the_bounds_are_the_same_in_both_places():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {*project["dependencies"], *project["optional-dependencies"]["suite"]}
    required = (line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    assert {re.sub(r"\s", "", line) for line in declared} == {re.sub(r"\s", "", line) for line in required if line}


def test_the_plugin_has_one_name():
    entry = (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"] if tomllib else {}
    )
    assert set(entry.items()) <= {("tfbench.plugin", "tfbench.plugin")}
    assert '"tfbench.plugin"' in (ROOT / "conftest.py").read_text()
