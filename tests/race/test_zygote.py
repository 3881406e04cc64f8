"""The name of a case in a measuring process."""

from types import SimpleNamespace

import pytest

from tfbench.model import Case
from tfbench.race.zygote import Zygote

THERE = SimpleNamespace(cases=("t.py::test_a[relu]", "t.py::test_b", "t.py::test_a[softmax]"))


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
    assert Zygote.name_of(THERE, Case(name, "", name, place=place)) == found
