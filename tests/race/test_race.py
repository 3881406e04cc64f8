"""The logic of a race, with scripted entrants and a scripted clock."""

import math
import random
import re
from dataclasses import replace

import pytest

from tests.fakes.race import scripted_race, sides_of, steady, variants_of
from tfbench.errors import BenchmarkSkipped
from tfbench.model import Case, Launch, Outcome, Run, SlowCalls, Statistic
from tfbench.policy import Policy, preset
from tfbench.protocol import Prepared
from tfbench.race.launch import make_plan
from tfbench.race.race import MEAN_ALPHA, TAIL_ALPHA, Race
from tfbench.stats.verdict import Terms, compare, pooled

CASE = Case("w.py::w", "w", "w.py::w")
POLICY = Policy(rare_calls=0)


def raced(entrants, scripts, *, policy=POLICY, pairs=range(4), **scripted):
    race, launcher = scripted_race(entrants, scripts, policy, pairs, seed=1, **scripted)
    race.run()
    return race, launcher


@pytest.mark.parametrize("extends", [False, True])
def test_no_launch_stays_open_after_a_side_dies(extends):
    race, launcher = scripted_race(sides_of(CASE), [steady(1e-4), steady(1e-4)], POLICY, range(4), seed=1)
    race.config = replace(race.config, first_calls=lambda race: True)
    launcher.dies_at = {1: 0}
    race.extend(2, brief=False) if extends else race.run()
    assert len(launcher.launches) == launcher.killed == 2  # the second one was opened ahead


def test_the_same_code_is_unchanged():
    race, _ = raced(sides_of(CASE), [steady(1e-4), steady(1e-4)])
    assert race.decisions[1].outcome is Outcome.UNCHANGED
    tolerance = f"within {POLICY.tolerance:.1%} either way"  # of the median, not the larger one of slow calls
    assert race.decisions[1].reason.message.startswith(tolerance)


def test_slower_is_regressed_at_the_first_look_and_faster_is_improved():
    slower, _ = raced(sides_of(CASE), [steady(1e-4), steady(1.3e-4)])
    faster, _ = raced(sides_of(CASE), [steady(1.1e-4), steady(1e-4)])
    assert (slower.decisions[1].outcome, len(slower.launches)) == (Outcome.REGRESSED, POLICY.looks[0])
    assert slower.decisions[1].comparison.ratio.center == pytest.approx(1.3, rel=0.01)
    assert faster.decisions[1].outcome is Outcome.IMPROVED


@pytest.mark.parametrize(
    ("seconds", "beside", "outcome", "said"),
    [
        (0.5e-4, (0, 1.3e-4), Outcome.INCONCLUSIVE, r"(49|50).* faster, but with the work .* are (79|80).* slower"),
        (1e-4, (1e-4, 1.2e-4), Outcome.INCONCLUSIVE, r"the calls are 0.*, but with the work .* are (9|10).* slower"),
        (1e-4, (1e-4, 1e-4), Outcome.UNCHANGED, "within"),
        (1e-4, (1e-4, 0.8e-4), Outcome.UNCHANGED, "within"),
        (0.5e-4, (0, 0.5e-4), Outcome.IMPROVED, "(49|50).* faster"),
        (1.1e-4, (1e-4, 0), Outcome.REGRESSED, "(9|10).* slower"),
    ],
)
def test_work_that_the_calls_leave_to_threads_cannot_hide_a_slowdown(seconds, beside, outcome, said):
    race, _ = raced(sides_of(CASE), [steady(1e-4, 1e-3), steady(seconds, 1e-3)], beside=dict(enumerate(beside)))
    assert race.decisions[1].outcome is outcome
    assert re.search(said, race.decisions[1].reason.message)


@pytest.mark.parametrize("known", [(), (0,), (1,)])
def test_a_second_opinion_needs_both_sides(known):
    race, _ = raced(sides_of(CASE), [steady(1e-4)] * 2, beside=dict.fromkeys(known, 1e-4))
    assert race.decisions[1].outcome is Outcome.UNCHANGED
    assert re.search("^[^;]*$", race.decisions[1].reason.message)


