"""Runs are read once and oldest first, whatever is damaged around them; unreadable parts are named."""

import json
import math
import re
from dataclasses import replace

import pytest

from tests.storage.test_baselines import CONTEXT
from tfbench.model import AcceptedChange, Ratio
from tfbench.model.formats import plain
from tfbench.storage.baselines import Layout
from tfbench.storage.history import Anchor, Content, History, SessionRecord, read_file
from tfbench.untrusted import printable

CASE = "b/x.py::x"
RATIO = Ratio(1.02, 1.01, 1.03, 0.99)
RECORD = SessionRecord(CONTEXT, {CASE: (1e-5, 1.1e-5)})
ANCHOR = Anchor("git:v1.0", "0123456789abcdef")
FULL = replace(RECORD, ratios={CASE: RATIO}, anchor=ANCHOR, releases=("v1.1",))
ACCEPTED = AcceptedChange(CASE, "a slower and safer algorithm", "2026-01-02T00:00:00+00:00", CONTEXT.session)
LATER = replace(RECORD, context=replace(CONTEXT, session="2026-02-02T00:00:00+00:00-b"))


def everything(history):
    content = history.content()
    return content.once(), content.problems


def read(path, text=None):
    if text is not None:
        path.write_text(text)
    found = Content()
    read_file(path, found)
    return found


def test_runs_come_back_oldest_first_and_whole(tmp_path):
    history = History(tmp_path)
    history.record(LATER)
    history.record(FULL)
    assert everything(history) == ([FULL, LATER], [])
    assert everything(History(tmp_path / "none")) == ([], [])


def test_a_file_has_a_line_for_the_run_and_one_per_case(tmp_path):
    floors = {**RECORD.floors, "b/größer.py::y": (2e-5,)}
    path = History(tmp_path).record(replace(FULL, floors=floors))
    assert path == tmp_path / "2026-01-01T000000+0000-a.jsonl"
    head, *cases = map(json.loads, path.read_text().splitlines())
    assert head == {
        "schema": "tfbench-history/1", "kind": "run", "context": plain(CONTEXT), "releases": ["v1.1"],
        "anchor": {"label": "git:v1.0", "key": "0123456789abcdef"}, "cases": 2,
    }  # fmt: skip
    ratio = {"center": 1.02, "low": 1.01, "high": 1.03, "confidence": 0.99}
    assert cases == [
        {"case": CASE, "floors": [1e-5, 1.1e-5], "ratio": ratio},
        {"case": "b/größer.py::y", "floors": [2e-5], "ratio": None},
    ]


def test_unbounded_intervals_come_back_and_numbers_that_json_lacks_are_not_written(tmp_path):
    history = History(tmp_path)
    wide = replace(FULL, ratios={CASE: Ratio(1.0, 0.0, math.inf, 0.99)})
    history.record(wide)
    assert everything(history) == ([wide], [])
    with pytest.raises(ValueError, match="floors"):
        history.record(replace(LATER, floors={"x": (math.inf,)}))
    assert len(history.files()) == 1


def test_files_are_merged_by_copies_and_a_run_counts_once(tmp_path):
    history = History(tmp_path / "one")
    paths = [history.record(FULL), history.record(LATER), history.accept(ACCEPTED)]
    (tmp_path / "two").mkdir()
    for number, path in enumerate([*paths, *paths]):
        (tmp_path / "two" / f"{number}.jsonl").write_text(path.read_text())
    together = History(tmp_path / "two")
    assert everything(together) == ([FULL, LATER], [])
    assert set(together.content().accepted) == {ACCEPTED}


def test_git_ignores_every_file_of_a_history(tmp_path):
    History(tmp_path / "new").record(RECORD)
    assert (tmp_path / "new/.gitignore").read_text() == "*\n"
    (tmp_path / "new/.gitignore").write_text("mine\n")
    History(tmp_path / "new").record(LATER)
    assert (tmp_path / "new/.gitignore").read_text() == "mine\n"
    Layout(tmp_path / "a").write_gitignore()
    assert "history/" in (tmp_path / "a/.gitignore").read_text().splitlines()


def test_a_query_of_a_case_parses_no_other_line(tmp_path):
    history, others = History(tmp_path), {f"b/x.py::y[{n}]": (2e-5,) for n in range(9)}
    history.record(replace(FULL, floors={**FULL.floors, **others}))
    history.record(LATER)
    first, second = history.content("x.py::x").once()
    assert (first, second) == (FULL, LATER)
    (path, _) = history.files()
    path.write_text(re.sub(r'(::y.*"floors":\[)[^]]*', r"\g<1>-1", path.read_text()))
    found = history.content("x.py::x")
    assert (found.once(), found.problems) == ([FULL, LATER], [])
    assert history.content("y[3]").problems


