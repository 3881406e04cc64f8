"""Cases selected by an expression, as pytest does."""

import pytest

from tfbench.doctor.calibration import parse_selection
from tfbench.errors import UsageError

NAMES = ["test_raced.py::test_step[large_matmul]", "test_raced.py::test_step[matmul]", "test_raced.py::test_step[Sort]"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", NAMES),
        ("matmul", NAMES[:2]),
        ("matmul and not large", NAMES[1:2]),
        ("sort or [large_matmul]", [NAMES[0], NAMES[2]]),
    ],
)
def test_names_are_selected(text, found):
    assert list(filter(parse_selection(text), NAMES)) == found


@pytest.mark.parametrize("text", ["not", "a b", "(a"])
def test_what_is_no_expression_is_an_error(text):
    with pytest.raises(UsageError, match=r"^-k '.*': .*; join names by and, or, not and parentheses$"):
        parse_selection(text)