@pytest.mark.parametrize(("restless", "beside", "outcome"), [
    ((1,), 1e-5, Outcome.INCONCLUSIVE), ((0, 1), 1e-5, Outcome.UNCHANGED), ((0,), 1e-5, Outcome.UNCHANGED),
    ((1,), 1e-7, Outcome.UNCHANGED),
])  # fmt: skip
def test_threads_of_the_contender_alone_that_never_rest_leave_a_race_undecided(restless, beside, outcome):
    """Threads that do almost nothing do not."""

    race, _ = raced(sides_of(CASE), [steady(1e-4), steady(1e-4)], beside={0: beside, 1: beside}, restless=restless)
    assert race.decisions[1].outcome is outcome
    assert ("still worked a second" in race.decisions[1].reason.message) is (1 in restless and beside == 1e-5)


@pytest.mark.parametrize(
    ("traces", "seconds", "outcome"),
    [((1,), 1e-4, "inconclusive"), ((0,), 0.5e-4, "improved"), ((0, 1), 1.5e-4, "regressed")],
)
def test_calls_that_trace_a_function_again_say_nothing_about_later_ones(traces, seconds, outcome):
    race, _ = raced(sides_of(CASE), [steady(1e-4), steady(seconds)], traces=traces)
    assert race.decisions[1].outcome == outcome
    assert ("most calls trace a function again" in race.decisions[1].reason.message) is (outcome == "inconclusive")


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ({}, {"SET": "1"}, True),
        ({"SET": "1"}, {"SET": "1"}, False),
        ({}, {"PORT": ""}, False),  # another one in each launch
        ({"PORT": ""}, {"PORT": "", "SET": "1"}, True),
    ],
)
def test_variables_that_one_side_alone_sets_late_leave_a_race_undecided(before, now, differ):
    race, _ = raced(sides_of(CASE), [steady(1e-4), steady(1e-4)], late=dict(enumerate((before, now))))
    assert race.decisions[1].outcome is (Outcome.INCONCLUSIVE if differ else Outcome.UNCHANGED)
    assert ("after TensorFlow's import" in race.decisions[1].reason.message) is differ


def test_a_race_ends_at_its_first_look_if_settings_keep_more_launches_from_deciding_it():
    race, _ = raced(sides_of(CASE), [steady(1e-4, 0.1), steady(1e-4, 0.1)], late={1: {"KERAS_BACKEND": "jax"}})
    assert race.decisions[1].outcome is Outcome.INCONCLUSIVE
    assert "after TensorFlow's import" in race.decisions[1].reason.message
    assert len(race.launches) == POLICY.looks[0]


def test_once_threads_have_worked_on_after_a_turn_all_launches_stop_them():
    race, launcher = raced(sides_of(CASE), [steady(1e-4, 0.02), steady(1e-4, 0.02)], works_on={1: (1,)})
    first, *others = [launch.plan for launch in launcher.launches]
    assert not first.works_on
    assert all(plan.works_on and plan.iterations[0] == 20e-3 / 1e-4 for plan in others)

    launcher.step = Prepared(1e-6, {})  # calls find their results ready
    config = replace(race.config, steps=race.steps.lasting)
    second = Race(race.entrants, launcher, POLICY, config, launcher.clock, random.Random(0))
    second.run()
    assert all(launch.plan.iterations == others[0].iterations for launch in launcher.launches[-len(second.launches) :])


@pytest.mark.parametrize(
    ("seen", "believed"),
    [({4: (1,)}, False), ({4: (0,), 5: (1,)}, False), ({4: (1,), 5: (1,)}, True), ({4: (0, 1)}, True)],
)
def test_threads_that_work_ahead_in_a_late_launch_of_one_side_may_be_about_to_rest(seen, believed):
    _, launcher = raced(sides_of(CASE), [steady(1e-4, 0.1), steady(1e-4, 0.1)], works_on=seen)
    assert len(launcher.launches) >= 6
    assert launcher.launches[-1].plan.works_on is believed


