"""What a zygote inherits from its ancestor: changes that make it useless are noticed."""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.fakes.alone import run_alone
from tfbench.worker.zygote import Inheritance


@pytest.fixture
def inherited(monkeypatch, tmp_path):
    """The state of this process, with a module that other folders may provide as well."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "borrowed.py").write_text("")
    monkeypatch.syspath_prepend(str(here))
    for of_the_system in ("sitecustomize", "usercustomize"):  # Debian's Python has imported one
        monkeypatch.delitem(sys.modules, of_the_system, raising=False)
    __import__("borrowed")
    yield Inheritance.of_this_process(1.0)
    del sys.modules["borrowed"]


NO_BACKEND = {"KERAS_BACKEND": None}
"""Keras is loaded, and has chosen TensorFlow."""
SET_LATE = "{} is set while the benchmarks are imported; set it before pytest starts"


@pytest.mark.parametrize(
    ("before", "later", "conflict"),
    [
        ({}, {}, ""),
        ({}, {"MY_DATA": "there"}, ""),
        *(
            ({}, {name: "another"}, SET_LATE.format(name))
            for name in ("TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "KERAS_BACKEND", "OMP_NUM_THREADS")
        ),
        ({"XLA_FLAGS": "--xla"}, {"XLA_FLAGS": None}, SET_LATE.format("XLA_FLAGS")),
        (NO_BACKEND, {"KERAS_BACKEND": "tensorflow"}, ""),
        (NO_BACKEND, {"KERAS_BACKEND": "jax"}, SET_LATE.format("KERAS_BACKEND")),
    ],
)
def test_a_variable_that_libraries_read_must_not_change(monkeypatch, before, later, conflict):
    def set_variables(given):
        for name, value in given.items():
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)

    if before == NO_BACKEND:
        monkeypatch.setitem(sys.modules, "keras.backend", SimpleNamespace(backend=lambda: "tensorflow"))
    set_variables(before)
    inherited = Inheritance.of_this_process(1.0)
    set_variables(later)
    assert inherited.conflict() == conflict


def test_a_relative_path_of_a_library_is_another_one_in_another_folder(monkeypatch, tmp_path):
    (tmp_path / "settings").mkdir()
    monkeypatch.setenv("KERAS_HOME", "settings")
    inherited = Inheritance.of_this_process(1.0)
    monkeypatch.chdir(tmp_path)
    assert inherited.conflict() == "KERAS_HOME=settings is a relative path, which each side has in its own tree"
    assert Inheritance.of_this_process(1.0).conflict() == ""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr("os.getcwd", lambda: "/")
    assert Inheritance.of_this_process(1.0).conflict() == ""


@pytest.mark.parametrize(
    ("file", "first", "wins"),
    [("borrowed/__init__.py", True, True), ("borrowed.py", False, False), ("mine.py", True, False), ("", True, False)],
)
def test_a_new_folder_must_not_provide_what_was_imported(inherited, monkeypatch, tmp_path, file, first, wins):
    folder = tmp_path / "vendor"  # missing in the last case
    if file:
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path] if first else [*sys.path, str(folder)])
    text = f"the benchmarks change the path, and borrowed would come from {folder / file}"
    assert inherited.conflict() == (text if wins else "")


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_module_that_python_imports_when_it_starts_is_named(inherited, monkeypatch, tmp_path, name):
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert inherited.conflict() == ""  # pytest has added the folder later
    monkeypatch.setenv("PYTHONPATH", f"/own:{tmp_path}")
    assert inherited.conflict() == f"the benchmarks change the path, and {name} would come from {tmp_path}/{name}.py"


def test_python_path_of_a_side_takes_the_place_of_the_ancestors(tmp_path):
    (tmp_path / "a").mkdir()
    program = (
        "import json, os, sys\nfrom tfbench.worker.zygote import _set_path\nbefore = list(sys.path)\n"
        f"_set_path(os.pathsep.join(['/new', {str(tmp_path / 'a')!r}]))\n"
        "print(json.dumps([before, sys.path, os.environ['PYTHONPATH']]))"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PATH": "/bin"}
    before, after, variable = json.loads(run_alone(program, env=env))
    assert before[:2] == ["", str(tmp_path)]
    assert after[:3] == ["", "/new", str(tmp_path / "a")]
    assert str(tmp_path) not in after
    assert variable == f"/new:{tmp_path}/a"


def test_the_module_of_a_side_that_python_imports_when_it_starts_is_imported_once(tmp_path):
    for side in "ab":
        (tmp_path / side).mkdir()
        (tmp_path / side / "sitecustomize.py").write_text(f"print({side!r})")
    program = (
        "from tfbench.worker.zygote import _customize, _set_path\n"
        f"_customize()\n_set_path({str(tmp_path / 'b')!r})\n_customize()\n_customize()"
    )
    env = {"PYTHONPATH": f"{tmp_path / 'a'}:{':'.join(sys.path)}", "PATH": "/bin"}
    assert run_alone(program, env=env).split() == ["a", "b"]


class Hiding:
    """Finds nothing, and hides TensorFlow."""

    @staticmethod
    def find_spec(name, path, target=None):
        if name == "tensorflow":
            raise ModuleNotFoundError(name)


class Idle:
    """Finds nothing."""

    @staticmethod
    def find_spec(name, path, target=None):
        return None


@pytest.mark.parametrize(("finder", "found"), [(Hiding(), True), (Idle(), False)])
def test_a_new_finder_is_asked_about_tensorflow(inherited, monkeypatch, finder, found):
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert ("Hiding" in inherited.conflict()) is found
