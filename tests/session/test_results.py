"""Percentiles, and contracts between the variants of a race."""

import random
from dataclasses import replace

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, steady, variants_of
from tfbench.model import Case, Claim, Outcome, Run, Sample
from tfbench.policy import preset
from tfbench.race.race import Race, RaceConfig
from tfbench.session.results import claimed, percentiles

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")


def sample(rounds, iterations=1):
    seconds = tuple(1e-3 * (1 + number / rounds) for number in range(rounds))
    return Sample(CASE, (Run(seconds, iterations),))


@pytest.mark.parametrize(
    ("rounds", "iterations", "reported"),
    [
        (63, 1, {"p50"}),
        (64, 1, {"p50", "p90"}),
        (661, 1, {"p50", "p90"}),
        (662, 1, {"p50", "p90", "p99"}),
        (1000, 2, set()),
    ],
)
def test_a_percentile_needs_enough_rounds_of_single_iterations(rounds, iterations, reported):
    assert set(percentiles(sample(rounds, iterations))) == reported


def test_percentiles_are_taken_over_all_rounds():
    found = percentiles(sample(1000))
    assert found["p50"] == pytest.approx(1.5e-3, rel=1e-2)
    assert found["p90"] == pytest.approx(1.9e-3, rel=1e-2)
    assert found["p99"] == pytest.approx(1.99e-3, rel=1e-2)


def raced(*seconds, claims):
    """The contract rows of the last variant in a race of a=0, a=1 …; `claims` maps other variants to factors."""
    clock = Clock()
    entrants = variants_of(*map(str, range(len(seconds))))
    reported = tuple(
        Claim("faster_than" if factor else "as_fast", f"a={other}", (("a", other),), factor)
        for other, factor in claims.items()
    )
    entrants[-1] = replace(entrants[-1], case=replace(entrants[-1].case, claims=reported))
    race = Race(entrants, ScriptedLauncher(clock, [steady(value) for value in seconds]), preset("quick"),
                RaceConfig(10, range(6)), clock, random.Random(1))  # fmt: skip
    race.run()
    return claimed(race, len(seconds) - 1)


@pytest.mark.parametrize(
    ("seconds", "factor", "outcome"),
    [((3e-3, 1e-3), 2.0, Outcome.UNCHANGED), ((3e-3, 2.9e-3), 2.0, Outcome.REGRESSED), ((1e-3, 3e-3, 1e-3), 2.0, None)],
)
def test_a_variant_must_be_faster_than_the_other_by_the_factor(seconds, factor, outcome):
    (row,) = raced(*seconds, claims={"0": factor})
    assert row.outcome is (outcome or Outcome.REGRESSED)
    assert row.metric == "contract:faster_than"


def test_a_contract_can_name_a_variant_that_is_not_the_reference():
    rows = raced(1e-3, 6e-3, 2e-3, claims={"1": 2.0, "0": 2.0})
    assert {row.metric: row.outcome for row in rows} == {
        "contract:faster_than a=1": Outcome.UNCHANGED,
        "contract:faster_than a=0": Outcome.REGRESSED,
    }


def test_a_contract_with_a_variant_outside_the_race_is_inconclusive():
    (row,) = raced(3e-3, 1e-3, claims={"9": 2.0})
    assert row.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("seconds", "outcome"), [((2e-3, 2e-3), Outcome.UNCHANGED), ((2e-3, 1e-3), Outcome.REGRESSED), ((1e-3, 2e-3), Outcome.REGRESSED)]
)  # fmt: skip
def test_a_negative_control_must_be_neither_faster_nor_slower(seconds, outcome):
    (row,) = raced(*seconds, claims={"0": 0.0})
    assert (row.metric, row.outcome) == ("contract:as_fast", outcome)