@pytest.mark.parametrize("late", [2, 4])
def test_launches_before_threads_are_seen_to_work_on_are_no_measure(late):
    """Their calls find results ready, and "b" may have been decided by them."""
    scripts = [steady(1e-4), steady(2e-4), steady(1e-4, 0.1)]
    scripted = {"step": Prepared(1e-6, {}), "works_on": {late: (0, 1, 2)}}
    race, launcher = scripted_race(variants_of("a", "b", "c"), scripts, POLICY, seed=1, **scripted)
    active = []

    def count(race):
        active.append(sorted(race.undecided))
        launcher.step = Prepared(1e-4 if len(active) >= late else 1e-6, {})

    race.run(count)
    assert active[late - 1] == ([1, 2] if late == 2 else [2])
    assert active[late] == [1, 2]  # "b" is open again
    assert launcher.launches[late - 1].plan.iterations[0] == 300  # of 1 µs
    assert launcher.launches[late].plan.iterations[0] == 20e-3 / 1e-4
    assert len(race.short_launches) == late
    assert len(race.launches) == len(launcher.launches) - late


def test_blocks_of_threads_that_work_ahead_are_planned_by_the_mean_of_their_calls():
    """Most calls find their results ready, and the warm-up ended in a slow one."""

    seldom = {"works_on": {0: (0, 1)}, "slow": dict.fromkeys((0, 1), SlowCalls(0.3, 1000))}
    _, launcher = raced(sides_of(CASE), [steady(1e-6), steady(1e-6)], step=Prepared(0.4, {}), **seldom)
    assert all(launch.plan.iterations[0] < 1000 for launch in launcher.launches)  # and 20,000 by the median


def test_untimed_work_around_an_iteration_gives_each_block_one():
    _, launcher = raced(sides_of(CASE), [steady(1e-4), steady(1e-4)], step=Prepared(1e-4, {}, untimed=0.01))
    assert {launch.plan.iterations for launch in launcher.launches} == {(1, 1)}


def test_a_warm_up_that_ends_in_slow_first_calls_shortens_the_first_launch_alone():
    """The step compiles in its first calls, so that its calls of 2 ms seem to take 0.4 s."""

    _, launcher = raced(sides_of(CASE), [steady(2e-3), steady(2e-3)], step=Prepared(0.4, {}))
    first, *others = [launch.plan.rounds for launch in launcher.launches]
    assert first < 10
    assert all(rounds >= 50 for rounds in others)


def test_median_and_tail_share_the_alpha_and_only_variants_of_one_environment_a_zygote():
    def interval_of(race, shared_zygote, statistic=Statistic.MEDIAN, thresholds=POLICY.step_time, share=1.0):
        effects = race.effects(1, statistic=statistic)
        evidence = effects if statistic is Statistic.MEDIAN else pooled(effects)
        return compare(evidence, race.rounds(1), Terms(POLICY, 1, shared_zygote, thresholds, share)).ratio

    scripts = [steady(1e-4), steady(1.3e-4)]
    race, _ = raced(sides_of(CASE), scripts)
    own = interval_of(race, False, share=1 - TAIL_ALPHA - MEAN_ALPHA)
    tail = interval_of(race, False, Statistic.TAIL, POLICY.tail_time, TAIL_ALPHA)
    assert (race.decisions[1].comparison.ratio, race.decisions[1].tail) == (own, tail)
    variants = variants_of("x", "y")
    race, _ = raced(variants, scripts)
    assert race.decisions[1].comparison.ratio == interval_of(race, True)
    variants[1] = replace(variants[1], case=replace(variants[1].case, env=(("X", "1"),)))
    race, _ = raced(variants, scripts)
    assert race.decisions[1].comparison.ratio == interval_of(race, shared_zygote=False)


def test_heavy_noise_is_inconclusive_at_the_last_look():
    policy = replace(POLICY, hopeless=math.inf, case_seconds=math.inf)
    race, _ = raced(sides_of(CASE), [steady(1e-4, 0.1), steady(1e-4, 0.1)], policy=policy)
    assert race.decisions[1].outcome is Outcome.INCONCLUSIVE
    assert len(race.launches) == POLICY.looks[-1]


def test_a_race_without_hope_ends_early_with_the_cost_of_a_decision():
    policy = replace(POLICY, hopeless=1.0)
    race, _ = raced(sides_of(CASE), [steady(1e-4, 0.3), steady(1e-4, 0.3)], policy=policy)
    decision = race.decisions[1]
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert len(race.launches) in POLICY.looks[:-1]
    assert decision.reason.facts["needed"] > POLICY.looks[-1]
    assert decision.reason.facts["seconds"] == pytest.approx(0.7 * decision.reason.facts["needed"])
    assert "would decide it after about" in decision.reason.message


