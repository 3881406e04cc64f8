"""Two sides, with a second race after a `regressed` of time, first call or peak memory."""

import math
import random
from dataclasses import replace
from functools import partial

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, sides_of, steady
from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed
from tfbench.metrics.exact import first_call, memory
from tfbench.model import TIME, Case, Outcome, Reason, Statistic
from tfbench.policy import Policy, preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.stats.verdict import Terms, decide

CASE = Case("w.py::w", "w", "w.py::w")
POLICY = Policy(rare_calls=0)
MIB = 1 << 20


def made(scripts, peaks=(), policy=POLICY, cases=1, seed=1, launch_seconds=0.7, **more):
    clock = Clock()
    launcher = ScriptedLauncher(clock, scripts, seed, launch_seconds)
    launcher.memory = peaks
    return ConfirmedRace(sides_of(CASE), launcher, policy, cases, clock, random.Random(0), **more)


def peak(found):
    """Return the verdict on the peak of memory, if there is one."""
    return next((row for row in found.sampled if row.metric == "peak_host_memory"), None)


def confirmed_race(scripts, peaks=()):
    found = made(scripts, peaks)
    found.run()
    return found


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
    assert peak(found).outcome is outcome
    assert reported in peak(found).reason.message
    assert found.decision.outcome is Outcome.UNCHANGED
    assert len(found.races) == (1 if outcome is Outcome.UNCHANGED else 2)


@pytest.mark.parametrize(
    ("script", "outcome"), [(lambda *_: 10.0, Outcome.REGRESSED), (lucky(10.0), Outcome.INCONCLUSIVE)]
)
def test_a_slower_warm_up_is_confirmed_by_launches_that_warm_up(script, outcome):
    found = made([steady(1e-4)] * 2)
    found.first.launcher.warm_ups = [lambda *_: 0.5, of(0.5, script)]
    found.run()
    (row,) = [row for row in found.sampled if row.metric == "warm_up"]
    assert row.outcome is outcome
    first, second = found.races
    assert [len(race.short_launches) for race in found.races] == [0, 0]
    assert found.decision.outcome is Outcome.UNCHANGED
    assert found.decision.comparison.launches == len(first.launches)
    assert second.launches


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (lambda *_: 1.1, Outcome.REGRESSED),
        (lambda *_: 0.9, Outcome.IMPROVED),
        (lucky(1.1), Outcome.INCONCLUSIVE),
        (lambda number, pair, rng: 1.1 if pair < POLICY.zygotes else 0.9, Outcome.INCONCLUSIVE),
    ],
)
def test_a_change_of_time_counts_only_if_confirmed(script, outcome):
    found = confirmed_race([steady(1e-4), of(1e-4, script)])
    assert found.decision.outcome is outcome
    assert (found.decision.reason.code == "not-confirmed") is (outcome is Outcome.INCONCLUSIVE)
    assert len(found.races) == 2
    assert peak(found) is None


def test_a_second_race_ends_as_unchanged_only_below_the_minimum_effect():
    def script(factor, number, pair, rng):  # first 1.9% slower, then about 1.5%, which is within the tolerance
        return factor * rng.gauss(1.019 if pair < POLICY.zygotes else 1.015, 0.003)

    found = confirmed_race([steady(1e-4), partial(script, 1e-4)])
    assert found.decision.outcome is Outcome.REGRESSED
    second = found.races[1]
    assert len(second.launches) > POLICY.looks[2]
    usual = decide(second.effects(1)[: POLICY.looks[3]], 1, Terms(POLICY, 1, False, POLICY.step_time), False)
    assert usual.outcome is Outcome.UNCHANGED


