"""Check the architecture: direction of imports, forbidden calls, sizes, and version bounds that two files repeat."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:  # there pytest itself needs tomli
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tfbench"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    ("cli",),
    ("commands",),
    ("plugin", "versions"),
    ("fleet",),
    ("session", "doctor"),
    ("race",),
    ("report",),
    ("ruling",),
    ("metrics",),
    ("worker", "profiles", "gpus", "stats"),
    ("sides", "storage", "suite", "policy", "protocol", "facts", "imports"),
    ("model",),
    ("fs",),
    ("errors", "untrusted"),
)
"""A package imports only from lower lines, and from no other package of its own line."""
LEVELS = {name: level for level, line in enumerate(reversed(LAYERS)) for name in line}
ENTRANCES = {"__init__": {"suite", "model", "errors", "report"}, "__main__": {"cli"}}
"""What the entry points may import."""
MODULE = re.compile(r"tfbench(\.\w+)+")
WORKER_NEEDS = {"pytest", "_pytest", "numpy", "tensorflow", "keras", "tf_keras", "tfbench"}
TENSORFLOW = {"tensorflow", "keras", "tf_keras"}
COPIED = PACKAGE / "versions" / "runner.py"
"""`tfbench explain --repro` copies it into a folder, where it runs without tfbench."""
RUNS_WHAT_IT_READS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "multiprocessing"}
RUNS_TEXT = {"eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
BY_NAME = {"__import__", "import_module", "importlib.import_module"}
LONGEST = 800
"""Lines of a module. Split a longer one by subject."""


def room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(text: str, package: str) -> set[str]:
    """Find every module that a module imports, including relative imports, imports by name, and in functions."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            found.add(node.value)  # as what -m starts
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME and node.args:
            name = node.args[0]
            found |= {name.value} if isinstance(name, ast.Constant) else set()
    return found


def imports_of(file: Path) -> set[str]:
    return imports(file.read_text(), ".".join(file.relative_to(ROOT).parent.parts))


def ours(file: Path) -> set[str]:
    parts = (name.split(".") for name in imports_of(file) if name.startswith("tfbench."))
    return {name[1] for name in parts if (PACKAGE / name[1]).exists() or (PACKAGE / f"{name[1]}.py").exists()}


def dangers(text: str) -> list[str]:
    """Find code that executes its input: unpickling, evaluation, shell commands."""
    found = sorted({name.partition(".")[0] for name in imports(text, "tfbench")} & RUNS_WHAT_IT_READS)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).removeprefix("builtins.")
            keywords = {keyword.arg for keyword in node.keywords}
            if name in RUNS_TEXT or keywords & {"shell", "allow_pickle"}:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "subprocess", "builtins"}:
            found += [alias.name for alias in node.names if RUNS_TEXT & {alias.name, f"{node.module}.{alias.name}"}]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
class TestFile:
    def test_imports_run_downwards(self, file):
        here = room(file)
        allowed = ENTRANCES.get(here) or {here, *(name for name in LEVELS if LEVELS[name] < LEVELS[here])}
        assert ours(file) <= allowed

    def test_only_the_worker_imports_tensorflow_and_it_needs_little_else(self, file):
        tops = {name.partition(".")[0] for name in imports_of(file)}
        if room(file) == "worker":
            assert tops - set(sys.stdlib_module_names) <= WORKER_NEEDS
        elif file != COPIED:
            assert not tops & TENSORFLOW

    def test_nobody_imports_the_worker(self, file):
        """Others start it by name. What both need lies below both."""
        tree = ast.parse(file.read_text())
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        found = imports("\n".join(map(ast.unparse, statements)), ".".join(file.relative_to(ROOT).parent.parts))
        assert room(file) == "worker" or not [name for name in found if name.startswith("tfbench.worker")]

    def test_the_statistics_know_no_storage(self, file):
        assert room(file) != "stats" or "storage" not in ours(file)

    def test_nothing_that_runs_what_it_reads(self, file):
        assert not dangers(file.read_text())

    def test_it_says_what_it_is_and_can_be_held_in_the_head(self, file):
        text = file.read_text()
        assert ast.get_docstring(ast.parse(text))
        assert len(text.splitlines()) <= LONGEST


