"""The names of cases in narrow tables."""

from tfbench.report.screen import break_name

NAME = "benchmarks/test_linear.py::test_matmul[compiler=none,precision=float32]"


def test_a_name_breaks_after_its_file_and_between_its_levels():
    assert break_name(NAME, 100) == NAME
    assert break_name(NAME, 40).split("\n") == [
        "benchmarks/test_linear.py::test_matmul[",
        "compiler=none,precision=float32]",
    ]
    assert break_name(NAME, 1).replace("\n", "") == NAME