def test_the_second_race_has_zygotes_of_its_own_and_both_count():
    found = confirmed_race([steady(1e-4), of(1e-4, lambda *_: 1.1)])
    first, second = found.races
    started = [race.config.pairs[look] for race in found.races for look in range(POLICY.looks[0])]
    assert found.first.launcher.started == started  # those of the first look at once
    assert {launch.pair for launch in first.launches} <= set(range(POLICY.zygotes))
    assert {launch.pair for launch in second.launches} <= set(range(POLICY.zygotes, 2 * POLICY.zygotes))
    assert found.launches == len(first.launches) + len(second.launches) == len(found.runs(0)) == len(found.runs(1))
    assert found.runs(1) == [*first.runs(1), *second.runs(1)]
    assert found.rounds == first.rounds(1) + second.rounds(1)
    assert found.wall_seconds == first.wall_seconds + second.wall_seconds > 0
    assert (second.config.confirms, second.config.patience) == (Statistic.MEDIAN, len(first.all_launches))
    assert second.config.cases == first.config.cases


@pytest.mark.parametrize("looks", [(2, 4), (3, 6), (4, 8)])
def test_the_launches_of_the_first_look_make_their_first_calls_two_at_a_time(looks):
    found = made([steady(1e-4)] * 2, policy=replace(POLICY, looks=looks))
    found.run()
    numbers = [launch.ahead and launch.ahead.number for launch in found.first.launcher.launches]
    assert numbers[: looks[0]] == {2: [1, None], 3: [1, None, None], 4: [1, None, 3, None]}[looks[0]]
    assert set(numbers[looks[0] :]) <= {None}


ALONE = replace(POLICY, confirm=False)


def test_without_confirmation_one_race_decides():
    found = made([steady(1e-4), of(1e-4, lambda *_: 1.1)], policy=ALONE)
    found.run()
    assert found.decision.outcome is Outcome.REGRESSED
    assert len(found.races) == 1


def facts(launches):
    return *([launch.runs[side].facts for launch in launches] for side in (0, 1)), [one.pair for one in launches]


def test_memory_is_judged_with_the_cases_and_pairs_of_the_run():
    scripts = [lambda number, *_: (100 + number % 2) * MIB, lambda number, *_: (103 + number % 3) * MIB]
    found = made([steady(1e-4)] * 2, scripts, policy=ALONE, cases=40)
    found.run()
    (race,) = found.races

    before, now, pairs = facts(race.all_launches)
    assert peak(found) == memory(CASE, before, now, ALONE, 40, pairs)
    assert peak(found) != memory(CASE, before, now, ALONE, 1, pairs)
    assert found.first_call == first_call(*facts(race.launches), ALONE, 40)  # decided before the memory
    assert found.first_call.outcome is Outcome.UNCHANGED


def interrupted(launches, scripts, **changes):
    """Return a race that Ctrl-C ended after this number of launches."""
    found = made(scripts, **changes)

    def progress(race):
        if found.launches == launches:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found.run(progress)
    return found


def test_an_interrupted_race_confirms_no_change_and_keeps_one_that_needs_no_confirmation():
    slower = [steady(1e-4), of(1e-4, lambda *_: 1.5)]
    found = interrupted(3, slower)
    first = found.races[0].decisions[1].reason.message
    assert interrupted(2, [steady(1e-4)] * 2).decision.outcome is Outcome.INCONCLUSIVE
    text = f"the run was interrupted before this was confirmed: {first}"
    assert (found.decision.outcome, found.decision.reason) == (Outcome.INCONCLUSIVE, Reason("interrupted", text))
    assert interrupted(3, slower, policy=ALONE).decision.outcome is Outcome.REGRESSED


def test_a_race_that_is_disturbed_too_often_is_given_up_with_the_reason():
    found = made([steady(1e-4)] * 2)
    nothing = (found.decision, found.first_call, peak(found), found.launches, found.first.abort_reason)
    assert nothing == (None, None, None, 0, "")
    found.first.launcher.disturbed_from = 0
    found.run()
    assert found.first.abort_reason == "a busy neighbour"
    assert len(found.first.launcher.pairs) == POLICY.disturbed_launches + 1