def test_every_room_has_one_line():
    rooms = {room(file) for file in FILES} - set(ENTRANCES)
    assert sorted(name for line in LAYERS for name in line) == sorted(rooms)


def test_the_house_is_small_enough_to_overlook():
    assert len(list(PACKAGE.glob("*.py"))) <= 12
    assert len({room(file) for file in FILES if file.parent != PACKAGE}) <= 20


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("def f():\n import tensorflow as tf", "tensorflow"),
        ("from tfbench import session", "tfbench.session"),
        ("from ..session import Session", "tfbench.session"),
        ("from . import spec", "tfbench.sides.spec"),
        ("import importlib\nimportlib.import_module('keras')", "keras"),
        ("run([executable, '-m', 'tfbench.session'])", "tfbench.session"),
    ],
)
def test_no_way_of_importing_is_overlooked(text, module):
    assert module in imports(text, "tfbench.sides")


@pytest.mark.parametrize(
    "text",
    [
        "from pickle import loads",
        "import builtins\nbuiltins.exec('1')",
        "from os import system",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import numpy\nnumpy.load('a.npy', allow_pickle=True)",
    ],
)
def test_no_danger_is_overlooked(text):
    assert dangers(text)


def loaded(program):
    """Run a program in a process of its own, and return the names of what it has imported."""
    program = f"import sys\n{program}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) - set(sys.stdlib_module_names)


def test_the_plugin_costs_no_tensorflow():
    found = loaded("import tfbench.plugin, tfbench.plugin.runner")
    assert "tfbench" in found
    assert not found & TENSORFLOW


def test_workers_need_no_library_of_the_controller():
    """They run beside old TensorFlows with numpy and pytest. What they import of `tfbench.model` has no file format."""
    found = loaded(
        "import importlib, pkgutil, tfbench.worker as worker\n"
        "for module in pkgutil.iter_modules(worker.__path__, 'tfbench.worker.'): importlib.import_module(module.name)"
    )
    assert "tfbench" in found
    assert not found & {"msgspec", "rich", "psutil", "platformdirs", "pytest_benchmark", "scipy", *TENSORFLOW}


def test_the_package_is_imported_without_pytest_and_its_public_names_need_pytest_alone():
    """Most commands need none of it, and it takes longer to import than the rest."""
    assert "pytest" not in loaded("import tfbench, tfbench.suite.claims")
    names = loaded("import tfbench")
    assert names - loaded("import pytest") == {"tfbench"}


def test_the_bounds_are_the_same_in_both_places():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        *project["dependencies"],
        *project["optional-dependencies"]["suite"],
        *project["optional-dependencies"]["versions"],
    }
    required = (line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    assert {re.sub(r"\s", "", line) for line in declared} == {re.sub(r"\s", "", line) for line in required if line}


@pytest.mark.parametrize("page", ["docs/architecture.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_a_page_names_files_that_exist(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:tfbench|tests|benchmarks|docs|ci|\.github)/[\w/.-]+)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists() and "NAME" not in path] == []


def test_a_row_of_where_to_find_names_what_its_files_define():
    rows = (ROOT / "docs/architecture.md").read_text().partition("## Where to find")[2].splitlines()
    wrong = []
    for answer in (row.split("|")[2] for row in rows if row.count("|") > 2):
        code = "".join((ROOT / path).read_text() for path in re.findall(r"`(tfbench/[\w/]+\.py)`", answer))
        for name in re.findall(r"`(?:\w+\.)?([A-Za-z_]+)`", re.sub(r"`[\w.]+\.(py|yml)`", "", answer)):
            if not re.search(rf"(?m)^ *(?:def|class) {name}\b|^{name}\b", code):
                wrong.append(name)
    assert wrong == []


def test_the_table_of_packages_has_each_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("| package | content |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.count("|") > 2))
    assert sorted(named) == sorted(LEVELS)


def test_the_plugin_has_one_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tfbench.plugin": "tfbench.plugin"}
    assert project["scripts"] == {"tfbench": "tfbench.cli:main"}
    assert '"tfbench.plugin"' in (ROOT / "conftest.py").read_text()


@pytest.mark.slow
def test_collecting_the_tests_imports_no_tensorflow():
    program = "import pytest; pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider'])"
    assert not loaded(program) & TENSORFLOW
