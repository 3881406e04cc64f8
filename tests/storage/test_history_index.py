"""The index agrees with the files whatever happened to it, and costs little for a thousand runs."""

import math
import multiprocessing
import os
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from tests.storage.test_history import ACCEPTED, CASE, FULL, LATER, RECORD
from tfbench.model import FLOOR, RATIO, Ratio
from tfbench.storage.history import Anchor, History
from tfbench.storage.history_index import HistoryIndex


def content(folder, **how):
    """Return what the index of a folder holds, by series."""
    with closing(HistoryIndex(folder, **how)) as index:
        return {(one.case, one.metric, one.anchor): index.points(one) for one in index.series()}


def test_a_run_becomes_a_ratio_to_its_anchor_and_a_floor_of_its_machine(tmp_path):
    History(tmp_path).record(FULL)
    with closing(HistoryIndex(tmp_path)) as index:
        ratio, floor = index.series()
        assert (ratio.metric, ratio.anchor, ratio.machine) == (RATIO, "git:v1.0", "")
        assert (floor.metric, floor.anchor) == (FLOOR, "")
        assert "processors" in floor.machine
        (point,) = index.points(ratio)
        assert (point.value, point.low, point.high, point.outcome) == (1.02, 1.01, 1.03, "regressed")
        assert point.run.releases == ("v1.1",)
        assert point.run.side.startswith("tensorflow")
        assert index.points(floor)[0].value == 1e-5
        assert index.runs() == 1


def test_points_are_in_time_order_whatever_the_order_of_the_files(tmp_path):
    history = History(tmp_path)
    history.record(LATER)
    content(tmp_path)
    history.record(RECORD)
    (points,) = content(tmp_path).values()
    assert [point.run.session for point in points] == [RECORD.context.session, LATER.context.session]


def test_another_anchor_or_machine_starts_another_series(tmp_path):
    history = History(tmp_path)
    history.record(FULL)
    environment = replace(LATER.context.environment, machine={"processor": "other"})
    context = replace(LATER.context, environment=environment)
    history.record(replace(FULL, context=context, anchor=Anchor("git:v1.0", "f" * 16)))
    with closing(HistoryIndex(tmp_path)) as index:
        assert [one.metric for one in index.series()] == [RATIO, RATIO, FLOOR, FLOOR]
        newest = index.series()[0]
        assert index.points(newest)[0].run.session == LATER.context.session


def test_ratios_on_two_machines_are_one_series(tmp_path):
    history = History(tmp_path)
    history.record(FULL)
    environment = replace(LATER.context.environment, machine={"processor": "other"})
    history.record(replace(FULL, context=replace(LATER.context, environment=environment)))
    assert len(content(tmp_path)[CASE, RATIO, "git:v1.0"]) == 2


def test_added_changed_and_removed_files_are_noticed(tmp_path):
    history = History(tmp_path)
    first = history.record(FULL)
    assert len(content(tmp_path)) == 2
    second = history.record(LATER)
    assert len(content(tmp_path)[CASE, FLOOR, ""]) == 2
    second.write_text(first.read_text())  # the same run again
    assert len(content(tmp_path)[CASE, FLOOR, ""]) == 1
    first.unlink()
    second.unlink()
    assert content(tmp_path) == {}


@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated", "version", "table"])
def test_a_damaged_index_is_rebuilt(tmp_path, damage):
    History(tmp_path).record(FULL)
    before, path = content(tmp_path), tmp_path / "index.sqlite"
    if damage in ("version", "table"):
        statement = "PRAGMA user_version = 99" if damage == "version" else "DROP TABLE point"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)
    else:
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "garbage": os.urandom(len(whole)), "truncated": whole[:5000]}[damage])
    assert content(tmp_path) == before


def test_a_folder_that_cannot_be_written_is_indexed_in_memory(tmp_path, monkeypatch):
    History(tmp_path).record(FULL)

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("tfbench.storage.history_index.locked", refused)
    assert len(content(tmp_path)) == 2
    assert not (tmp_path / "index.sqlite").exists()


def test_problems_are_kept_with_the_index(tmp_path):
    History(tmp_path).record(FULL)
    (tmp_path / "new.jsonl").write_text('{"schema": "tfbench-history/2"}\n')
    for _ in range(2):
        with closing(HistoryIndex(tmp_path)) as index:
            (problem,) = index.problems()
            assert "new.jsonl" in problem
            assert "update tfbench" in problem
            assert len(index.series()) == 2


def test_an_accepted_change_belongs_to_its_case_and_ends_saved_results(tmp_path):
    history = History(tmp_path)
    history.record(FULL)
    with closing(HistoryIndex(tmp_path)) as index:
        index.keep_trends("k", {one.id: {"a": 1} for one in index.series()})
        assert len(index.trends("k")) == 2
        assert index.trends("other") == {}
    history.accept(ACCEPTED)
    with closing(HistoryIndex(tmp_path)) as index:
        assert index.accepted(CASE) == [ACCEPTED]
        assert index.accepted("other") == []
        assert index.trends("k") == {}


def _add(folder, number):
    context = replace(FULL.context, session=f"2026-01-01T00:00:00+00:00-{number:04}")
    History(folder).record(replace(FULL, context=context))
    content(folder)


def test_a_reader_keeps_its_view_when_another_process_adds_a_run(tmp_path):
    _add(tmp_path, 1)
    with closing(HistoryIndex(tmp_path)) as index:
        before = {one.case: index.points(one) for one in index.series()}
        _add(tmp_path, 2)
        assert {one.case: index.points(one) for one in index.series()} == before
    assert all(len(points) == 2 for points in content(tmp_path).values())


def test_writers_and_readers_at_once_lose_nothing(tmp_path):
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_add, args=(tmp_path, number)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(content(tmp_path)[CASE, RATIO, "git:v1.0"]) == 8
    assert not list(tmp_path.glob("*.half"))


def test_unbounded_intervals_come_back(tmp_path):
    History(tmp_path).record(replace(FULL, ratios={CASE: Ratio(1.0, 0.0, math.inf, 0.9)}))
    (point,) = content(tmp_path)[CASE, RATIO, "git:v1.0"]
    assert (point.low, point.high) == (0.0, math.inf)
