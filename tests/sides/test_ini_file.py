"""The configuration file of a source tree below another one."""

import os

import pytest

from tfbench.sides.yardstick import ini_file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", ""),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("tox.ini", "[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
    ],
)
def test_each_kind_of_file_is_found_up_to_the_top_of_the_tree(tmp_path, name, text):
    folder = tmp_path / "sub/benchmarks"
    folder.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert ini_file(folder, tmp_path) == str(tmp_path / name)
    assert ini_file(folder, tmp_path / "sub") == os.devnull


def test_a_file_without_a_section_of_pytest_does_not_count(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "setup.cfg").write_text("[metadata]\n")
    assert ini_file(tmp_path, tmp_path) == os.devnull