@pytest.mark.parametrize(
    ("name", "effects", "words"),
    [
        (
            "standard",
            (0.004, 0.030, 0.018, 0.010, 0.026, 0.018),
            "--policy strict would decide it after about 6 launches, 4",
        ),
        ("standard", (0.2, -0.2, 0.3, -0.3, 0.1, -0.1), r"would take about \d+ launches, .* give the case a larger"),
        ("strict", (0.004, 0.006, 0.012, 0.001, 0.009, 0.005), r"a decision would take about \d+ launches"),
        ("standard", (0.1, -0.1), r"use --policy strict or a quieter machine \(`tfbench doctor`\)$"),
    ],
)
def test_an_open_case_says_what_would_decide_it_and_what_that_costs(name, effects, words):
    race = launched(replace(preset(name), looks=(2, 200)), effects)
    race.conclude()
    (decision,) = race.decisions.values()
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert re.search(words, decision.reason.message), decision.reason.message


def launched(policy, effects, rounds=8, **config):
    """Return a race after launches of 0.7 s with these log-ratios."""
    race, _ = scripted_race(sides_of(CASE), policy=policy)
    race.config = replace(race.config, **config)
    for pair, effect in enumerate(effects):
        runs = (Run((1e-4 * seconds,) * rounds, 1) for seconds in (1, math.exp(effect)))
        race.add(Launch(pair, tuple(runs), 0.7))
    return race


def test_the_budget_of_seconds_ends_a_race():
    policy = replace(POLICY, case_seconds=5.0, hopeless=math.inf)
    race, _ = raced(sides_of(CASE), [steady(1e-4, 0.3), steady(1e-4, 0.3)], policy=policy)
    assert race.decisions[1].outcome is Outcome.INCONCLUSIVE
    assert race.wall_seconds == pytest.approx(5.6)


@pytest.mark.parametrize("once", [(0,), (1,), (0, 1)])
def test_a_step_is_measured_once_on_both_sides_or_on_neither(once):
    race, _ = raced(sides_of(CASE), [steady(1e-4)] * 2, once=once)
    if once == (0, 1):
        assert race.decisions[1].outcome is Outcome.UNCHANGED
        assert race.thresholds(1) == race.usual == POLICY.once
        assert race.rounds(1) == len(race.launches)
        assert race.decisions[1].tail is None
    else:
        assert {str(failure).partition(",")[0] for failure in race.failures.values()} == {
            "one side measures its step once (bench.once)"
        }
        assert (set(race.failures), race.launches) == ({0, 1}, [])


def test_the_launches_of_a_long_step_may_take_more_than_the_budget_of_seconds():
    policy = replace(POLICY, case_seconds=1.0, case_launches=4, hopeless=math.inf)
    race, _ = raced(sides_of(CASE), [steady(1e-4, 0.3), steady(1e-4, 0.3)], policy=policy)
    assert race.decisions[1].outcome is Outcome.INCONCLUSIVE
    assert len(race.launches) in (4, 5)
    assert race.limit == pytest.approx(4 * race.wall_seconds / len(race.launches))


RENAMED = [sides_of(CASE)[0], replace(sides_of(CASE)[1], case=replace(CASE, name="w.py::new"))]


@pytest.mark.parametrize(
    ("entrants", "deviation", "slow", "equal"),
    [
        (sides_of(CASE), 0.2, {}, True),
        (RENAMED, 0.2, {}, True),
        (variants_of("ref", "other"), 0.2, {}, False),
        (sides_of(CASE), 0.002, {}, False),
        (sides_of(CASE), 0.004, dict.fromkeys((0, 1), SlowCalls(0.5, 3)), True),  # in launches, and hardly between them
    ],
)
def test_sides_whose_launches_scatter_make_equally_many_calls_from_then_on(entrants, deviation, slow, equal):
    step = Prepared(0.02, {}) if slow else Prepared(1e-4, {})
    _, launcher = raced(entrants, [steady(step.iteration, deviation)] * 2, slow=slow, step=step)
    asked = [launch.equal for launch in launcher.launches]
    assert asked[:2] == [False, False]  # one launch shows no scatter
    assert any(asked) == equal


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_no_launch_is_cut_short_whose_ratio_changes_as_it_goes_on(shift):
    race, _ = scripted_race(sides_of(CASE), policy=POLICY)
    rng = random.Random(1)
    for pair in range(POLICY.looks[0]):
        before, now = ([1e-4 * (1 + rng.gauss(0, 1e-3)) for _ in range(100)] for _ in range(2))
        now[75:] = [seconds * (1 + shift) for seconds in now[75:]]
        race.add(Launch(pair, (Run(tuple(before), 1), Run(tuple(now), 1)), 0.5))
    plan = make_plan(race.entrants, {0: 1e-4, 1: 1e-4}, POLICY)
    rounds = [race._allocated(replace(plan, rounds=usual), 1e-3).rounds for usual in (100, 10)]
    fewest = [50, POLICY.rounds_min]  # half of the usual ones, and no fewer than a median needs
    assert rounds == ([100, 100] if shift else fewest)