def test_a_failure_of_one_side_ends_the_race_and_the_launch_that_was_to_be_next():
    found, error = made([steady(1e-4)] * 2), BenchmarkError("it raised")
    launcher = found.first.launcher
    launcher.broken = {1: error}
    found.run()
    assert (found.failures, found.decision, len(found.races)) == ({1: error}, None, 1)
    assert launcher.killed == len(launcher.launches) == 2


# First calls and memory peaks that are open once the time is decided

TIMES = [steady(1e-4)] * 2


def call(seconds, scatter):
    """Return the script of a first call that scatters between launches by this deviation of its logarithm."""
    return lambda number, pair, rng: seconds * math.exp(rng.gauss(0, scatter))


def with_first_calls(scripts, prepare=lambda launcher: None, times=TIMES, **more):
    found = made(times, cases=320, seed=3, **more)
    found.first.launcher.first_calls = scripts
    prepare(found.first.launcher)
    found.run()
    return found


def test_a_first_call_gets_the_launches_that_decide_it():
    found = with_first_calls([call(0.5, 0.12)] * 2)
    (race,) = found.races
    assert found.first_call.outcome is Outcome.UNCHANGED
    assert race.short_launches
    assert len(race.all_launches) == found.first_call.comparison.launches
    assert len(race.all_launches) in POLICY.looks
    assert {len(run.seconds) for launch in race.short_launches for run in launch.runs} == {1}
    assert [one.pair for one in race.all_launches] == [n % POLICY.zygotes for n in range(len(race.all_launches))]


def test_launches_after_the_first_look_have_no_first_calls():
    found = with_first_calls([], times=[steady(1e-4, 0.03)] * 2)
    (race,) = found.races
    with_first = ["first_call" in launch.runs[1].facts for launch in race.launches]
    assert len(with_first) > POLICY.looks[0]
    assert with_first == [number < POLICY.looks[0] for number in range(len(with_first))]
    assert found.first_call.comparison.launches == POLICY.looks[0]


def first_calls_along_with_the_time(scatter, policy=POLICY):
    """Race a step whose time takes many launches; returns its first calls of about half a second, 0 without one."""
    found = with_first_calls([call(0.5, scatter)] * 2, times=[steady(1e-4, 0.03)] * 2, policy=policy)
    return [launch.runs[1].facts.get("first_call", 0.0) for launch in found.races[0].launches]


def test_first_calls_are_sampled_along_with_the_time_until_a_look_decides_them():
    seconds = first_calls_along_with_the_time(0.12)
    number = sum(map(bool, seconds))
    assert POLICY.looks[0] < number < len(seconds)
    assert number in POLICY.looks
    assert all(seconds[:number])


def test_an_expensive_case_is_not_raced_for_its_first_call():
    (race,) = with_first_calls([call(9.0, 0.9)] * 2, launch_seconds=11.0).races
    assert race.launches
    assert not race.short_launches


def test_a_slower_first_call_is_confirmed_by_short_launches_alone():
    found = with_first_calls([call(0.5, 0.12), call(1.0, 0.12)])
    _, second = found.races
    assert found.first_call.outcome is Outcome.REGRESSED
    assert "found twice" in found.first_call.reason.message
    assert second.launches == []
    assert second.short_launches
    assert second.config.confirms is None
    assert {launch.pair for launch in second.short_launches} <= set(range(POLICY.zygotes, 2 * POLICY.zygotes))


def test_a_first_call_that_was_slower_by_chance_is_withdrawn():
    found = with_first_calls([call(0.5, 0.01), of(0.5, lucky(2.0))])
    assert (found.first_call.outcome, found.first_call.reason.code) == (Outcome.INCONCLUSIVE, "not-confirmed")


def test_disturbed_short_launches_leave_the_time_decided():
    found = with_first_calls([call(0.5, 0.9)] * 2, prepare=lambda launcher: setattr(launcher, "disturbed_from", 4))
    assert found.decision.outcome is Outcome.UNCHANGED
    assert found.first_call.outcome is Outcome.INCONCLUSIVE
    assert found.first.abort_reason == ""
    assert len(found.races[0].disturbed) == POLICY.disturbed_launches


