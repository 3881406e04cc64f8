"""The races of a session, with launches that follow a script."""

from copy import copy
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, steady, variants_of
from tfbench.errors import BenchmarkError
from tfbench.model import Case, Claim, Note, Outcome, Reason, because
from tfbench.policy import preset
from tfbench.race.timer import Phase
from tfbench.session.races import Races
from tfbench.session.request import RunProgress
from tfbench.sides.spec import Side

CLAIMED = Case("w.py::w[a=y]", "w", "w.py::w", (("a", "y"),), False, claims=(Claim("as_fast", "a=x", (("a", "x"),)),))
CASES = [entrant.case for entrant in variants_of("x", "y")]
CONTENDER, RIVAL = (Side(name, "python", Path("/")) for name in ("contender", "baseline"))


class Launcher(ScriptedLauncher):
    """Is interrupted by Ctrl-C in this launch."""

    interrupted_at = -1
    repaired = False
    """Whether the contender works where the baseline breaks."""

    def open(self, entrants, pair):
        if self.repaired and len(entrants) == 1:
            self.broken = self.dies_at = {}
        if len(self.pairs) == self.interrupted_at:
            raise KeyboardInterrupt
        return super().open(entrants, pair)


def races(*seconds, interrupted_at=-1):
    launcher = Launcher(Clock(), [steady(value) for value in seconds])
    launcher.interrupted_at = interrupted_at
    shown = []
    request = SimpleNamespace(policy=preset("quick"), seed=1)
    return Races(request, launcher, CONTENDER, 1, RunProgress(lambda now: shown.append(copy(now)), 2)), shown


def until_interrupted(results):
    """Return the results before Ctrl-C."""
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(results)
    return found


def test_a_race_of_variants_has_the_policy_of_its_entrants_as_one_of_sides_has():
    made, _ = races(1e-3, 2e-3)
    made.launcher.policy_of = lambda policy, entrants: policy.on_gpu()
    assert made._race(CASES).policy == preset("quick").on_gpu()


def test_variants_race_the_reference_and_progress_follows_each_launch():
    made, shown = races(1e-3, 2e-3)
    found = list(made.variants(CASES[::-1]))
    assert [result.case.label for result in found] == ["a=x", "a=y"]
    assert found[1].variant_result.ratio.center == pytest.approx(2, rel=0.05)
    assert shown[0].text == "w"
    assert shown[0].race is None
    assert shown[-1].race is not None


@pytest.mark.parametrize(("launches", "known"), [(0, 0), (1, 2)])
def test_variants_that_are_interrupted_give_what_the_launches_so_far_showed(launches, known):
    made, _ = races(1e-3, 2e-3, interrupted_at=launches)
    assert len(until_interrupted(made.variants(CASES))) == known


@pytest.mark.parametrize(("launches", "known"), [(0, 0), (3, 1)])
def test_sides_that_are_interrupted_give_a_result_if_any_look_was_taken(launches, known):
    made, _ = races(1e-3, 2e-3, interrupted_at=launches)
    found = until_interrupted(made.sides(CASES[0], RIVAL))
    assert [result.verdict.outcome for result in found] == [Outcome.INCONCLUSIVE] * known


def test_a_note_is_appended_to_the_reason_and_each_side_has_its_own_sample():
    made, _ = races(1e-3, 1e-3)
    (result,) = made.sides(CASES[0], RIVAL, None, because(Note.TOO_FEW_AGAIN))
    assert result.verdict.reason.message.endswith("; too few cases could be raced again to confirm it")
    assert result.sample != result.baseline


@pytest.mark.parametrize(
    ("fault", "repaired", "outcome"),
    [
        ({"broken": {0: BenchmarkError("old")}}, True, Outcome.INCOMPARABLE),
        ({"broken": {0: BenchmarkError("old")}}, False, Outcome.ERROR),
        ({"dies_at": {0: 0}}, True, Outcome.INCOMPARABLE),
    ],
)
def test_a_case_that_only_the_baseline_breaks_is_incomparable_if_it_works_here(fault, repaired, outcome):
    made, _ = races(1e-3, 1e-3)
    vars(made.launcher).update(fault, repaired=repaired)
    (result,) = made.sides(CASES[0], RIVAL)
    assert result.verdict.outcome is outcome
    assert ("on the baseline side" in result.verdict.reason.message) == repaired


def test_a_case_that_the_contender_or_a_later_launch_breaks_is_an_error():
    for fault in ({1: 0}, {0: 1}):
        made, _ = races(1e-3, 1.02e-3)
        made.launcher.dies_at = fault
        (result,) = made.sides(CASES[0], RIVAL)
        assert result.verdict.outcome is Outcome.ERROR


def test_a_case_alone_is_new_for_the_given_reason():
    made, _ = races(1e-3)
    (result,) = made.alone(CASES[0], Reason("not-in-baseline", "no counterpart"))
    assert (result.verdict.outcome, result.verdict.reason.message) == (Outcome.NEW, "no counterpart")


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("second", "outcome", "reported"),
    [
        (2e-3, Outcome.REGRESSED, "found twice"),
        (1e-3, Outcome.INCONCLUSIVE, "a first race said: 0.50x as fast"),
    ],
)
def test_a_broken_contract_on_time_is_raced_again_in_fresh_processes_of_other_zygotes(alone, second, outcome, reported):
    made, _ = races(1e-3, 2e-3)
    launcher, zygotes = made.launcher, preset("quick").zygotes
    launcher.scripts[1] = lambda launch, pair, rng: steady(second if pair >= zygotes else 2e-3)(launch, pair, rng)
    if alone:
        (row,) = made.claims(CLAIMED, [CASES[0]])
    else:
        (row,) = list(made.variants([CASES[0], CLAIMED]))[1].metrics
    assert (row.outcome, row.metric) == (outcome, "contract:as_fast")
    assert reported in row.reason.message
    assert {pair >= zygotes for pair in launcher.pairs} == {False, True}
    seconds, second = launcher.stopwatch.seconds, sum(pair >= zygotes for pair in launcher.pairs)
    assert seconds[Phase.CONFIRMING] == pytest.approx(second * launcher.launch_seconds)
    assert seconds[Phase.ROUNDS] == pytest.approx((len(launcher.pairs) - second) * launcher.launch_seconds)


def test_a_contract_that_was_not_confirmed_before_ctrl_c_is_open():
    made, _ = races(1e-3, 2e-3)
    list(made.variants([CASES[0], CLAIMED]))
    first = sum(pair < preset("quick").zygotes for pair in made.launcher.pairs)
    made, _ = races(1e-3, 2e-3, interrupted_at=first + 1)
    row = until_interrupted(made.variants([CASES[0], CLAIMED]))[1].metrics[0]
    assert row.outcome is Outcome.INCONCLUSIVE
    assert "interrupted before this was confirmed" in row.reason.message
