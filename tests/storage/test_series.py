"""Runs become series: ratios to an anchor, and floors of a machine. Reading a history leaves nothing behind."""

import multiprocessing
from dataclasses import replace

from tests.storage.test_baselines import CONTEXT
from tests.storage.test_history import CASE, FULL, LATER
from tfbench.cli import main
from tfbench.model import FLOOR, RATIO, SeriesPoint, SeriesRun
from tfbench.storage.history import Anchor, History, series_of


def series(folder):
    return series_of(History(folder).content().once())


def points(folder):
    return {(one.case, one.metric, one.anchor): one.points for one in series(folder)}


def test_a_run_becomes_a_ratio_to_its_anchor_and_a_floor_of_its_machine(tmp_path):
    History(tmp_path).record(FULL)
    ratio, floor = series(tmp_path)
    assert (ratio.metric, ratio.anchor, ratio.machine) == (RATIO, "git:v1.0", "")
    assert (floor.metric, floor.anchor) == (FLOOR, "")
    assert "processors" in floor.machine
    (point,) = ratio.points
    assert (point.value, point.low, point.high) == (1.02, 1.01, 1.03)
    assert point.run == SeriesRun(CONTEXT.session, "c0ffee", False, ("v1.1",), "tensorflow 2.21.0", floor.machine)
    assert floor.points == (SeriesPoint(point.run, 1e-5, 1e-5, 1e-5),)


def test_another_anchor_or_machine_starts_another_series_and_the_newest_is_first(tmp_path):
    history = History(tmp_path)
    history.record(FULL)
    environment = replace(LATER.context.environment, machine={"processor": "other"})
    context = replace(LATER.context, environment=environment)
    history.record(replace(FULL, context=context, anchor=Anchor("git:v1.0", "f" * 16)))
    found = series(tmp_path)
    assert [one.metric for one in found] == [RATIO, RATIO, FLOOR, FLOOR]
    assert found[0].points[0].run.session == LATER.context.session


def test_reading_a_history_leaves_nothing_behind(tmp_path):
    path = History(tmp_path / "theirs").record(FULL)
    (tmp_path / "theirs" / ".gitignore").unlink()
    for words in ([], [CASE]):
        assert main(["history", *words, "--folder", str(tmp_path / "theirs")]) == 0
    assert list((tmp_path / "theirs").iterdir()) == [path]
    assert main(["history", "--folder", str(tmp_path / "none")]) == 5
    assert list(tmp_path.iterdir()) == [tmp_path / "theirs"]


def _add(folder, number):
    context = replace(FULL.context, session=f"2026-01-01T00:00:00+00:00-{number:04}")
    History(folder).record(replace(FULL, context=context))


def test_writers_at_once_lose_nothing(tmp_path):
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_add, args=(tmp_path, number)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(points(tmp_path)[CASE, RATIO, "git:v1.0"]) == 8
