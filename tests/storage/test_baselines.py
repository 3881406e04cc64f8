"""Baselines are written atomically, and never over a file that tfbench did not write."""

import json
import math
import os
import re
from dataclasses import replace

import pytest
import pytest_benchmark

from tfbench.errors import BaselineError, ReportError
from tfbench.fs import try_lock
from tfbench.model import Case, EnvironmentInfo, MeasurementContext, MetricValues, Run, Sample
from tfbench.report.saved import read
from tfbench.storage import baselines
from tfbench.storage.baselines import Acceptance, Baseline, Baselines

CASE = Case("b/test_x.py::test_x[a=1]", "test_x", "b/test_x.py::test_x", (("a", "1"),))
SAMPLE = Sample(
    CASE, (Run((1e-5, 1.25e-5), 30, {"first_call": 0.5, "flops": 100}), Run((1.1e-5,), 30, {"first_call": 0.4}))
)
ENVIRONMENT = EnvironmentInfo(
    "3.11.7", "/p", {"tensorflow": "2.21.0"}, "c0ffee", False, {}, (1,), 1, {"processor": "x"}
)


CONTEXT = MeasurementContext("2026-01-01T00:00:00+00:00-a", ENVIRONMENT, "7ree", "standard")
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


def test_a_half_written_file_of_a_killed_process_is_removed_by_the_next_save(store):
    store.save("first", BASELINE)
    killed, running = store.folder / ".half-killed", store.folder / ".half-running"
    killed.write_text("{")
    (store.folder / ".half-folder").mkdir()
    with try_lock(running):
        store.save("first", BASELINE)
        assert sorted(path.name for path in store.folder.iterdir()) == [".half-folder", ".half-running", "first.json"]
    store.save("first", BASELINE)
    assert not running.exists()


def test_the_file_has_the_layout_of_pytest_benchmark_with_its_own_parts(store, monkeypatch):
    monkeypatch.setattr(baselines, "now", lambda: "2026-01-01T00:00:00+00:00")
    own = {"minimum_effect": 0.05, "tolerance": 0.1}
    plain = Case("b/test_y.py::test_y", "test_y", "b/test_y.py::test_y", source="abc", file="def",
                 thresholds=tuple(own.items()), statistic="mean")  # fmt: skip
    samples = {CASE.name: SAMPLE, plain.name: Sample(plain, (Run((2e-6,), 5),))}
    values = {plain.name: MetricValues({"casts": {"a": 1}}, {"flops": 3.0})}
    path = store.save("first", Baseline(CONTEXT, samples, values))
    text = path.read_text()
    assert text.startswith('{\n "machine_info": {\n  "processor"')
    content = json.loads(text)
    assert content.pop("tfbench")["schema"] == "tfbench-baseline/1"
    first, second = content.pop("benchmarks")
    assert content == {
        "machine_info": {"processor": "x", "python_version": "3.11.7"},
        "commit_info": {"id": "c0ffee", "dirty": False},
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": pytest_benchmark.__version__,
    }
    stats = first.pop("stats")
    assert (stats["rounds"], stats["iterations"], stats["max"]) == (3, 30, pytest.approx(1.25e-5))
    launches = first.pop("extra_info")["tfbench"]["launches"]
    assert [one["nanoseconds"] for one in launches] == [[300000, 375000], [330000]]
    assert first == {
        "group": CASE.group,
        "name": "test_x[a=1]",
        "fullname": CASE.name,
        "params": {"a": "1"},
        "param": "a=1",
        "options": {},
    }
    assert (second["param"], second["params"], second["stats"]["iterations"]) == (None, {}, 5)
    names = "source", "file", "thresholds", "statistic"
    assert [second["extra_info"]["tfbench"][name] for name in names] == ["abc", "def", own, "mean"]
    found = store.fetch("first")
    assert found.saved == "2026-01-01T00:00:00+00:00"
    assert (found.metric_values, found.samples[plain.name].case) == (values, plain)


def test_the_time_of_a_file_is_in_utc_and_whole_seconds():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", baselines.now())


def test_a_baseline_of_several_axes_is_read_with_sorted_axes(store):
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    content["benchmarks"][0]["params"] = {"b": "2", "a": "1"}
    path.write_text(json.dumps(content))
    assert store.fetch("first").samples[CASE.name].case.variant == (("a", "1"), ("b", "2"))


