"""Error rates of the verdict on the mean of all cases, from ratios and launches of unchanged code that were measured."""

import json
import math
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.session.test_suite_gate import result
from tfbench.model import Case, Effect, Outcome
from tfbench.policy import preset
from tfbench.session.session import SuiteGate
from tfbench.stats.interval import interval

ROOT = Path(__file__).parents[2]
STANDARD = preset("standard").with_common_ancestors()
ONE_SIDE_CACHED = range(9, 21)
"""Runs of the calibration in which one side only had cached bytecode, before decision 4."""
SIZE = 40


def judged(ratios, again, policy=STANDARD):
    """Returns the outcome of a suite.

    Args:
        ratios: Those of the first races, one per case.
        again: Returns the ratio of a case that is raced once more, by its number and whether it confirms.
    """
    results = [result(Case(str(number), "", ""), one) for number, one in enumerate(ratios)]
    races = SimpleNamespace(again=lambda case, _, confirms: again(int(case.name), confirms))
    strategy = SimpleNamespace(baseline_entrant=lambda case: case, is_gated=lambda case: True)
    return SuiteGate(0.005, policy, races, strategy).judge(results).outcome


@cache
def races_of_unchanged_code():
    """Returns the races of each run: workload, log-ratios of the launches, and their pairs."""
    runs = defaultdict(list)
    path = ROOT / "docs" / "data" / "calibration-standard-earlier.jsonl"
    for trial in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        counts = trial["method"] == "race" and not trial["slowdown"] and trial["workload"] != "elementwise"
        if counts and trial["run"] not in ONE_SIDE_CACHED:
            runs[trial["run"]].append((trial["workload"], tuple(trial["effects"]), tuple(trial["pairs"])))
    return list(runs.values())


def successive_runs():
    """Returns suites of 40 cases, each from successive runs."""
    races = [race for run in races_of_unchanged_code() for race in run]
    starts = range(0, len(races) + 1, SIZE)
    return [races[start:end] for start, end in pairwise(starts)]


def samples():
    """Returns suites of 40 cases, drawn from all runs."""
    races, rng = [race for run in races_of_unchanged_code() for race in run], np.random.default_rng(4)
    return [[races[one] for one in rng.choice(len(races), SIZE, replace=False)] for _ in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("suites", [successive_runs, samples])
@pytest.mark.parametrize(("slowdown", "least", "most"), [(0.0, 0, 0), (0.005, 0.95, 1)])
def test_launches_show_a_slowdown_of_half_a_percent_and_none_if_there_is_none(slowdown, least, most, suites):
    """Another pass has the first three launches of other races of the same workloads."""

    @cache
    def ratio(launches, pairs):
        effects = [
            Effect(effect + math.log1p(slowdown), pair, 0.0) for effect, pair in zip(launches, pairs, strict=True)
        ]
        return interval(effects, 0.05, STANDARD, shared_zygote=False)

    every, rng, found, suites = defaultdict(list), np.random.default_rng(5), 0, suites()
    for run in races_of_unchanged_code():
        for workload, *race in run:
            every[workload].append(race)
    for suite in suites:

        def again(number, confirms, suite=suite):
            others = every[suite[number][0]]
            launches, pairs = others[rng.integers(len(others))]
            return ratio(launches[:3], pairs[:3])

        found += judged([ratio(*race) for _, *race in suite], again) is Outcome.REGRESSED
    assert len(suites) >= 5
    assert least * len(suites) <= found <= most * len(suites)
