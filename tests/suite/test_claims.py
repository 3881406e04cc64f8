"""Contracts of a benchmark about itself, as its decorators declare them."""

import pytest

from tfbench.errors import DeclarationError
from tfbench.suite.claims import at_least, at_most, claims_of


class Item:
    """An item with the marks of these decorators, the outermost first."""

    nodeid = "f.py::test_w"

    def __init__(self, *decorators):
        self.marks = [decorator.mark for decorator in decorators]

    def iter_markers(self, name):
        return [mark for mark in self.marks if mark.name == name]


def test_limits_in_seconds_are_about_the_case_alone():
    claims = claims_of(Item(at_most(seconds=0.02), at_least(seconds=0.001)), ())
    assert [(one.name, one.bound, one.levels) for one in claims] == [("at_least", 0.001, ()), ("at_most", 0.02, ())]


@pytest.mark.parametrize("seconds", [0, -1, True, "1", float("nan")])
def test_a_limit_is_a_positive_number(seconds):
    with pytest.raises(DeclarationError, match=r"@at_most\(\): seconds=.* must be a positive number"):
        at_most(seconds=seconds)