def test_a_file_that_is_no_text_is_refused(store):
    path = store.save("first", BASELINE)
    path.write_bytes(b"\xff")
    with pytest.raises(BaselineError, match=r"first\.json is not UTF-8 text"):
        store.fetch("first")
    store.remove("first")
    path.mkdir()
    with pytest.raises(BaselineError, match=r"first\.json cannot be read: .*Is a directory"):
        store.fetch("first")


def test_a_full_disk_is_an_error_with_the_file(store, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(baselines, "write_whole", full)
    with pytest.raises(BaselineError) as caught:
        store.save("first", BASELINE)
    reason = "[Errno 28] No space left on device"
    assert str(caught.value) == f"{store.folder / 'first.json'}: the baseline cannot be written: {reason}"
    assert isinstance(caught.value.__cause__, OSError)


def test_a_number_that_json_lacks_is_not_written(store):
    endless = replace(SAMPLE, runs=(replace(SAMPLE.runs[0], facts={"first_call": math.inf}),))
    with pytest.raises(ValueError, match="first_call is inf instead of a number"):
        store.save("first", Baseline(CONTEXT, {CASE.name: endless}))
    assert store.names() == []


@pytest.mark.parametrize("method", ["fetch", "remove"])
def test_an_unknown_name_lists_the_known_ones(store, method):
    ask = getattr(store, method)
    unknown = f"^no baseline named 'nope' in {store.folder}; "
    with pytest.raises(BaselineError, match=f"{unknown}save one with --save-baseline NAME$"):
        ask("nope")
    for name in ("second", "first"):
        store.save(name, BASELINE)
    with pytest.raises(BaselineError, match=f"{unknown}the baselines are: first, second$"):
        ask("nope")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "a b", "x.lock", "a..b", "-x", "x.", "x" * 101])
def test_unusable_names_are_refused(store, name):
    with pytest.raises(BaselineError) as caught:
        store.fetch(name)
    assert str(caught.value) == f"{name!r} cannot name a baseline: use letters, digits, '.', '_' and '-'"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", '{"tfbench": {"schema": "other/1"}}', '{"benchmarks": [], "tfbench": 1}',
        '{"benchmarks": [], "tfbench": {"schema": "tfbench-baseline/1"}}',
    ],
)  # fmt: skip
def test_a_corrupt_file_is_named_and_never_overwritten(store, text):
    store.folder.mkdir()
    path = store.folder / "first.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=r"first\.json is not a baseline"):
        store.fetch("first")
    with pytest.raises(BaselineError, match="the file stays unchanged"):
        store.save("first", BASELINE)
    assert path.read_text() == text


