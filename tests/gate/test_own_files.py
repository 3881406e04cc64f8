"""Changes of the gate itself are recognised by their paths."""

import pytest

from tfbench.gate.own_files import own_files

OWN = [
    ".github/workflows/gate.yml", ".github/tfbench-accepted.toml", "action.yml", "conftest.py", "a/b/conftest.py",
    "pytest.ini", "pyproject.toml", "Makefile", "tfbench/ruling.py", "ci/tfbench-accepted.toml", "x/evil.pth",
]  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_the_gate_is_flagged(name):
    assert own_files([name, "README.md"]) == [name]


@pytest.mark.parametrize(
    "name", ["README.md", "model/layers.py", "benchmarks/test_x.py", "docs/.github.md", "", "action.yml.md"]
)
def test_another_file_is_not(name):
    assert own_files([name]) == []