@pytest.mark.parametrize("name", ['b/"x".py::y[\\]', "b/größer.py::x[µ]", "b/x.py::x[\x1b]"])
def test_a_query_finds_every_name(tmp_path, name):
    history = History(tmp_path)
    history.record(replace(FULL, floors={**FULL.floors, name: (1e-5,)}))
    (found,) = history.content(printable(name)).runs
    assert found.floors[printable(name)] == (1e-5,)


# Damaged files


CUT, NO_CASE = (lambda text: text[:-20]), (lambda text: text.splitlines()[0])


@pytest.mark.parametrize(("damage", "fault"), [(CUT, ""), (NO_CASE, "it has 0 of its 1 cases)")])
@pytest.mark.parametrize("about", ["", CASE])
def test_a_run_without_its_end_is_named_and_left_out(tmp_path, damage, fault, about):
    path = History(tmp_path).record(FULL)
    path.write_text(damage(path.read_text()))
    found = History(tmp_path).content(about)
    assert found.runs == []
    (problem,) = found.problems
    assert problem.startswith(f"{path}: the run of {CONTEXT.session} is damaged and left out ({fault}")


@pytest.mark.parametrize("damage", [CUT, NO_CASE], ids=["cut", "no case"])
@pytest.mark.parametrize("name", ["0.jsonl", "copy.jsonl"], ids=["before", "after"])
@pytest.mark.parametrize("about", ["", CASE])
def test_a_whole_copy_of_a_run_counts_before_a_damaged_one_which_is_named(tmp_path, damage, name, about):
    text = History(tmp_path).record(FULL).read_text()
    (tmp_path / name).write_text(damage(text))
    found = History(tmp_path).content(about)
    assert found.once() == [FULL]
    assert [problem.partition(":")[0] for problem in found.problems] == [str(tmp_path / name)]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"schema": "tfbench-history/2"}, "'tfbench-history/2': another version of tfbench wrote it"),
        ({"schema": "x"}, "at schema, expected 'tfbench-history/1', got 'x'"),
        ({"context": {**plain(CONTEXT), "tree": "--help"}}, "at context.tree, "),
        ({"cases": -1}, "at cases, Expected `int` >= 0"),
    ],
)
def test_a_damaged_run_is_named_with_its_fault_and_the_others_are_read(tmp_path, change, fault):
    history = History(tmp_path)
    path = history.record(RECORD)
    head, rest = path.read_text().split("\n", 1)
    path.write_text(f"{json.dumps({**json.loads(head), **change}, separators=(',', ':'))}\n{rest}")
    history.record(LATER)
    found, (problem,) = everything(history)
    assert found == [LATER]
    assert problem.startswith(f"{path}: not a run that tfbench can read (")
    assert fault in problem


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"floors": [0.0]}, "at [0].floors[0], Expected `float` >= 1e-15"),
        ({"ratio": {"center": 0, "low": 0, "high": 1, "confidence": 0.9}}, "center of the ratio is no usable number"),
        ({"ratio": {"center": 1}}, "at [0].ratio, Object missing required field `low`"),
    ],
)
def test_a_damaged_case_is_named_with_its_fault(tmp_path, change, fault):
    path = History(tmp_path).record(RECORD)
    head, case = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(case), **change})}\n")
    runs, (problem,) = everything(History(tmp_path))
    assert runs == []
    assert problem.startswith(f"{path}: the run of {CONTEXT.session} is damaged and left out (")
    assert fault in problem


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 20])
def test_numbers_that_are_none_are_refused(tmp_path, number):
    path = History(tmp_path).record(RECORD)
    found = read(path, path.read_text().replace("0.000011", number).replace("1.1e-5", number))
    assert found.runs == []
    assert len(found.problems) == 1


@pytest.mark.parametrize("text", ["", "\n", "[]\n", "{}\n", "\x00\x01", '{"schema": "'])
def test_a_file_that_is_no_history_is_named_and_left_unchanged(tmp_path, text):
    path = tmp_path / "strange.jsonl"
    found = read(path, text)
    assert not found.runs
    assert len(found.problems) == 1
    assert found.problems[0].startswith(str(path))
    assert path.read_text() == text


def test_hostile_names_lose_what_a_terminal_would_obey(tmp_path):
    hostile = "b/x.py::x[\x1b[31m\u202egnp]"
    path = History(tmp_path).record(replace(FULL, floors={hostile: (1e-5,)}, ratios={}, releases=("\u202ev1",)))
    (run,) = read(path).runs
    assert list(run.floors) == ["b/x.py::x[\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}gnp]"]
    assert run.releases == ("\N{REPLACEMENT CHARACTER}v1",)
