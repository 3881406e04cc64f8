"""Device time and energy of both sides: a whole session whose driver and processes follow a script."""

import io
import json
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from tests.fakes import worker
from tests.fakes.nvml import UUIDS, Device, h200, library
from tests.fakes.suites import request_of
from tfbench.model import Case, Note, Outcome, because
from tfbench.policy import preset
from tfbench.race.prober import Profiler
from tfbench.report import summary, terminal
from tfbench.report.summary import HIDDEN_SHARE
from tfbench.ruling import grave
from tfbench.session.profiling import HIDDEN_DISPATCH
from tfbench.session.session import Session

NAME = "t.py::test_a"
CASE = Case(NAME, "test_a", NAME)
POLICY = preset("quick")
GATED = POLICY.with_device_gate(0.05)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Returns a function that measures the case on a GPU that takes 1 J per reading, and returns the rows of its metrics."""

    def run(policy=POLICY, script=None, energy=True, device=None, **changes):
        joules = [1000 * reading for reading in range(1000)] if energy else None
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where GPUs are locked
        monkeypatch.setitem(sys.modules, "pynvml", library(device or Device(UUIDS[1], energy=joules)))
        script = {"seconds": 9e-4, "kernel": 800} if script is None else script
        executable = worker.install(tmp_path, cases={NAME: script})
        request = request_of(tmp_path, [CASE], policy=policy, executable=executable, device="gpu:0", **changes)
        with closing(Session(request, [CASE])) as session:
            result = session.runs.result(CASE)
        return result, {row.metric: row for row in result.rows}

    return run


def test_without_another_side_both_are_reported(measured):
    result, rows = measured()
    found, energy = rows["device_time"], rows["energy"]
    assert (found.outcome, found.unit, found.launches) == (Outcome.NEW, "s", 1)
    assert (*found.values,) == (None, pytest.approx(800e-6))
    assert (energy.outcome, energy.unit) == (Outcome.NEW, "J")
    assert energy.values.contender == pytest.approx(0.01, rel=0.5)  # 100 calls between two or three readings
    assert result.variant_result.facts["device_share"] == pytest.approx(800 / 900)
    assert not result.why
    _, rows = measured(energy=False)  # a driver without that counter
    assert ("device_time" in rows, "energy" in rows) == (True, False)


def test_the_same_on_both_sides_is_unchanged_with_an_interval(measured):
    _, rows = measured(against="self", policy=GATED)
    found = rows["device_time"]
    assert (found.outcome, found.launches) == (Outcome.UNCHANGED, POLICY.device_launches)
    assert found.ratio.low < 1 < found.ratio.high
    assert (*found.values,) == (pytest.approx(800e-6), pytest.approx(800e-6))
    assert "800 µs before, 800 µs now (interval" in found.reason.message


def test_a_step_of_unchanged_time_is_not_profiled(measured):
    _, rows = measured(against="self")
    assert rows["time"].outcome is Outcome.UNCHANGED
    assert rows.keys().isdisjoint({"device_time", "energy"})

    _, rows = measured(against="self", inject_slowdown=0.5)
    assert rows["time"].outcome is Outcome.REGRESSED
    assert rows["device_time"].outcome is Outcome.UNCHANGED


@pytest.mark.slow
def test_more_device_time_fails_no_case_unless_it_is_gated(measured, monkeypatch):
    pairs, profile = [], Profiler.profile
    monkeypatch.setattr(Profiler, "profile", lambda *given: pairs.append(given[4]) or profile(*given))
    result, rows = measured(against="env:KERNEL=400", inject_slowdown=0.5)
    found = rows["device_time"]
    assert (found.outcome, found.reason.code) == (Outcome.INCONCLUSIVE, "not-gated")
    assert found.reason.message.startswith("reported, and gated under --gate-device only: 400 µs before, 800 µs now")
    assert found.ratio.low > 1.5
    for strict in (False, True):
        assert "device_time" not in [row.metric for row in grave(result.rows, strict)]

    pairs.clear()
    result, rows = measured(against="env:KERNEL=400", policy=GATED)
    assert pairs == [0, 0, 1, 1, 2, 2, 3, 3]  # the second time from other zygotes
    found = rows["device_time"]
    assert found.outcome is Outcome.REGRESSED
    assert "; found twice, the first time as " in found.reason.message
    assert found in result.failures


def test_a_profile_that_was_not_taken_is_an_error_under_the_gate_alone(measured):
    script = {"seconds": 9e-4}
    result, rows = measured(script=script, against="self", inject_slowdown=0.5)
    assert rows.keys().isdisjoint({"device_time", "energy", "device"})
    assert result.why[0].startswith("profile: not taken: the profiler wrote no file")

    result, rows = measured(script=script, against="self", policy=GATED)
    assert (rows["time"].outcome, rows["device"].outcome) == (Outcome.UNCHANGED, Outcome.ERROR)
    assert "the profiler wrote no file" in rows["device"].reason.message
    assert rows["device"] in result.failures


VARIANTS = Path(__file__).parents[2] / "docs" / "results" / "h200-variants.jsonl"
RECORDED = [json.loads(line) for line in VARIANTS.read_text(encoding="utf-8").splitlines()]
"""Variants on that H200: their times, and those of their dispatch and kernels."""
HIDDEN = because(Note.HIDDEN).message


def shares(row):
    """Return the shares of kernels and of dispatch in the time of a recorded variant."""
    return row["device_time"] / row["median_seconds"], row["dispatch_time"] / row["median_seconds"]


def test_the_time_of_dispatch_predicts_whose_kernels_are_hidden():
    """One product, whose kernels take 0.52 of its time, counts as hidden by its dispatch alone."""
    told = [(share < HIDDEN_SHARE, dispatch > HIDDEN_DISPATCH) for share, dispatch in map(shares, RECORDED)]
    assert Counter(told) == {(True, True): 10, (False, True): 1, (False, False): 5}


@pytest.mark.parametrize(
    ("variant", "hidden"),
    [
        ("test_conv2d_3x3[compiler=none,precision=float32]", True),
        ("test_matmul[compiler=none,precision=float32]", False),
    ],
)
def test_kernels_hidden_behind_dispatch_are_named_with_a_profile_and_without(measured, variant, hidden):
    """On the readings of an H200."""
    (row,) = (row for row in RECORDED if row["case"].endswith(variant))
    script = {
        "seconds": row["median_seconds"],
        "kernel": 1e6 * row["device_time"],
        "dispatch": min(1.0, shares(row)[1]),
    }
    result, rows = measured(script=script, device=h200())
    assert (HIDDEN in rows["time"].reason.message) is hidden
    assert summary.is_hidden(result.variant_result.facts) is hidden
    assert rows["energy"].values.contender > 0
    table = io.StringIO()
    Console(file=table, width=100).print(*terminal.variant_tables([result.variant_result], 80))
    assert ("hidden behind dispatch" in table.getvalue()) is hidden

    _, rows = measured(script=script, device=h200(), against="self")
    assert rows["time"].outcome is Outcome.UNCHANGED
    assert "device_time" not in rows
    assert rows["time"].reason.message.endswith(HIDDEN) is hidden


def test_hidden_kernels_are_named_where_another_side_is_profiled(measured):
    _, rows = measured(against="env:KERNEL=100", policy=GATED, script={"seconds": 9e-4, "kernel": 100})
    assert HIDDEN in rows["time"].reason.message
