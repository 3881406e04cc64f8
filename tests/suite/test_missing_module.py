"""An import that fails is reported with its fix."""

import pytest

from tfbench.suite.tensorflow_stub import fix_of


@pytest.fixture
def root(tmp_path):
    (tmp_path / "model.py").touch()
    (tmp_path / "src/package").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("model", "folder of model.py: add `pythonpath = .` to pytest.ini"),
        ("package", "folder of src/package/: add `pythonpath = src` to pytest.ini"),
        ("tensorflow", "pip install tensorflow"),
    ],
)
def test_a_missing_module_that_is_known_has_a_fix(root, name, fix):
    assert fix in fix_of(f"E   ModuleNotFoundError: No module named '{name}'", root)


def test_a_folder_that_hides_a_package_is_named(root):
    error = "ImportError: cannot import name 'ops' from 'keras.src' (unknown location)"
    assert fix_of(error, root) == ""
    (root / "keras").mkdir()
    assert "the folder keras/ is imported in place of the installed package" in fix_of(error, root)
    (root / "keras/__init__.py").touch()
    assert fix_of(error, root) == ""


@pytest.mark.parametrize(
    "error", ["", "No module named 'elsewhere'", "No module named 'model.part'", "KeyError: 'model'"]
)
def test_any_other_error_has_none(root, error):
    assert fix_of(error, root) == ""
