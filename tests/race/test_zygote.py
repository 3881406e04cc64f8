"""The name of a case in a measuring process."""

import pytest

from tfbench.model import Case
from tfbench.race.zygote import name_among

THERE = ("t.py::test_a[relu]", "t.py::test_b", "t.py::test_a[softmax]")


@pytest.mark.parametrize(
    ("name", "place", "found"),
    [
        ("t.py::test_a[relu]", (1, 2), "t.py::test_a[relu]"),
        ("t.py::test_a[op1]", (1, 2), "t.py::test_a[softmax]"),
        ("t.py::test_a[op1]", (1, 3), ""),
        ("t.py::test_c", (0, 1), ""),
    ],
)
def test_a_case_with_another_id_is_known_by_its_place(name, place, found):
    assert name_among(THERE, Case(name, "", name, place=place)) == found
