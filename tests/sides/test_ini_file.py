"""The configuration file of a source tree below another one."""

import os

import pytest

from tfbench.sides.yardstick import ini_file


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("pytest.ini", "", True),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", True),
        ("tox.ini", "[pytest]\n", True),
        ("setup.cfg", "[tool:pytest]\n", True),
        ("pyproject.toml", "[project]\nname = 'x'\n", False),
        ("setup.cfg", "[metadata]\n", False),
    ],
)
def test_each_kind_of_file_with_a_section_of_pytest_is_found_up_to_the_top_of_the_tree(tmp_path, name, text, counts):
    folder = tmp_path / "sub/benchmarks"
    folder.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert ini_file(folder, tmp_path) == (str(tmp_path / name) if counts else os.devnull)
    assert ini_file(folder, tmp_path / "sub") == os.devnull
