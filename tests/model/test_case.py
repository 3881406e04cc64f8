"""The name of a case."""

import pytest

from tfbench.model import Case, short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("b/test_x.py::TestClass::test_x[a::b-c[0]]", "test_x[a::b-c[0]]"),
        ("b/test_x.py::test_x", "test_x"),
        ("test_x", "test_x"),
    ],
)
def test_the_short_name_keeps_parameters_with_colons(name, short):
    assert short_name(name) == Case(name, "w", "g").short_name == short
