"""From what a race gave to rows: percentiles, and contracts between variants."""

import random
from dataclasses import replace

import pytest

from tests.scripted import Clock, ScriptedLauncher, steady, variants_of
from tfbench.model import Case, Outcome, Run, Sample
from tfbench.policy import preset
from tfbench.race.sequential import Race, Terms
from tfbench.results import factors, named_by, percentiles

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")


def sample(rounds, iterations=1):
    seconds = tuple(1e-3 * (1 + number / rounds) for number in range(rounds))
    return Sample(CASE, (Run(seconds, iterations),))


@pytest.mark.parametrize(
    ("rounds", "iterations", "told"),
    [
        (63, 1, {"p50"}),
        (64, 1, {"p50", "p90"}),
        (661, 1, {"p50", "p90"}),
        (662, 1, {"p50", "p90", "p99"}),
        (1000, 2, set()),
    ],
)
def test_a_percentile_needs_rounds_enough_and_single_iterations(rounds, iterations, told):
    assert set(percentiles(sample(rounds, iterations))) == told


def test_percentiles_are_those_of_the_rounds():
    found = percentiles(sample(1000))
    assert found["p50"] == pytest.approx(1.5e-3, rel=1e-2)
    assert found["p90"] == pytest.approx(1.9e-3, rel=1e-2)
    assert found["p99"] == pytest.approx(1.99e-3, rel=1e-2)


def raced(*seconds, contracts):
    """A race of variants a=0, a=1 …, the last of which has contracts."""
    clock = Clock()
    entrants = variants_of(*map(str, range(len(seconds))))
    launcher = ScriptedLauncher(clock, [steady(value) for value in seconds])
    race = Race(entrants, launcher, preset("quick"), Terms(10, range(6)), clock, random.Random(1))
    race.run()
    last = len(seconds) - 1
    race.launches = [
        replace(launch, runs=tuple(_with(run, contracts) if index == last else run for index, run in enumerate(launch.runs)))
        for launch in race.launches
    ]  # fmt: skip
    return factors(race, last)


def _with(run, contracts):
    return run and replace(run, facts={**run.facts, "contracts": contracts})


@pytest.mark.parametrize(
    ("seconds", "factor", "outcome"),
    [((3e-3, 1e-3), 2.0, Outcome.UNCHANGED), ((3e-3, 2.9e-3), 2.0, Outcome.REGRESSED), ((1e-3, 3e-3, 1e-3), 2.0, None)],
)
def test_a_variant_is_held_to_be_faster_than_another_one(seconds, factor, outcome):
    (row,) = raced(*seconds, contracts={"faster_than": {"a=0": factor}})
    assert row.outcome is (outcome or Outcome.REGRESSED)
    assert row.metric == "contract:faster_than"


def test_variants_that_are_no_reference_can_be_compared():
    rows = raced(1e-3, 6e-3, 2e-3, contracts={"faster_than": {"a=1": 2.0, "a=0": 2.0}})
    assert {row.metric: row.outcome for row in rows} == {
        "contract:faster_than a=1": Outcome.UNCHANGED,
        "contract:faster_than a=0": Outcome.REGRESSED,
    }


@pytest.mark.parametrize(
    ("levels", "outcome"), [("b=0", Outcome.ERROR), ("a=1", Outcome.ERROR), ("a=9", Outcome.INCONCLUSIVE)]
)
def test_a_contract_about_nobody(levels, outcome):
    (row,) = raced(3e-3, 1e-3, contracts={"faster_than": {levels: 2.0}})
    assert row.outcome is outcome


def test_levels_that_are_left_out_are_the_cases_own():
    case = Case("n", "w", "w", (("compiler", "xla"), ("precision", "float32")))
    assert named_by(case, "compiler=none") == {"compiler": "none", "precision": "float32"}
    assert named_by(case, "compiler=none, precision=float16") == {"compiler": "none", "precision": "float16"}
    assert named_by(case, "layout=NHWC") is None
    assert named_by(case, "compiler=xla") is None
