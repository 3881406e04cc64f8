"""Cases selected by an expression, as pytest does."""

import pytest

from tfbench.doctor.calibration import Selection
from tfbench.errors import UsageError

NAMES = ["test_raced.py::test_step[large_matmul]", "test_raced.py::test_step[matmul]", "test_raced.py::test_step[Sort]"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", NAMES),
        ("matmul", NAMES[:2]),
        ("not matmul", NAMES[2:]),
        ("matmul and not large", NAMES[1:2]),
        ("sort or [large_matmul]", [NAMES[0], NAMES[2]]),
    ],
)
def test_names_are_selected(text, found):
    assert Selection(text).of(NAMES) == found


def test_an_expression_that_selects_nothing_is_an_error():
    with pytest.raises(UsageError, match="no benchmark matches -k 'conv'"):
        Selection("conv").of(NAMES)


@pytest.mark.parametrize("text", ["not", "a b", "(a"])
def test_what_is_no_expression_is_an_error(text):
    with pytest.raises(UsageError, match=r"^-k '.*': .*; join names by and, or, not and parentheses$"):
        Selection(text)