BENCHMARK = ("benchmarks", 0)
OWN = (*BENCHMARK, "extra_info", "tfbench")
LAUNCH = (*OWN, "launches", 0)
ENVIRONMENT_OF_FILE = ("tfbench", "context", "environment")
ODD = {
    "zero iterations": ((*LAUNCH, "iterations"), "0", r"at \S+launches\[0\]\.iterations, Expected `int` >= 1"),
    "iterations as text": ((*LAUNCH, "iterations"), '"30"', "iterations, Expected `int`, got `str`"),
    "huge iterations": ((*LAUNCH, "iterations"), str(10**15 + 1), "iterations, Expected `int` <="),
    "a number of many digits": ((*LAUNCH, "iterations"), "9" * 5000, "a number of 5000 digits"),
    "infinite time": ((*LAUNCH, "nanoseconds", 0), "Infinity", "Infinity is not a JSON number"),
    "overflowing time": ((*LAUNCH, "nanoseconds", 0), "1e999", "too large for a number"),
    "a time of years": ((*LAUNCH, "nanoseconds", 0), "1e300", "no usable times"),
    "a time before its start": ((*LAUNCH, "nanoseconds", 0), "-300000", "no usable times"),
    "time as text": ((*LAUNCH, "nanoseconds", 0), '"300000"', r"nanoseconds\[0\], Expected `float`, got `str`"),
    "no time": ((*LAUNCH, "nanoseconds"), "[]", "nanoseconds, Expected `array` of length >= 1"),
    "memory as text": ((*LAUNCH, "facts"), '{"peak_host_memory": "1"}', "peak_host_memory"),
    "a negative first call": ((*LAUNCH, "facts"), '{"first_call": -1}', "first_call is -1 instead of"),
    "deep nesting": ((*LAUNCH, "facts", "x"), "[" * 100_000, "nested|not JSON|Expecting"),
    "closed deep nesting": ((*LAUNCH, "facts", "x"), "[" * 500 + "]" * 500, "nested"),
    "no launch": (LAUNCH[:-1], "[]", "launches, Expected `array` of length >= 1"),
    "unknown statistic": ((*OWN, "statistic"), '"mode"', "statistic, Expected `str` matching"),
    "a package that is an option": (
        (*ENVIRONMENT_OF_FILE, "packages"), '{"--index-url=http://evil": "1"}', "a key of .*packages, Expected `str` matching"
    ),
    "a package that is an address": (
        (*ENVIRONMENT_OF_FILE, "packages"), '{"a @ http://evil": "1"}', "a key of .*packages, Expected `str` matching"
    ),
    "a version that is an option": (
        (*ENVIRONMENT_OF_FILE, "packages"), '{"a": "1 --pre"}', r"packages\[\.\.\.\], Expected `str` matching"
    ),
    "a setting without a name": (
        (*ENVIRONMENT_OF_FILE, "settings"), '{"": "x"}', "a key of .*settings, Expected `str` matching"
    ),
    "a tree that is a path": (("tfbench", "context", "tree"), '"../../etc"', "tree, Expected `str` matching"),
    "a tree that is an option": (("tfbench", "context", "tree"), '"--all"', "tree, Expected `str` matching"),
    "half a character": (("datetime",), '"\\ud800"', "half a character"),
    "schema as list": (("tfbench", "schema"), "[]", "at schema, expected 'tfbench-baseline/1'"),
    "an older schema": (("tfbench", "schema"), '"tfbench-baseline/0"', "another version of tfbench wrote it"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "reason"), ODD.values(), ids=ODD)
def test_odd_content_is_refused_by_name(store, path, value, reason):
    file = store.save("first", BASELINE)
    content = json.loads(file.read_text())
    at = content
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = "@@"
    file.write_text(json.dumps(content).replace('"@@"', value, 1))
    with pytest.raises(BaselineError, match=reason) as caught:
        store.fetch("first")
    assert "first.json is not a baseline" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 800
    with pytest.raises(ReportError, match=r"neither a report nor a baseline|not JSON"):
        read(file)


def test_a_case_that_is_there_twice_is_refused(store):
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    content["benchmarks"] *= 2
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match=rf"at the top, {re.escape(CASE.name)} is there twice; "):
        store.fetch("first")


def test_the_reason_of_an_acceptance_is_kept(store):
    accepted = (Acceptance("2026-01-02", "a better model", "2026-01-01"),)
    store.save("first", Baseline(CONTEXT, BASELINE.samples, accepted=accepted))
    assert store.fetch("first").accepted == accepted


def test_a_baseline_without_samples_is_not_saved(store):
    with pytest.raises(BaselineError, match=r"^the baseline 'first' was not saved: no case was measured$"):
        store.save("first", Baseline(CONTEXT, {}))
    assert store.names() == []


@pytest.mark.parametrize("lacking", [0, os.W_OK, os.X_OK])
def test_a_folder_without_permission_is_noticed_before_the_run(tmp_path, monkeypatch, lacking):
    """The folder of the baselines does not exist yet, so its nearest parent counts."""
    monkeypatch.setattr(
        baselines.os,
        "access",
        lambda path, mode: path == tmp_path and mode & lacking == 0 and mode == os.W_OK | os.X_OK,
    )
    store = Baselines(tmp_path / "deep" / "baselines")
    if not lacking:
        store.check_can_save("first")
    else:
        reason = f"this user cannot write into {tmp_path}; run in a copy of the checkout that you can write"
        with pytest.raises(BaselineError, match=f"^the baseline 'first' cannot be saved, because {reason}$"):
            store.check_can_save("first")
    with pytest.raises(BaselineError, match="cannot name a baseline"):
        store.check_can_save("a/b")


def test_the_bounds_of_a_baseline_are_included(store):
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    launch = content["benchmarks"][0]["extra_info"]["tfbench"]["launches"][0]
    launch.update(iterations=1, facts={"first_call": 0}, nanoseconds=[1])
    path.write_text(json.dumps(content))
    assert store.fetch("first").samples[CASE.name].runs[0] == Run((pytest.approx(1e-9),), 1, {"first_call": 0})
