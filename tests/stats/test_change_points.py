"""Steps of a history are found soon, and unchanged code is left alone; an independent library finds the same."""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import ruptures

from tests.length import WHOLE
from tfbench.policy import Policy
from tfbench.stats.change_points import HISTORY_DRIFT, change_points, drift, half_widths

POLICY = Policy()
RECORDED = Path(__file__).parents[1] / "data" / "recorded-races.jsonl"
STEP = math.log(1.03)


def recorded():
    """Ratio of each race of unchanged code, by workload, and of each race of code that was slowed down by 3%."""
    same, slower = defaultdict(list), defaultdict(list)
    for line in RECORDED.read_text().splitlines():
        row = json.loads(line)
        if row["method"] == "race" and row["slowdown"] in (0.0, 0.03):
            (slower if row["slowdown"] else same)[row["workload"]].append(float(np.median(row["effects"])))
    return same, slower


def noises(rng):
    """Noise of one run, by name: recorded races, the floors of four of five workloads, and worse."""
    same, _ = recorded()
    found = {f"recorded {name}": lambda n, v=values: rng.choice(v, n) for name, values in same.items()}
    found |= {
        "normal, 0.6%": lambda n: rng.normal(0, 0.006, n),
        "normal, 0.8%": lambda n: rng.normal(0, 0.008, n),
        "heavy tails, 0.8%": lambda n: rng.standard_t(3, n) * 0.008 / math.sqrt(3),
    }
    return found


def odd_noises(rng):
    """Noise that no recorded race has; the figures are printed and not required."""

    def correlated(n):
        x = rng.normal(0, 0.008 * math.sqrt(1 - 0.3**2), n)
        for i in range(1, n):
            x[i] += 0.3 * x[i - 1]
        return x

    return {
        "normal, 1.2%": lambda n: rng.normal(0, 0.012, n),
        "normal, 5.5%": lambda n: rng.normal(0, 0.055, n),
        "correlated by 0.3, 0.8%": correlated,
        "0.8%, one run in 20 is 30% faster": lambda n: rng.normal(0, 0.008, n) - 0.3 * (rng.random(n) < 0.05),
    }


def stepped(values, at, step=STEP):
    moved = np.array(values, float)
    moved[at:] += step
    return moved


def test_a_step_is_found_where_it_is_and_after_at_most_five_runs():
    rng = np.random.default_rng(1)
    values = stepped(rng.normal(0, 0.005, 80), 60)
    (found,) = change_points(values)
    assert found.low <= 60 <= found.high
    assert abs(found.index - 60) <= 1
    assert [len(change_points(values[:length])) for length in (63, 65)] == [0, 1]
    assert abs(found.effect - STEP) < found.margin < 0.01


def test_earlier_runs_decide_alone_so_later_ones_add_and_remove_no_alarm():
    rng = np.random.default_rng(2)
    values = stepped(stepped(rng.normal(0, 0.004, 120), 40), 80, -STEP)
    whole = change_points(values)
    assert [round(one.effect, 2) for one in whole] == [0.03, -0.03]
    numbers = [len(change_points(values[:length])) for length in range(11, 121)]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("odd", [1, 2])
def test_a_few_outliers_in_succession_are_no_change(odd):
    rng = np.random.default_rng(odd)
    values = rng.normal(0, 0.004, 100)
    values[50 : 50 + odd] += 0.3
    values[100 - odd :] -= 0.3
    assert change_points(values) == ()


def test_a_change_below_the_smallest_effect_is_not_reported():
    values = stepped(np.random.default_rng(3).normal(0, 0.001, 100), 50, 0.008)
    assert change_points(values) == ()
    values = stepped(values, 50, 0.012)
    assert len(change_points(values)) == 1
    assert change_points(values, effect=0.03) == ()


@pytest.mark.parametrize("length", [0, 1, 2, 5, 10, 11, 12])
def test_short_and_constant_series_have_no_change(length):
    assert change_points(np.zeros(length)) == ()


def test_a_slow_drift_is_measured_although_no_step_is_large():
    rng = np.random.default_rng(4)
    values = rng.normal(0, 0.003, 60) + np.linspace(0, 0.03, 60)
    moved = drift(values, slice(0, 3))
    assert moved.effect > max(HISTORY_DRIFT, moved.margin)
    assert abs(moved.effect - 0.028) < moved.margin
    assert abs(drift(rng.normal(0, 0.005, 60), slice(0, 3)).effect) < HISTORY_DRIFT


def test_the_widths_of_intervals_ignore_unbounded_ones():
    assert half_widths([(0.0, math.inf), (0.98, 1 / 0.98)]) == pytest.approx(-math.log(0.98))
    assert half_widths([(0.0, 1.0)]) == 0.0


def test_an_independent_library_finds_the_recorded_steps_in_the_same_places():
    same, slower = recorded()
    rng = np.random.default_rng(5)
    agreed = 0
    for name, values in same.items():
        steps = rng.choice(slower[name] if slower[name] else [STEP], 15)
        series = np.concatenate([values, steps])
        (found,) = change_points(series)
        (theirs, _) = ruptures.Binseg(model="l2", jump=1).fit(series).predict(n_bkps=1)
        agreed += abs(found.index - theirs) <= 1
    assert agreed == len(same) == 13


def rates(noise, rng, series, steps):
    """Return false changes in 1,000 runs, and the share of 3% steps that are found within five runs."""
    false = sum(len(change_points(noise(1000))) for _ in range(series)) / series
    hits = 0
    for _ in range(steps):
        at = int(rng.integers(20, 150))
        found = change_points(stepped(noise(at + 5), at))
        hits += any(abs(one.index - at) <= 2 and one.effect > 0 for one in found)
    return false, hits / steps


@pytest.mark.chaos
def test_rates_of_simulated_histories():
    """Print the figures of docs/history.md: ``TFBENCH_CHAOS=whole pytest -m chaos -s tests/stats/test_change_points.py``."""
    rng = np.random.default_rng(6)
    required = noises(rng)
    print("\n| noise of a run | false changes in 1,000 runs | 3% steps found within 5 runs |\n| --- | --- | --- |")
    for name, noise in {**required, **odd_noises(rng)}.items():
        false, found = rates(noise, rng, *((100, 1000) if WHOLE else (25, 250)))
        print(f"| {name} | {false:.2f} | {found:.1%} |")
        if name in required:
            assert false <= 1, name
            assert found >= 0.95, name


@pytest.mark.slow
def test_agreement_with_an_independent_library():
    """Print how often PELT (Killick, Fearnhead & Eckley 2012; with a linear kernel, the cost is L2) finds the same changes in simulated histories."""
    rng = np.random.default_rng(7)
    same, total, alone = 0, 0, 0
    for noise in noises(rng).values():
        for _ in range(40):
            at = sorted(rng.choice(np.arange(1, 7), 2, replace=False) * 30)
            values = stepped(stepped(noise(220), at[0], rng.choice([-1, 1]) * 0.03), at[1], rng.choice([-1, 1]) * 0.04)
            scale = float(np.median(np.abs(np.diff(values)))) / 0.954
            theirs = ruptures.KernelCPD("linear", min_size=4).fit(values).predict(pen=25 * max(scale, 0.002) ** 2)
            ours = [one.index for one in change_points(values)]
            near = [one for one in ours if any(abs(one - other) <= 2 for other in theirs[:-1])]
            same, total, alone = same + len(near), total + len(ours), alone + len(theirs) - 1 - len(near)
    print(f"\n{same} of our {total} change points are PELT's within two runs; PELT has {alone} others")
    assert same >= 0.95 * total