@pytest.mark.parametrize("metric", ["first_call", "memory"])
def test_a_change_whose_second_race_has_no_launch_is_withdrawn(metric):
    def prepare(launcher):
        launcher.memory = [lambda *_: 1000 * MIB, lambda *_: (2000 if metric == "memory" else 1000) * MIB]
        opened = launcher.open

        def disturbed(entrants, pair):
            if pair >= POLICY.zygotes:
                raise LaunchDisturbed("a busy neighbour")
            return opened(entrants, pair)

        launcher.open = disturbed

    found = with_first_calls([call(0.5, 0.01), call(1.0 if metric == "first_call" else 0.5, 0.01)], prepare=prepare)
    result = found.first_call if metric == "first_call" else peak(found)
    assert found.decision.outcome is Outcome.UNCHANGED
    assert not found.races[1].all_launches
    assert (result.outcome, result.reason.code) == (Outcome.INCONCLUSIVE, "not-confirmed")
    assert "did not confirm it: no launch has measured it; a busy neighbour" in result.reason.message


def test_an_entrant_that_breaks_in_the_first_launch_of_the_second_race_has_failed():
    launches = len(confirmed_race([steady(1e-4), of(1e-4, lambda *_: 1.1)]).races[0].all_launches)
    found = made([steady(1e-4), of(1e-4, lambda *_: 1.1)])
    found.first.launcher.dies_at = {1: launches}
    found.run()
    assert set(found.failures) == {1}
    assert not found.races[1].all_launches


@pytest.mark.parametrize(
    ("broken", "only"),
    [
        ({0: BenchmarkError("it raised")}, True),
        ({0: BenchmarkSkipped("no GPU")}, False),
        ({0: BenchmarkError("it raised"), 1: BenchmarkError("it raised")}, False),
    ],
)
def test_the_baseline_alone_breaks_if_the_contender_does_not_and_no_launch_was_complete(broken, only):
    found = made([steady(1e-4)] * 2)
    found.first.launcher.broken = broken
    found.run()
    assert found.only_baseline_breaks is only
    found = made([steady(1e-4, 0.1)] * 2)
    found.first.launcher.dies_at = {0: 1}
    found.run()
    assert (found.launches, set(found.failures), found.only_baseline_breaks) == (1, {0}, False)


def test_a_time_that_is_not_decided_takes_no_short_launches():
    noisy = [steady(1e-4, 0.1)] * 2
    found = made(noisy, policy=replace(POLICY, case_seconds=6.0, case_launches=1, sampled_seconds=math.inf))
    found.run()
    assert found.decision.outcome is Outcome.INCONCLUSIVE
    assert not found.races[0].short_launches


def test_metrics_that_are_not_asked_for_cost_no_launch():
    found = with_first_calls([call(0.5, 0.9)] * 2, metrics=(TIME,))
    assert found.first_call is None
    assert not found.races[0].short_launches
    # The first launch has a first call, as it tells whether the step runs once.
    assert ["first_call" in launch.runs[1].facts for launch in found.races[0].launches][:3] == [True, False, False]
    found = with_first_calls([call(0.5, 0.01)] * 2, metrics=("first_call",))
    assert found.decision is None
    assert not found.races[0].launches
    assert found.first_call.outcome is Outcome.UNCHANGED


def test_a_race_that_goes_on_and_its_confirmation_share_no_pair_of_zygotes():
    policy = preset("quick").with_common_ancestors()
    noisy = [steady(1e-4), lambda number, pair, rng: 1e-4 * (1.055 + (-0.02, 0.02, 0.02, -0.02)[number % 4])]
    found = made(noisy, policy=policy, cases=320)
    found.run()
    pairs = [[launch.pair for launch in race.all_launches] for race in found.races]
    assert [one[:8] for one in pairs] == [[0, 1, 0, 1, 0, 2, 3, 2], [4, 5, 4, 5, 4, 6, 7, 6]]
