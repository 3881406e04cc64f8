"""Which cases ``--changed-only`` spares, from what their probing launches executed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import TIME, Case, Claim, ReasonCode
from tfbench.session.changed_only import ChangedOnly, ExecutedCode, drawn
from tfbench.sides.side import Side

CASE = Case("b/test_x.py::test_x", "test_x", "b/test_x.py::test_x")
CLAIM = Claim("faster", TIME, (("compiler", "none"),))
HERE = Side("contender", "python", Path("/work"))
THERE = Side("baseline", "python", Path("/trees/a"), "git:HEAD", tree_redirect=("/work", "/trees/a"))
FILES = {"/trees/a/b/test_x.py": "1", "/trees/a/models.py": "2"}
BEFORE = ExecutedCode("code", FILES, "graphs")
NOW = ExecutedCode("code", {"/work/b/test_x.py": "1", "/work/models.py": "2"}, "graphs")


def spared(before=BEFORE, now=NOW, case=CASE, there=CASE, here=HERE, rival=THERE, differences=(), sample=frozenset()):
    rule = ChangedOnly(
        here, sample, lambda *entrants: [now if one.side.name == "contender" else before for one in entrants]
    )
    return rule.spares(case, rival, there, differences)


def test_a_case_is_spared_whose_code_is_the_same_in_another_source_tree():
    reason = spared()
    assert reason.code == ReasonCode.SAME_CODE
    assert "imported files of the project (2)" in reason.message


def test_sides_of_one_source_tree_have_the_same_files():
    assert spared(before=NOW, rival=replace(HERE, name="baseline", spec="self")) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"now": replace(NOW, source="other")},
        {"now": replace(NOW, graphs="other")},
        {"now": replace(NOW, files={**NOW.files, "/work/models.py": "3"})},
        {"now": replace(NOW, files={**NOW.files, "/work/new.py": "3"})},
        {"before": replace(BEFORE, files={**FILES, "/trees/a/old.py": "3"})},
        {"differences": ["keras 3.9 there, 3.10 here"]},
        {"here": replace(HERE, slowdown=0.1)},
        {"rival": replace(THERE, env={"X": "1"})},
        {"there": replace(CASE, name="b/test_x.py::test_y")},
        {"case": replace(CASE, claims=(CLAIM,))},
        {"sample": frozenset([CASE.name])},
    ],
)
def test_a_case_races_if_anything_differs_or_its_times_are_needed(changed):
    assert spared(**changed) is None


@pytest.mark.parametrize("side", ["before", "now"])
@pytest.mark.parametrize("unknown", [None, ExecutedCode(), replace(NOW, files={}), replace(NOW, source="")])
def test_a_case_races_if_its_code_is_unknown_on_a_side(side, unknown):
    assert spared(**{side: unknown}) is None
    assert spared(before=unknown, now=unknown) is None


def test_at_least_one_case_is_drawn_and_the_seed_decides_which():
    cases = [replace(CASE, name=f"b/test_x.py::test_{number}") for number in range(40)]
    assert [len(drawn(cases[:count], 0.1, 1)) for count in (0, 1, 3, 10, 11, 40)] == [0, 1, 1, 1, 2, 4]
    assert drawn(cases, 0.1, 1) == drawn(cases, 0.1, 1) != drawn(cases, 0.1, 2)


def test_graphs_and_modules_count_without_the_places_of_their_source():
    def of(text, graph="MatMul", **facts):
        return ExecutedCode.of_probe(ProbeOutput({"graph": {"executed": [[graph]]}}, {}, facts, {"m": text}))

    add = 'ROOT add.1 = f32[2] add(a, b), metadata={{op_name="add" source_file="{}"}}'
    first = of(add.format("/trees/a/x.py"), source="s", files={"x": "1"})
    assert first == of(add.format("/work/x.py"), source="s", files={"x": "1"})
    assert (first.source, first.files) == ("s", {"x": "1"})
    assert first.graphs != of(add.format("x").replace("f32[2]", "f32[4]")).graphs
    assert first.graphs != of(add.format("x"), "Add").graphs
