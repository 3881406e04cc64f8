"""Thresholds of single cases, from marks and from the ini file."""

from types import SimpleNamespace

import pytest

from tfbench.errors import DeclarationError, UsageError
from tfbench.model import Case
from tfbench.plugin.cases import _marked_cpus, _ungated, check_used, parse_patterns, thresholds_of
from tfbench.policy import Policy
from tfbench.race.lanes import Processors

NAME = "benchmarks/test_io.py::test_read[size=3,kind: x]"


def item(*marks):
    """An item with these marks, the closest one first."""
    return SimpleNamespace(nodeid=NAME, iter_markers=lambda name: [SimpleNamespace(kwargs=mark) for mark in marks])


def own(lines, *marks):
    return dict(thresholds_of(item(*marks), parse_patterns(lines), Policy()))


@pytest.mark.parametrize(
    "pattern",
    ["*", "test_read", "test_re?d", "test_read[size=3,kind: x]", "benchmarks/test_io.py::*", "*test_io*", "*kind: x]"],
)
def test_a_pattern_names_cases(pattern):
    assert own([f"{pattern}: minimum_effect=0.05, tolerance=0.2"]) == {"minimum_effect": 0.05, "tolerance": 0.2}


@pytest.mark.parametrize("pattern", ["test_rea", "test_[rs]ead", "read"])
def test_a_pattern_is_the_whole_name_and_brackets_stand_for_themselves(pattern):
    assert own([f"{pattern}: tolerance=0.2"]) == {}


def test_a_mark_sets_thresholds_and_the_closest_one_counts():
    assert own([], {"tolerance": 0.2, "cpus": "all"}) == {"minimum_effect": 0.01, "tolerance": 0.2}
    assert own([], {"tolerance": 0.2}, {"tolerance": 0.3, "minimum_effect": 0.1})["tolerance"] == 0.2
    assert own([]) == {}


@pytest.mark.parametrize(("mark", "processors"), [({}, 1), ({"cpus": 1}, 1), ({"cpus": 2}, 2), ({"cpus": "all"}, 0)])
def test_a_mark_says_how_many_processors_a_case_may_use(mark, processors):
    item = SimpleNamespace(nodeid="t.py::test_read", get_closest_marker=lambda name: pytest.mark.tfbench(**mark).mark)
    assert _marked_cpus(item) == processors
    assert Processors((3,), (0, 1, 2, 3)).of(Case("n", "w", "g", cpus=processors)) == {
        1: (3,), 2: (2, 3), 0: (0, 1, 2, 3),
    }[processors]  # fmt: skip


@pytest.mark.parametrize("mark", [{"cpus": "2"}, {"cpus": 0}, {"cpus": True}, {"cpus": None}, {"cpu": 2}])
def test_a_mark_with_another_number_of_processors_is_refused_in_a_line(mark):
    item = SimpleNamespace(nodeid="t.py::test_read", get_closest_marker=lambda name: pytest.mark.tfbench(**mark).mark)
    with pytest.raises(DeclarationError, match=r"t\.py::test_read: @pytest\.mark\.tfbench.*cpus"):
        _marked_cpus(item)


@pytest.mark.parametrize(
    "mark", [{"gate": False}, {"gate": False, "reason": " "}, {"gate": 0, "reason": "x"}, {"gate": True, "reason": "x"}]
)
def test_a_mark_that_switches_the_gate_off_says_why(mark):
    def item(given):
        return SimpleNamespace(nodeid="t.py::test_read", iter_markers=lambda name: [pytest.mark.tfbench(**given).mark])

    with pytest.raises(DeclarationError, match=r"t\.py::test_read: write .*gate=False, reason="):
        _ungated(item(mark))
    assert _ungated(item({"gate": False, "reason": "a\nprototype"})) == "a prototype"
    assert _ungated(item({"gate": True})) == _ungated(item({"cpus": 2})) == ""


def test_places_that_agree_or_complete_each_other_are_fine():
    assert own(["*: tolerance=0.2", "test_*: tolerance=0.20, minimum_effect=0.05"], {"minimum_effect": 0.05}) == {
        "minimum_effect": 0.05,
        "tolerance": 0.2,
    }


@pytest.mark.parametrize(
    ("lines", "mark", "reason"),
    [
        (["*: tolerance=0.2", "test_*: tolerance=0.3"], {}, r"tolerance=0.2 of '\*' in .* contradicts tolerance=0.3 of 'test_\*'"),
        (["*: tolerance=0.2"], {"tolerance": 0.1}, "tolerance=0.1 of its mark contradicts"),
        (["*: tolerance=0.2", "test_*: minimum_effect=0.3"], {}, "minimum_effect < tolerance < 1 must hold"),
        ([], {"tolerance": "much"}, "tolerance=much: write a fraction"),
    ],
)  # fmt: skip
def test_contradicting_thresholds_are_refused_in_a_line(lines, mark, reason):
    with pytest.raises(DeclarationError, match=reason) as caught:
        own(lines, mark)
    assert str(caught.value).startswith(NAME)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("test_read", "write a pattern and its values"),
        ("test_read: 0.05", "write a pattern and its values"),
        ("test_read: effect=0.05", "no threshold 'effect'; there are minimum_effect and tolerance"),
        ("test_read: tolerance=5%", "tolerance=5%: write a fraction"),
        ("test_read: tolerance=2", "tolerance=2: write a fraction"),
        ("test_read: tolerance=nan", "tolerance=nan: write a fraction"),
    ],
)
def test_a_malformed_line_is_refused(line, reason):
    with pytest.raises(UsageError, match=reason):
        parse_patterns([line])


def test_a_pattern_that_names_no_case_is_refused():
    patterns = parse_patterns(["test_read: tolerance=0.2", "test_write*: tolerance=0.2"])
    with pytest.raises(UsageError, match="no benchmark matches 'test_write"):
        check_used(patterns, [NAME])
    check_used(patterns[:1], [NAME])
