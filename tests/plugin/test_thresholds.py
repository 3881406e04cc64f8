"""Marks of single cases: thresholds, processors, statistic and gate."""

from types import SimpleNamespace

import pytest

from tfbench.model import Case
from tfbench.plugin.cases import _marked
from tfbench.policy import Policy
from tfbench.race.lanes import Processors

NAME = "benchmarks/test_io.py::test_read[size=3,kind: x]"


def marked(*marks):
    """Return the fields of a case whose item has these marks, the closest one first."""
    made = [pytest.mark.tfbench(**mark).mark for mark in marks]
    return _marked(SimpleNamespace(nodeid=NAME, iter_markers=lambda name: made), Policy())


def test_a_mark_sets_thresholds_and_the_closest_one_counts():
    assert dict(marked({"tolerance": 0.2, "cpus": "all"})["thresholds"]) == {"minimum_effect": 0.01, "tolerance": 0.2}
    both = marked({"tolerance": 0.2}, {"tolerance": 0.3, "minimum_effect": 0.1})
    assert dict(both["thresholds"]) == {"minimum_effect": 0.1, "tolerance": 0.2}
    assert marked()["thresholds"] == ()


@pytest.mark.parametrize(("mark", "processors"), [({}, 1), ({"cpus": 1}, 1), ({"cpus": 2}, 2), ({"cpus": "all"}, 0)])
def test_a_mark_says_how_many_processors_a_case_may_use(mark, processors):
    assert marked(mark)["cpus"] == processors
    assert Processors((3,), (0, 1, 2, 3)).of(Case("n", "w", "g", cpus=processors)) == {
        1: (3,), 2: (2, 3), 0: (0, 1, 2, 3),
    }[processors]  # fmt: skip


def test_a_mark_that_switches_the_gate_off_says_why():
    assert marked({"gate": False, "reason": "a\nprototype"})["ungated"] == "a prototype"
    assert marked({"gate": True}, {"gate": False, "reason": "a class"})["ungated"] == ""
    assert marked({"gate": True})["ungated"] == marked({"cpus": 2})["ungated"] == ""


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ({"cpus": "2"}, "cpus='2': write a number of processors"),
        ({"cpus": 0}, "cpus=0"),
        ({"cpus": True}, "cpus=True"),
        ({"cpus": None}, "cpus=None"),
        ({"cpu": 2}, "takes only cpus, gate, minimum_effect, reason, statistic, tolerance"),
        ({"gate": False}, "write .*gate=False, reason="),
        ({"gate": False, "reason": " "}, "write .*gate=False, reason="),
        ({"gate": 0, "reason": "x"}, "write .*gate=False, reason="),
        ({"gate": True, "reason": "x"}, "write .*gate=False, reason="),
        ({"statistic": "mode"}, "statistic='mode': use one of"),
        ({"minimum_effect": 0.3, "tolerance": 0.2}, "minimum_effect < tolerance < 1 must hold"),
        ({"tolerance": "much"}, "tolerance=much: write a fraction"),
        ({"tolerance": 2}, "tolerance=2: write a fraction"),
        ({"tolerance": float("nan")}, "tolerance=nan: write a fraction"),
    ],
)
def test_a_mark_with_an_invalid_argument_is_refused_in_a_line(mark, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        marked(mark)
    assert "\n" not in str(caught.value)
