"""The name of a case in a measuring process, and a zygote that cannot be started."""

from types import SimpleNamespace

import pytest

from tfbench.model import Case
from tfbench.race import zygote
from tfbench.race.zygote import name_among
from tfbench.sides.spec import Side

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


def test_a_source_tree_without_the_file_of_a_case_is_told_as_such(tmp_path):
    side = Side("abc123", "python", tmp_path, tree_redirect=("/here", str(tmp_path)))
    collected = SimpleNamespace(offenders={}, broken={}, cases={})
    made = SimpleNamespace(side=side, collected=collected)
    text = "the side abc123 has no file b/test_new.py; race a side whose source tree has it"
    assert zygote.Zygote.skip_reason(made, Case("b/test_new.py::test_x", "test_x", "g")) == text
