"""What a history shows of each case, and what accepting a change does to it."""

import numpy as np
import pytest

from tests.fakes.histories import ANCHOR, commit, nightly, noise, session, step
from tfbench.errors import HistoryError
from tfbench.policy import preset
from tfbench.report.trends import Trends
from tfbench.stats.change_points import TrendState
from tfbench.storage.history import Anchor

POLICY = preset("standard")
SLOW, SAME, DRIFT, FAST = (f"b/test_x.py::test_{name}" for name in ("slow", "same", "drift", "fast"))


@pytest.fixture
def folder(tmp_path):
    drifting = noise(60, 0.002, 3) + np.linspace(0, 0.026, 60)
    cases = {SLOW: step(60, 50), SAME: noise(60, seed=1), DRIFT: drifting, FAST: step(60, 40, -0.05, seed=2)}
    nightly(tmp_path, cases, release=1)
    return tmp_path


def test_steps_and_drift_are_found_and_fail(folder):
    trends = Trends(folder)
    found = {trend.series.case: trend for trend in trends.followed}
    assert {case: trend.state for case, trend in found.items()} == {
        SLOW: TrendState.SLOWER, SAME: TrendState.STEADY, DRIFT: TrendState.DRIFT, FAST: TrendState.FASTER,
    }  # fmt: skip
    assert trends.exit_code() == 1
    (change,) = found[SLOW].changes
    assert abs(change.index - 50) <= 1
    assert found[SLOW].series.points[change.index].run.commit == commit(change.index)
    assert all(one.effect < 0.02 for one in found[DRIFT].changes)
    assert found[DRIFT].release == "v1.1"
    assert 0.02 < found[DRIFT].drift.effect < 0.03


def test_without_an_anchor_the_floor_is_followed(tmp_path):
    nightly(tmp_path, {SLOW: step(40, 30)}, anchor=None)
    trends = Trends(tmp_path)
    assert [trend.series.metric for trend in trends.followed] == ["floor"]
    assert trends.exit_code() == 1


def test_an_accepted_change_restarts_the_window_and_passes(folder):
    trends = Trends(folder)
    accepted = trends.accept("test_slow", "a safer algorithm")
    assert accepted.session == session(50)
    trends = Trends(folder)
    (slow,) = trends.named("test_slow")
    assert (slow.start, slow.state, slow.changes) == (50, TrendState.SHORT, ())
    assert trends.exit_code() == 1  # the drift is open
    trends.accept("test_drift", "worth it")
    trends = Trends(folder)
    assert trends.exit_code() == 0
    later = {SLOW: step(20, 10, 0.04, seed=5) + 0.03, SAME: noise(20, seed=6)}
    nightly(folder, later, first=60)
    trends = Trends(folder)
    (slow,) = trends.named("test_slow")
    assert slow.state is TrendState.SLOWER
    assert abs(slow.changes[0].index - 70) <= 1


def test_only_a_change_is_accepted(folder):
    files = sorted(folder.iterdir())
    with pytest.raises(HistoryError, match=f"{SAME} has no change to accept, its state is: steady"):
        Trends(folder).accept(SAME, "x")
    assert sorted(folder.iterdir()) == files
    assert Trends(folder).accept(FAST, "a better kernel").session == session(40)
    with pytest.raises(HistoryError, match=f"{FAST} has no change to accept, its state is: steady"):
        Trends(folder).accept(FAST, "again")


def test_a_new_anchor_is_followed_once_it_has_enough_runs(folder):
    new = Anchor("git:v1.1", "1" * 16)
    nightly(folder, {SAME: noise(10, seed=7) - 0.1}, first=60, anchor=new)
    trends = Trends(folder)
    assert trends.named(SAME)[0].series.anchor == ANCHOR.label
    assert trends.of_case(SAME)[1].state is TrendState.SHORT
    nightly(folder, {SAME: noise(5, seed=8) - 0.1}, first=70, anchor=new)
    trends = Trends(folder)
    assert trends.named(SAME)[0].series.anchor == new.label
    assert trends.named(SAME)[0].state is TrendState.STEADY


def test_few_runs_say_nothing_and_fail_nothing(tmp_path):
    nightly(tmp_path, {SAME: step(11, 6, 0.2)[:10]})
    trends = Trends(tmp_path)
    assert trends.followed[0].state is TrendState.SHORT
    assert trends.exit_code() == 0


def test_unreadable_files_fail_where_nothing_else_does(tmp_path):
    nightly(tmp_path, {SAME: noise(20)})
    (tmp_path / "new.jsonl").write_text('{"schema": "tfbench-history/2"}\n')
    trends = Trends(tmp_path)
    assert trends.exit_code() == 5


def test_a_case_is_named_by_its_whole_name_its_end_or_a_part(folder):
    trends = Trends(folder)
    assert len(trends.named(SLOW)) == len(trends.named("test_slow")) == len(trends.named("slo")) == 1
    assert len(trends.named("test_")) == 4
    with pytest.raises(HistoryError, match="'test_' names 4 cases: "):
        trends.accept("test_", "x")
    with pytest.raises(HistoryError, match=r"no case in .* has 'other' in its name"):
        trends.named("other")


def test_an_empty_folder_says_how_to_fill_it(tmp_path):
    with pytest.raises(HistoryError, match="add one with pytest --benchmark --against"):
        Trends(tmp_path / "none").named("")
