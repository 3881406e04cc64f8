"""Two sides, with a second race after a `regressed` of time, first call or peak memory."""

import random

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, sides_of, steady
from tfbench.model import Case, Outcome
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace

CASE = Case("w.py::w", "w", "w.py::w")
POLICY = Policy()
MIB = 1 << 20


def confirmed_race(scripts, memory=()):
    clock = Clock()
    launcher = ScriptedLauncher(clock, scripts, seed=1)
    launcher.memory = memory
    made = ConfirmedRace(sides_of(CASE), launcher, POLICY, 1, clock, random.Random(0))
    made.run()
    return made


def lucky(factor):
    """Slower or larger in the first race only, whose pairs of zygotes have the lower numbers."""
    return lambda number, pair, rng: factor if pair < POLICY.zygotes else 1.0


def of(base, script):
    return lambda number, pair, rng: base * script(number, pair, rng)


@pytest.mark.parametrize(
    ("script", "outcome", "reported"),
    [
        (lambda *_: 1.0, Outcome.UNCHANGED, "15.00 MiB before, 15.00 MiB now"),
        (lambda *_: 1.2, Outcome.REGRESSED, "found twice, the first time as 15.00 MiB before, 18.00 MiB now"),
        (lucky(1.2), Outcome.INCONCLUSIVE, "fresh launches did not confirm it"),
    ],
)
def test_a_regression_of_memory_counts_only_if_confirmed(script, outcome, reported):
    found = confirmed_race([steady(1e-4)] * 2, [lambda *_: 15 * MIB, of(15 * MIB, script)])
    assert found.memory.outcome is outcome
    assert reported in found.memory.reason.message
    assert found.decision.outcome is Outcome.UNCHANGED
    assert len(found.races) == (1 if outcome is Outcome.UNCHANGED else 2)


@pytest.mark.parametrize(
    ("script", "outcome"), [(lambda *_: 1.1, Outcome.REGRESSED), (lucky(1.1), Outcome.INCONCLUSIVE)]
)
def test_a_regression_of_time_counts_only_if_confirmed(script, outcome):
    found = confirmed_race([steady(1e-4), of(1e-4, script)])
    assert found.decision.outcome is outcome
    assert len(found.races) == 2
    assert found.memory is None
