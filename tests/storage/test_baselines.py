"""Baselines are written atomically, and never over a file that tfbench did not write."""

import json
import math
import os
import re
from dataclasses import replace

import pytest
import pytest_benchmark

from tfbench.compare import read
from tfbench.errors import BaselineError, ReportError
from tfbench.fs import try_lock, write_whole
from tfbench.model import Case, EnvironmentInfo, MeasurementContext, MetricValues, Run, Sample
from tfbench.storage import baselines
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


def test_pytest_benchmark_reads_it(store):
    content = json.loads(store.save("first", BASELINE).read_text())
    stats = content["benchmarks"][0]["stats"]
    assert stats["rounds"] == 3
    assert stats["min"] == pytest.approx(1e-5)
    assert {"machine_info", "commit_info", "datetime", "version"} <= set(content)


def test_the_file_has_the_layout_of_pytest_benchmark_with_its_own_parts(store, monkeypatch):
    monkeypatch.setattr(baselines, "now", lambda: "2026-01-01T00:00:00+00:00")
    plain = Case("b/test_y.py::test_y", "test_y", "b/test_y.py::test_y", source="abc")
    samples = {CASE.name: SAMPLE, plain.name: Sample(plain, (Run((2e-6,), 5),))}
    values = {plain.name: MetricValues({"casts": {"a": 1}}, {"flops": 3.0})}
    path = store.save("first", Baseline(CONTEXT, samples, values))
    text = path.read_text()
    assert text.startswith('{\n "machine_info": {\n  "processor"')
    content = json.loads(text)
    assert content.pop("tfbench") == {
        "schema": "tfbench-baseline/1",
        "recipe": ENVIRONMENT.as_json(),
        "session": CONTEXT.session,
        "tree": "7ree",
        "policy": "standard",
        "way": "variants",
        "accepted": [],
    }
    first, second = content.pop("benchmarks")
    assert content == {
        "machine_info": {"processor": "x", "python_version": "3.11.7"},
        "commit_info": {"id": "c0ffee", "dirty": False},
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": pytest_benchmark.__version__,
    }
    stats = first.pop("stats")
    assert (stats["rounds"], stats["iterations"], stats["max"]) == (3, 30, pytest.approx(1.25e-5))
    assert first == {
        "group": CASE.group,
        "name": "test_x[a=1]",
        "fullname": CASE.name,
        "params": {"a": "1"},
        "param": "a=1",
        "extra_info": {
            "tfbench": {
                "workload": "test_x",
                "source": "",
                "launches": [
                    {"iterations": 30, "nanoseconds": [300000, 375000], "facts": {"first_call": 0.5, "flops": 100}},
                    {"iterations": 30, "nanoseconds": [330000], "facts": {"first_call": 0.4}},
                ],
            }
        },
        "options": {},
    }
    assert (second["param"], second["params"], second["stats"]["iterations"]) == (None, {}, 5)
    assert second["extra_info"]["tfbench"]["source"] == "abc"
    assert second["extra_info"]["tfbench"]["reading"] == values[plain.name].as_json()
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


def edited(store, change):
    """Save a baseline, edit its content, and return the error of reading it."""
    store.folder.joinpath("first.json").unlink(missing_ok=True)
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError) as caught:
        store.fetch("first")
    return str(caught.value).removeprefix(str(path))


FIX = "the file stays unchanged: move it away or save under another name"


def test_a_damaged_baseline_is_refused_with_its_fault(store):
    def launches(content):
        return content["benchmarks"][0]["extra_info"]["tfbench"]["launches"]

    fault = " is not a baseline that tfbench can read (ValueError: {}); " + FIX
    assert edited(store, lambda content: launches(content).clear()) == fault.format(
        f"{CASE.name} has no launch, or is there twice"
    )
    found = edited(store, lambda content: launches(content)[1].update(nanoseconds=[]))
    assert found == fault.format(f"{CASE.name} has no usable times")
    found = edited(store, lambda content: content["tfbench"].update(schema="x"))
    assert found == fault.format("schema 'x' instead of 'tfbench-baseline/1'")


def test_a_file_that_is_no_text_is_refused(store):
    path = store.save("first", BASELINE)
    path.write_bytes(b"\xff")
    with pytest.raises(BaselineError, match=r"first\.json cannot be read: 'utf-8' codec"):
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
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.save("first", Baseline(CONTEXT, {CASE.name: endless}))
    assert store.names() == []


def test_a_replaced_baseline_is_the_new_one(store):
    store.save("first", BASELINE)
    store.save("first", replace(BASELINE, context=replace(CONTEXT, tree="0ther")))
    assert store.fetch("first").tree == "0ther"


