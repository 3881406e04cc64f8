"""What a zygote inherits from its ancestor: changes that make it useless are noticed."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tfbench.worker.zygote import Inheritance


@pytest.fixture
def inherited(monkeypatch, tmp_path):
    """The state of this process, with a module that other folders may provide as well."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "borrowed.py").write_text("")
    monkeypatch.syspath_prepend(str(here))
    __import__("borrowed")
    yield Inheritance.of_this_process()
    del sys.modules["borrowed"]


def test_the_same_state_is_no_conflict(inherited):
    assert inherited.conflict() == ""


@pytest.mark.parametrize("name", ["TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "KERAS_BACKEND", "OMP_NUM_THREADS"])
def test_a_variable_that_libraries_read_is_named(inherited, monkeypatch, name):
    monkeypatch.setenv(name, "another")
    assert inherited.conflict() == f"{name} is set while the benchmarks are imported; set it before pytest starts"


def test_the_backend_that_keras_has_chosen_may_be_named_late(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setitem(sys.modules, "keras.backend", SimpleNamespace(backend=lambda: "tensorflow"))
    inherited = Inheritance.of_this_process()
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert inherited.conflict() == ""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert "KERAS_BACKEND is set while the benchmarks are imported" in inherited.conflict()


def test_a_variable_that_was_removed_is_named(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla")
    inherited = Inheritance.of_this_process()
    monkeypatch.delenv("XLA_FLAGS")
    assert "XLA_FLAGS" in inherited.conflict()


def test_any_other_variable_is_free(inherited, monkeypatch):
    monkeypatch.setenv("MY_DATA", "there")
    assert inherited.conflict() == ""


def test_a_relative_path_of_a_library_is_another_one_in_another_folder(monkeypatch, tmp_path):
    (tmp_path / "settings").mkdir()
    monkeypatch.setenv("KERAS_HOME", "settings")
    inherited = Inheritance.of_this_process()
    monkeypatch.chdir(tmp_path)
    assert inherited.conflict() == "KERAS_HOME=settings is a relative path, which each side has in its own tree"
    assert Inheritance.of_this_process().conflict() == ""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr("os.getcwd", lambda: "/")
    assert Inheritance.of_this_process().conflict() == ""


def test_a_new_folder_that_would_win_is_named(inherited, monkeypatch, tmp_path):
    other = tmp_path / "vendor"
    (other / "borrowed").mkdir(parents=True)
    (other / "borrowed/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(other))
    assert (
        inherited.conflict()
        == f"the benchmarks change the path, and borrowed would come from {other}/borrowed/__init__.py"
    )


def test_a_new_folder_behind_the_others_wins_nothing(inherited, monkeypatch, tmp_path):
    (tmp_path / "borrowed.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert inherited.conflict() == ""


def test_a_new_folder_without_such_a_module_is_free(inherited, monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text("")
    for folder in (tmp_path, tmp_path / "missing"):
        monkeypatch.syspath_prepend(str(folder))
    assert inherited.conflict() == ""


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
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    before, after, variable = json.loads(done.stdout)
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
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "b"]


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
