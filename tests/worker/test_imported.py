"""Files that a benchmark imports, by the statements in them."""

import sys

import pytest

from tfbench.worker.imported import imported_files


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write files, import modules of them, and return the names of the files that a module imports."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").endswith("conftest.py"):  # of these tests or left by another one
            monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)

    def imported(files, module="bench_x", *others):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        for name in (module, *others):
            __import__(name)
        found = imported_files(module)
        return {str(path).removeprefix(f"{tmp_path}/") for path in found if str(path).startswith(str(tmp_path))}

    yield imported
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_files_of_other_benchmarks_do_not_count(project):
    files = {"bench_x.py": "import models_x\n", "bench_y.py": "import models_y\n", "models_x.py": "", "models_y.py": ""}
    assert project(files, "bench_x", "bench_y") == {"bench_x.py", "models_x.py"}


@pytest.mark.parametrize(
    "statement", ["import pack.sub", "from pack import sub", "from pack.sub import X", "def f():\n    import pack.sub"]
)
def test_every_kind_of_statement_counts_with_the_packages(project, statement):
    files = {"bench_x.py": f"{statement}\n", "pack/__init__.py": "", "pack/sub.py": "X = 1\n"}
    assert project(files, "bench_x", "pack.sub") == {"bench_x.py", "pack/__init__.py", "pack/sub.py"}


def test_imports_of_imports_and_relative_ones_count(project):
    files = {
        "bench_x.py": "from pack.a import A\n", "pack/__init__.py": "", "pack/a.py": "from . import b\nA = b.B\n",
        "pack/b.py": "from .c import C as B\n", "pack/c.py": "C = 1\n", "pack/d.py": "",
    }  # fmt: skip
    found = project(files, "bench_x", "pack.d")
    assert found == {"bench_x.py", "pack/__init__.py", "pack/a.py", "pack/b.py", "pack/c.py"}


@pytest.mark.parametrize(
    "text",
    ["import importlib\n", "X = __import__('models_y')\n", "from importlib import import_module\n", "eval('1')\n"],
)
def test_a_file_that_may_import_others_without_a_statement_makes_all_files_count(project, text):
    assert project({"bench_x.py": text, "models_y.py": ""}, "bench_x", "models_y") == {"bench_x.py", "models_y.py"}


def test_the_environment_and_tfbench_do_not_count(project):
    found = project({"bench_x.py": "import numpy, pytest, tfbench\n"}, "bench_x")
    assert found == {"bench_x.py"}
    assert not any("tfbench/" in path and "tests" not in path for path in imported_files("bench_x"))


def test_a_file_that_cannot_be_read_is_an_error(project, tmp_path):
    project({"bench_x.py": "import models_y\n", "models_y.py": ""})
    (tmp_path / "models_y.py").write_text("(")
    with pytest.raises(SyntaxError):
        imported_files("bench_x")