def test_an_unknown_name_lists_the_known_ones(store):
    unknown = f"^no baseline named 'nope' in {store.folder}; "
    with pytest.raises(BaselineError, match=f"{unknown}save one with --save-baseline NAME$"):
        store.fetch("nope")
    for name in ("second", "first"):
        store.save(name, BASELINE)
    with pytest.raises(BaselineError, match=f"{unknown}the baselines are: first, second$"):
        store.fetch("nope")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "a b", "x.lock", "a..b", "-x", "x.", "x" * 101])
def test_unusable_names_are_refused(store, name):
    with pytest.raises(BaselineError) as caught:
        store.fetch(name)
    assert str(caught.value) == f"{name!r} cannot name a baseline: use letters, digits, '.', '_' and '-'"


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


LAUNCH = ("benchmarks", 0, "extra_info", "tfbench", "launches", 0)
RECIPE = ("tfbench", "recipe")
ODD = {
    "zero iterations": ((*LAUNCH, "iterations"), "0", "iterations of b/test_x"),
    "negative iterations": ((*LAUNCH, "iterations"), "-3", "iterations of"),
    "half an iteration": ((*LAUNCH, "iterations"), "1.5", "iterations of"),
    "iterations as text": ((*LAUNCH, "iterations"), '"30"', "iterations of"),
    "true iterations": ((*LAUNCH, "iterations"), "true", "iterations of"),
    "huge iterations": ((*LAUNCH, "iterations"), "9" * 18, "iterations of"),
    "a number of many digits": ((*LAUNCH, "iterations"), "9" * 5000, "a number of 5000 digits"),
    "infinite time": ((*LAUNCH, "nanoseconds", 0), "Infinity", "Infinity is not a JSON number"),
    "no number as time": ((*LAUNCH, "nanoseconds", 0), "NaN", "NaN is not a JSON number"),
    "overflowing time": ((*LAUNCH, "nanoseconds", 0), "1e999", "too large for a number"),
    "a time of years": ((*LAUNCH, "nanoseconds", 0), "1e300", "no usable times"),
    "time as text": ((*LAUNCH, "nanoseconds", 0), '"300000"', "instead of a number"),
    "time as list": ((*LAUNCH, "nanoseconds", 0), "[1]", "a list instead of a number"),
    "no time": ((*LAUNCH, "nanoseconds"), "[]", "no usable times"),
    "facts as list": ((*LAUNCH, "facts"), "[]", "facts is a list"),
    "memory as text": ((*LAUNCH, "facts"), '{"peak_host_memory": "1"}', "peak_host_memory"),
    "deep nesting": ((*LAUNCH, "facts", "x"), "[" * 100_000, "nested|not JSON|Expecting"),
    "closed deep nesting": ((*LAUNCH, "facts", "x"), "[" * 500 + "]" * 500, "nested"),
    "launches as object": (LAUNCH[:-1], "{}", "launches is an object"),
    "no launch": (LAUNCH[:-1], "[]", "no launch"),
    "benchmarks as object": (("benchmarks",), "{}", "benchmarks is an object"),
    "a benchmark as text": (("benchmarks", 0), '"x"', "a benchmark is"),
    "name as number": (("benchmarks", 0, "fullname"), "3", "fullname is 3"),
    "name as null": (("benchmarks", 0, "fullname"), "null", "fullname is null"),
    "variant as list": (("benchmarks", 0, "params"), "[]", "params is a list"),
    "level as number": (("benchmarks", 0, "params", "a"), "1", "params/a"),
    "environment as list": (RECIPE, "[]", "recipe is a list"),
    "packages as list": ((*RECIPE, "packages"), "[]", "packages is a list"),
    "a package that is an option": ((*RECIPE, "packages"), '{"--index-url=http://evil": "1"}', "is no package"),
    "a package that is an address": ((*RECIPE, "packages"), '{"a @ http://evil": "1"}', "is no package"),
    "a version that is an option": ((*RECIPE, "packages"), '{"a": "1 --pre"}', "is no package"),
    "a setting with a null character": ((*RECIPE, "settings"), '{"A": "\\u0000"}', "is no setting"),
    "a setting without a name": ((*RECIPE, "settings"), '{"": "x"}', "is no setting"),
    "cpus as number": ((*RECIPE, "cpus"), "3", "cpus is 3"),
    "threads as text": ((*RECIPE, "threads"), '"1"', "threads is"),
    "dirty as text": ((*RECIPE, "dirty"), '"no"', "dirty is"),
    "a tree that is a path": (("tfbench", "tree"), '"../../etc"', "is no tree"),
    "a tree that is an option": (("tfbench", "tree"), '"--all"', "is no tree"),
    "session as number": (("tfbench", "session"), "3", "session is 3"),
    "accepted as text": (("tfbench", "accepted"), '"x"', "accepted is"),
    "an acceptance as number": (("tfbench", "accepted"), "[1]", "an acceptance is 1"),
    "date as object": (("datetime",), "{}", "datetime is an object"),
    "half a character": (("datetime",), '"\\ud800"', "half a character"),
    "schema as list": (("tfbench", "schema"), "[]", "schema"),
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
    with pytest.raises(BaselineError, match="is there twice"):
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
    with pytest.raises(BaselineError, match=f"^no baseline named 'first' in {store.folder}$"):
        store.remove("first")


def test_a_baseline_without_samples_is_not_saved(store):
    with pytest.raises(BaselineError, match=r"^the baseline 'first' was not saved: no case was measured$"):
        store.save("first", Baseline(CONTEXT, {}))
    assert store.names() == []


def test_a_failed_write_leaves_the_file_unchanged(tmp_path):
    target = tmp_path / "file"
    write_whole(target, "old")
    with pytest.raises(ZeroDivisionError):
        write_whole(target, (str(1 // number) for number in (1, 0)))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_description_of_a_baseline_names_it():
    saved = replace(BASELINE, name="first.x", saved=baselines.now())
    assert baselines.describe(saved) == f"baseline 'first.x' of {saved.saved}"
    assert baselines.baseline_of(baselines.describe(saved)) == "first.x"
    assert [baselines.baseline_of(spec) for spec in ("self", "baseline '-x' of 2026", "")] == ["", "", ""]


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


def benchmark(content):
    return content["benchmarks"][0]


def own(content):
    return benchmark(content)["extra_info"]["tfbench"]


def launch(content):
    return own(content)["launches"][0]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda content: content.update(tfbench=1), "tfbench is 1 instead of an object"),
        (lambda content: content.update(benchmarks=1), "benchmarks is 1 instead of a list"),
        (lambda content: content.update(benchmarks=[1]), "a benchmark is 1 instead of an object"),
        (lambda content: content.update(datetime=1), "datetime is 1 instead of a text"),
        (lambda content: content["tfbench"].update(accepted=1), "accepted is 1 instead of a list"),
        (lambda content: content["tfbench"].update(accepted=[1]), "an acceptance is 1 instead of an object"),
        (lambda content: content["tfbench"].update(accepted=[{"when": 1}]), "an acceptance/when is 1 instead of a text"),
        (lambda content: content["benchmarks"].append(benchmark(content)), f"{CASE.name} has no launch, or is there twice"),
        (lambda content: benchmark(content).update(extra_info=1), "extra_info is 1 instead of an object"),
        (lambda content: benchmark(content)["extra_info"].update(tfbench=1), "tfbench is 1 instead of an object"),
        (lambda content: benchmark(content).update(fullname=1), "fullname is 1 instead of a text"),
        (lambda content: benchmark(content).update(group=1), "group is 1 instead of a text"),
        (lambda content: benchmark(content).update(params=1), "params is 1 instead of an object"),
        (lambda content: benchmark(content).update(params={"a": 1}), "params/a is 1 instead of a text"),
        (lambda content: own(content).update(workload=1), "workload is 1 instead of a text"),
        (lambda content: own(content).update(source=1), "source is 1 instead of a text"),
        (lambda content: own(content).update(launches=1), "launches is 1 instead of a list"),
        (lambda content: own(content).update(launches=[1]), "a launch is 1 instead of an object"),
        (lambda content: own(content).update(reading=1), "reading is 1 instead of an object"),
        (lambda content: launch(content).update(iterations=0),
         f"iterations of {CASE.name} is 0 instead of a whole number of at least 1 of at most 1e+15"),
        (lambda content: launch(content).update(iterations=10**15 + 1),
         f"iterations of {CASE.name} is 1000000000000001 instead of a whole number of at least 1 of at most 1e+15"),
        (lambda content: launch(content).update(nanoseconds=1), "nanoseconds is 1 instead of a list"),
        (lambda content: launch(content).update(nanoseconds=["1"]), f"{CASE.name} is '1' instead of a number"),
        (lambda content: launch(content).update(facts=1), "facts is 1 instead of an object"),
        (lambda content: launch(content)["facts"].update(first_call=-1),
         "first_call is -1 instead of a number of at least 0"),
    ],
)  # fmt: skip
def test_each_part_of_a_baseline_has_its_type(store, change, fault):
    assert edited(store, change) == f" is not a baseline that tfbench can read (ValueError: {fault}); {FIX}"


def test_the_bounds_of_a_baseline_are_included(store):
    path = store.save("first", BASELINE)
    content = json.loads(path.read_text())
    launch(content).update(iterations=1, facts={"first_call": 0}, nanoseconds=[1])
    path.write_text(json.dumps(content))
    assert store.fetch("first").samples[CASE.name].runs[0] == Run((pytest.approx(1e-9),), 1, {"first_call": 0})