@pytest.mark.parametrize(("entrants", "ratio"), [(sides_of(CASE), 0.5), (variants_of("x", "y"), 1.0)])
def test_sides_are_compared_per_item_and_variants_per_call(entrants, ratio):
    race, _ = scripted_race(entrants)
    race.add(Launch(0, tuple(Run((1e-4,) * 4, 1, {"items": items}) for items in (10, 20)), 0.5))
    for effects, expected in ((race.effects(1), ratio), (race.effects(0, 1), 1 / ratio)):
        assert [math.exp(effect.value) for effect in effects] == [pytest.approx(expected)]


def test_every_variant_is_compared_with_the_reference_and_leaves_when_decided():
    scripts = [steady(1e-4), steady(5e-5), steady(1e-4, 0.02)]
    race, launcher = raced(variants_of("ref", "fast", "same"), scripts)
    assert race.decisions[1].outcome is Outcome.IMPROVED
    assert race.decisions[2].outcome is Outcome.UNCHANGED
    assert sorted(launcher.active[0]) == [0, 1, 2]
    assert len(launcher.active) > POLICY.looks[0]
    assert sorted(launcher.active[-1]) == [0, 2]


def test_decisions_against_a_reference_that_breaks_later_are_made_again():
    scripts = [steady(1e-4), steady(2e-4), steady(1e-4, 0.03)]
    race, launcher = raced(variants_of("a", "b", "c"), scripts, dies_at={0: POLICY.looks[0]})
    assert sorted(launcher.active[POLICY.looks[0]]) == [0, 2]  # b is decided, and c is not
    assert (race.reference, set(race.decisions)) == (1, {2})
    assert race.decisions[2].comparison.ratio.center == pytest.approx(0.5, rel=0.05)


def test_what_was_proved_against_a_reference_that_breaks_later_does_not_count():
    """The variant "c" is unchanged beside "a", and twice as fast as "b"."""

    scripts = [steady(1e-4), steady(2e-4), steady(1e-4), steady(1e-4, 0.03)]
    race, _ = raced(variants_of("a", "b", "c", "d"), scripts, dies_at={0: POLICY.looks[0]})
    assert race.reference == 1
    assert race.decisions[2].outcome is Outcome.IMPROVED
    assert race.decisions[2].comparison.ratio.center == pytest.approx(0.5, rel=0.02)


def test_the_last_variant_that_works_is_measured_alone():
    for policy in (POLICY, preset("quick")):
        race, _ = raced(variants_of("a", "b"), [steady(1e-4)] * 2, policy=policy, broken={0: BenchmarkSkipped("no")})
        assert len(race.runs(1)) == policy.alone_launches


def test_an_entrant_that_dies_in_the_middle_ends_only_its_own_comparison():
    race, launcher = raced(variants_of("a", "b", "c"), [steady(1e-4)] * 3, dies_at={1: 2})
    assert set(race.failures) == {1}
    assert race.decisions[2].outcome is Outcome.UNCHANGED
    assert launcher.killed == len(launcher.pairs)  # every launch is ended


def test_an_interrupted_race_keeps_its_launches():
    race, _ = scripted_race(sides_of(CASE), [steady(1e-4)] * 2, POLICY)

    def interrupt(state):
        if len(state.launches) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race.run(interrupt)
    race.conclude()
    assert len(race.launches) == 2
    assert race.decisions[1].outcome is not None
