"""Saved baselines: whole or not at all, and never over something that is not ours."""

import json

import pytest

from tfbench.errors import BaselineError
from tfbench.model import Case, Recipe, Run, Sample
from tfbench.store.baselines import Baselines
from tfbench.store.files import write_whole

CASE = Case("b/test_x.py::test_x[a=1]", "test_x", "b/test_x.py::test_x", (("a", "1"),))
SAMPLE = Sample(
    CASE, (Run((1e-5, 1.25e-5), 30, {"first_call": 0.5, "flops": 100}), Run((1.1e-5,), 30, {"first_call": 0.4}))
)
RECIPE = Recipe("3.11.7", "/p", {"tensorflow": "2.21.0"}, "c0ffee", False, {}, (1,), 1, {"processor": "x"})


@pytest.fixture
def store(tmp_path):
    return Baselines(tmp_path / "baselines")


def test_what_was_saved_is_fetched(store):
    store.save("first", RECIPE, "7ree", [SAMPLE])
    found = store.fetch("first")
    assert found.recipe == RECIPE
    assert found.tree == "7ree"
    assert found.samples[CASE.name].seconds == pytest.approx(SAMPLE.seconds)
    assert found.samples[CASE.name].runs[0].facts == SAMPLE.runs[0].facts
    assert store.names() == ["first"]


def test_pytest_benchmark_reads_it(store):
    content = json.loads(store.save("first", RECIPE, "", [SAMPLE]).read_text())
    stats = content["benchmarks"][0]["stats"]
    assert stats["rounds"] == 3
    assert stats["min"] == pytest.approx(1e-5)
    assert {"machine_info", "commit_info", "datetime", "version"} <= set(content)


def test_an_unknown_name_lists_those_there_are(store):
    with pytest.raises(BaselineError, match="none yet; save one with --save-baseline"):
        store.fetch("nope")
    store.save("first", RECIPE, "", [SAMPLE])
    with pytest.raises(BaselineError, match="there are: first"):
        store.fetch("nope")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "a b", "x.lock", "a..b", "-x"])
def test_names_that_are_no_names_are_refused(store, name):
    with pytest.raises(BaselineError, match="cannot name a baseline"):
        store.fetch(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"tfbench": {"schema": "other/1"}}',
        '{"benchmarks": [], "tfbench": {"schema": "tfbench-baseline/1"}}',
    ],
)
def test_a_corrupt_file_is_named_and_never_overwritten(store, text):
    store.folder.mkdir()
    path = store.folder / "first.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=r"first\.json is not a baseline"):
        store.fetch("first")
    with pytest.raises(BaselineError, match="was left as it is"):
        store.save("first", RECIPE, "", [SAMPLE])
    assert path.read_text() == text


def test_times_that_are_none_are_refused(store):
    path = store.save("first", RECIPE, "", [SAMPLE])
    path.write_text(path.read_text().replace("300000", "-300000"))
    with pytest.raises(BaselineError, match="no usable times"):
        store.fetch("first")


def test_nothing_measured_is_nothing_saved(store):
    with pytest.raises(BaselineError, match="nothing was measured"):
        store.save("first", RECIPE, "", [])
    assert store.names() == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    target = tmp_path / "file"
    write_whole(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
