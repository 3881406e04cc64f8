"""Which cases ``--changed-only`` spares, from what their probing launches executed."""

import os
from dataclasses import replace

import pytest

from tfbench.metrics.parity import ProbeOutput
from tfbench.model import TIME, Case, Claim, ReasonCode
from tfbench.race.launch import Entrant
from tfbench.session.resume import ChangedOnly, ExecutedCode, drawn
from tfbench.sides.spec import Side

CASE = Case("b/test_x.py::test_x", "test_x", "b/test_x.py::test_x")
CLAIM = Claim("faster", TIME, (("compiler", "none"),))
NOW = ExecutedCode("code", frozenset({"b/test_x.py", "models.py"}), "installed", "graphs")


@pytest.fixture
def spared(tmp_path):
    """Returns why a case is spared, whose sides have these files and executed this code."""
    here, there = (tmp_path / name for name in ("here", "there"))
    for tree in (here, there):
        for file in ("b/test_x.py", "models.py", "other.py"):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(file)
    contender = Side("contender", "python", here)
    other = Side("baseline", "python", there, "git:HEAD", tree_redirect=(str(here), str(there)))

    def spares(
        before=NOW, now=NOW, case=CASE, differences=(), sample=frozenset(), compared=True, slowdown=0.0, **baseline
    ):
        executed = lambda *entrants: [now if one.side.name == "contender" else before for one in entrants]  # noqa: E731
        rule = ChangedOnly(sample, lambda: compared, executed)
        mine, theirs = replace(contender, slowdown=slowdown), replace(other, **baseline)
        return rule.spares(Entrant(case, theirs), Entrant(case, mine), differences)

    return spares


def test_a_case_is_spared_whose_code_is_the_same_in_another_source_tree(spared):
    reason = spared()
    assert reason.code == ReasonCode.SAME_CODE
    assert "files of the project that it reads (2)" in reason.message


@pytest.mark.parametrize(
    "same",
    [
        {"spec": "self", "tree_redirect": None},
        {"before": replace(NOW, read=NOW.read | {"lock"})},
    ],
    ids=["one source tree", "a file that both sides have removed again"],
)
def test_a_case_is_spared_that_executes_the_same(spared, same):
    assert spared(**same) is not None


@pytest.mark.parametrize("tree", ["here", "there"])
@pytest.mark.parametrize("text", ["changed", None])
def test_a_case_races_if_a_file_differs_that_either_side_has_read(spared, tmp_path, tree, text):
    file = tmp_path / tree / "models.py"
    file.write_text(text) if text else file.unlink()
    assert spared() is None
    assert spared(before=replace(NOW, read=frozenset({"b/test_x.py"}))) is None
    assert spared(now=replace(NOW, read=frozenset({"b/test_x.py"}))) is None


def test_a_case_races_if_a_file_differs_in_its_content_alone_or_cannot_be_read(spared, tmp_path):
    file = tmp_path / "here/models.py"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text("MODELS.py")
    for changed in (file, tmp_path / "there/models.py"):
        os.utime(changed, ns=times)
    assert spared() is None
    file.unlink()
    file.symlink_to(file)
    assert spared() is None


def test_files_that_neither_side_has_read_do_not_count(spared, tmp_path):
    (tmp_path / "here" / "other.py").write_text("changed")
    assert spared() is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"now": replace(NOW, source="other")},
        {"now": replace(NOW, graphs="other")},
        {"now": replace(NOW, installed="other")},
        {"differences": ["keras 3.9 there, 3.10 here"]},
        {"slowdown": 0.1},
        {"env": {"X": "1"}},
        {"case": replace(CASE, claims=(CLAIM,))},
        {"sample": frozenset([CASE.name])},
        {"compared": False},
    ],
)
def test_a_case_races_if_anything_differs_or_its_times_are_needed(spared, changed):
    assert spared(**changed) is None


@pytest.mark.parametrize("side", ["before", "now"])
@pytest.mark.parametrize(
    "unknown",
    [
        None,
        ExecutedCode(),
        replace(NOW, read=None),
        replace(NOW, read=frozenset()),
        replace(NOW, source=""),
        replace(NOW, installed=""),
    ],
)
def test_a_case_races_if_its_code_is_unknown_on_a_side(spared, side, unknown):
    assert spared(before=unknown, now=unknown) is None
    assert spared(**{side: unknown}) is None


def test_at_least_one_case_is_drawn_and_the_seed_decides_which():
    cases = [replace(CASE, name=f"b/test_x.py::test_{number}") for number in range(40)]
    assert [len(drawn(cases[:count], 1)) for count in (0, 1, 3, 10, 11, 40)] == [0, 1, 1, 1, 2, 4]
    assert drawn(cases, 1) == drawn(cases, 1) != drawn(cases, 2)


def test_graphs_and_modules_count_without_the_places_of_their_source():
    def of(text, graph="MatMul", **facts):
        return ExecutedCode.of_probe(ProbeOutput({"graph": {"executed": [[graph]]}}, {}, facts, (text,)))

    add = 'ROOT add.1 = f32[2] add(a, b), metadata={{op_name="add" source_file="{}"}}'
    first = of(add.format("/trees/a/x.py"), source="s", read=["x"], installed="i")
    assert first == of(add.format("/work/x.py"), source="s", read=["x"], installed="i")
    assert (first.source, first.read, first.installed) == ("s", {"x"}, "i")
    assert first.graphs != of(add.format("x").replace("f32[2]", "f32[4]")).graphs
    assert first.graphs != of(add.format("x"), "Add").graphs
