"""Baselines are written atomically, and never over a file that tfbench did not write."""

import json

import pytest

from tfbench.errors import BaselineError
from tfbench.fs import write_whole
from tfbench.model import Case, EnvironmentInfo, MeasurementContext, Run, Sample
from tfbench.storage.baselines import Acceptance, Baseline, Baselines

CASE = Case("b/test_x.py::test_x[a=1]", "test_x", "b/test_x.py::test_x", (("a", "1"),))
SAMPLE = Sample(
    CASE, (Run((1e-5, 1.25e-5), 30, {"first_call": 0.5, "flops": 100}), Run((1.1e-5,), 30, {"first_call": 0.4}))
)
ENVIRONMENT = EnvironmentInfo(
    "3.11.7", "/p", {"tensorflow": "2.21.0"}, "c0ffee", False, {}, (1,), 1, {"processor": "x"}
)


CONTEXT = MeasurementContext("2026-01-01T00:00:00+00:00-a", ENVIRONMENT, "7ree", "standard", "variants")
BASELINE = Baseline(CONTEXT, {CASE.name: SAMPLE})


@pytest.fixture
def store(tmp_path):
    return Baselines(tmp_path / "baselines")


def test_a_saved_baseline_is_fetched(store):
    store.save("first", BASELINE)
    found = store.fetch("first")
    assert found.context == CONTEXT
    assert (found.environment, found.tree, found.name) == (ENVIRONMENT, "7ree", "first")
    assert found.samples[CASE.name].seconds == pytest.approx(SAMPLE.seconds)
    assert found.samples[CASE.name].runs[0].facts == SAMPLE.runs[0].facts
    assert store.names() == ["first"]


def test_pytest_benchmark_reads_it(store):
    content = json.loads(store.save("first", BASELINE).read_text())
    stats = content["benchmarks"][0]["stats"]
    assert stats["rounds"] == 3
    assert stats["min"] == pytest.approx(1e-5)
    assert {"machine_info", "commit_info", "datetime", "version"} <= set(content)


def test_an_unknown_name_lists_the_known_ones(store):
    with pytest.raises(BaselineError, match="save one with --save-baseline"):
        store.fetch("nope")
    store.save("first", BASELINE)
    with pytest.raises(BaselineError, match="the baselines are: first"):
        store.fetch("nope")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "a b", "x.lock", "a..b", "-x"])
def test_unusable_names_are_refused(store, name):
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
    with pytest.raises(BaselineError, match="the file stays unchanged"):
        store.save("first", BASELINE)
    assert path.read_text() == text


def test_unusable_times_are_refused(store):
    path = store.save("first", BASELINE)
    path.write_text(path.read_text().replace("300000", "-300000"))
    with pytest.raises(BaselineError, match="no usable times"):
        store.fetch("first")


def test_the_reason_of_an_acceptance_is_kept(store):
    accepted = (Acceptance("2026-01-02", "a better model", "2026-01-01"),)
    store.save("first", Baseline(CONTEXT, BASELINE.samples, accepted=accepted))
    assert store.fetch("first").accepted == accepted


def test_an_early_baseline_without_a_way_of_racing_is_read(store):
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    for field in ("session", "policy", "way", "accepted"):
        del content["tfbench"][field]
    del content["benchmarks"][0]["extra_info"]["tfbench"]["source"]
    path.write_text(json.dumps(content))
    assert store.fetch("first").context.way == ""


def test_a_removed_baseline_is_gone(store):
    store.save("first", BASELINE)
    store.remove("first")
    assert store.names() == []
    with pytest.raises(BaselineError, match="no baseline named 'first'"):
        store.remove("first")


def test_a_baseline_without_samples_is_not_saved(store):
    with pytest.raises(BaselineError, match="no case was measured"):
        store.save("first", Baseline(CONTEXT, {}))
    assert store.names() == []


def test_a_failed_write_leaves_the_file_unchanged(tmp_path):
    target = tmp_path / "file"
    write_whole(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
