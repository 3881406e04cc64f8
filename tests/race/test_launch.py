"""The plan of a launch, from the time of an iteration."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.race import sides_of, variants_of
from tfbench.model import Case
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.launch import (
    BLOCK_LONGEST,
    PRIME_CALLS_SECONDS,
    ROUNDS_LEAST,
    followers,
    make_plan,
    orders,
    settling_calls,
    starting_places,
    with_whole_turns,
)

POLICY = Policy()
CASE = Case("w.py::w", "w", "w.py::w")


def planned(first, second, entrants=(), **how):
    """The plan of two sides (or of `entrants`) whose iterations take so many seconds."""
    return make_plan(entrants or sides_of(CASE), {0: first, 1: second}, POLICY, **how)


def test_short_steps_fill_a_block_of_a_third_of_a_millisecond():
    plan = planned(1e-5, 1e-5)
    assert plan.iterations == (30, 30)
    assert plan.primes == (40, 40)
    assert plan.rounds == pytest.approx(POLICY.launch_seconds / (2 * 7e-4), rel=0.01)
    assert planned(1e-3, 1e-3, preparation=60.0).rounds == planned(1e-3, 1e-3).rounds


def test_work_on_a_device_has_longer_blocks():
    plan = planned(1e-5, 1e-5, on_device=True)
    assert plan.iterations == (300, 300)
    assert plan.rounds >= 10 * POLICY.rounds_min
    assert planned(0.05, 0.05, on_device=True).iterations == (1, 1)
    assert [planned(one, one, on_device=True).primes for one in (6e-3, 0.03)] == [(1, 1), (0, 0)]


def test_steps_whose_threads_work_ahead_have_long_blocks_that_are_not_sliced():
    plan = planned(1e-3, 1e-3, works_on=True)
    assert plan.iterations == (20, 20)
    assert plan.drain == (0.5e-3, 0.5e-3)
    assert plan.rounds == round(POLICY.ahead_launch_seconds / 0.04)
    assert not planned(0.05, 0.05, sliceable=True, works_on=True).sliced
    waits = planned(0.05, 0.05, works_on=True, waits=True)
    assert waits.iterations == (8, 8)
    assert waits.rounds == ROUNDS_LEAST + 1


@pytest.mark.parametrize(("seconds", "primes", "blocks"), [
    (4e-4, 3, 4), (1.3e-3, 3, 3), (2.5e-3, 2, 2), (6e-3, 1, 1), (0.018, 1, 1), (0.021, 0, 1),
])  # fmt: skip
def test_untimed_calls_fill_the_caches_again_before_the_blocks_of_a_turn(seconds, primes, blocks):
    plan = planned(seconds, seconds)
    assert (plan.primes, plan.blocks) == ((primes, primes), blocks)
    turns = POLICY.launch_seconds / (2 * seconds * (sum(plan.iterations) / 2 * blocks + primes))
    assert plan.rounds == plan.turns * blocks
    assert plan.turns == pytest.approx(max(POLICY.rounds_min / blocks, turns), abs=1)


@pytest.mark.parametrize(
    ("seconds", "preparation", "rounds"),
    [(0.05, 0.5, 7), (0.05, 1.25, 12), (0.05, 60.0, 20), (0.28, 0, 7), (0.4, 0, 5), (0.55, 0, 4), (5.0, 0, 4)],
)
def test_a_step_that_is_expensive_to_prepare_has_more_rounds_and_a_long_one_fewer(seconds, preparation, rounds):
    assert planned(seconds, seconds, preparation=preparation).rounds == rounds


def test_long_steps_that_can_be_sliced_have_blocks_of_the_same_length_without_priming():
    plan = planned(0.025, 0.1, variants_of("a", "b"), sliceable=True)
    assert (plan.sliced, plan.iterations, plan.primes) == (True, (4, 1), (0, 0))
    assert planned(0.1, 0.12, sliceable=True).iterations == (1, 1)
    short = planned(2.0, 0.02, sliceable=True)  # sides that differ much have short rounds
    assert (short.sliced, short.iterations) == (True, (4, 4))


@pytest.mark.parametrize(
    ("iteration", "sliceable"), [({0: 0.1, 1: 0.019}, True), ({0: 0.1}, True), ({0: 0.1, 1: 0.1}, False)]
)
def test_short_steps_single_entrants_and_steps_that_wait_take_turns(iteration, sliceable):
    assert not make_plan(sides_of(CASE), iteration, POLICY, sliceable=sliceable).sliced


def test_both_sides_of_a_case_have_blocks_of_the_same_size_and_variants_have_their_own():
    baseline, contender = sides_of(CASE)
    changed = replace(contender.case, name="w.py::new", thresholds=(("minimum_effect", 0.02), ("tolerance", 0.05)))
    for sides in ([baseline, contender], [baseline, replace(contender, case=changed)]):
        assert planned(1e-5, 1.4e-5, sides).iterations[0] == planned(1e-5, 1.4e-5, sides).iterations[1]
    assert planned(1e-5, 1e-4, variants_of("a", "b")).iterations == (30, 3)
    assert planned(1e-5, 1e-5, sides_of(CASE, slowdown=0.1)).extra == (0.0, 0.1)  # of the contender alone


@pytest.mark.parametrize(("slow", "iterations"), [(1.9e-5, 63), (1e-3, 1), (0.017, 1)])
def test_a_side_that_returns_at_once_does_not_make_the_other_one_repeat_its_step_for_minutes(slow, iterations):
    plan = planned(slow, 2e-6)
    assert plan.iterations == (iterations, iterations)
    assert slow * plan.primes[0] <= BLOCK_LONGEST * PRIME_CALLS_SECONDS


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**32))
def test_every_round_has_every_entrant_once_and_the_turns_chain(entrants, rounds, seed):
    plan = orders(range(entrants), rounds, random.Random(seed))
    assert all(sorted(one) == list(range(entrants)) for one in plan)
    follow = {index: iter(turns) for index, turns in followers(plan).items()}
    seen, at = [], plan[0][0]
    while at != -1:
        seen.append(at)
        at = next(follow[at])
    assert seen == [entrant for one in plan for entrant in one]


@given(st.integers(3, 6), st.integers(2, 40), st.integers(0, 2**32))
def test_of_several_entrants_none_has_two_turns_in_succession(entrants, rounds, seed):
    turns = itertools.chain.from_iterable(orders(range(entrants), rounds, random.Random(seed)))
    assert all(one != following for one, following in itertools.pairwise(turns))


def test_two_entrants_take_turns_and_seldom_change_places():
    drawn = [orders([0, 3], 200, random.Random(seed)) for seed in range(50)]
    changes = [sum(one != following for one, following in itertools.pairwise(order)) for order in drawn]
    assert sum(changes) / len(changes) == pytest.approx(200 / 16, rel=0.1)
    first = [sum(one[0] == 0 for one in order) for order in drawn]
    assert sum(first) / len(first) == pytest.approx(100, rel=0.1)


def test_a_block_with_untimed_work_has_one_iteration_and_the_work_counts_as_cost():
    plan = planned(1e-5, 1e-5, untimed={0: 9e-4, 1: 9e-4})
    assert plan.iterations == (1, 1)
    assert (plan.primes, plan.blocks) == ((3, 3), 4)
    assert plan.turns == math.floor(POLICY.launch_seconds / (2 * 7 * 9.1e-4))
    # Blocks of both sides are alike, also if only one side has such work.
    assert planned(1e-5, 1e-5, untimed={1: 1e-6}).iterations == (1, 1)


def test_sliced_rounds_are_even_and_those_of_a_turn_are_complete():
    plan = planned(0.05, 0.05, sliceable=True)
    assert [with_whole_turns(replace(plan, rounds=count)).rounds for count in (7, 8, 9)] == [8, 8, 10]
    turns = replace(plan, sliced=False, blocks=4)
    assert [with_whole_turns(replace(turns, rounds=count)).rounds for count in (1, 7, 8, 9)] == [4, 8, 8, 12]


def test_of_two_entrants_each_starts_as_many_sliced_rounds_as_the_other():
    drawn = orders([0, 3], 8, random.Random(2))
    first, second = (starting_places(drawn, entrant) for entrant in (0, 3))
    assert [one + other for one, other in zip(first, second, strict=True)] == [1] * 8
    assert sum(first) == sum(second) == 4
    assert starting_places([[2, 0, 1], [0, 1, 2], [1, 0, 2]], 2) == (0, 2, 2)


def test_both_sides_have_made_equally_many_calls_before_the_rounds():
    prepared = {0: Prepared(1e-4, {}, calls=300), 1: Prepared(1.1e-4, {}, calls=420)}
    usual = settling_calls(prepared, equal=False)
    assert usual == {0: 40, 1: 36}
    calls = settling_calls(prepared, equal=True)
    assert 300 + calls[0] == 420 + calls[1] == 456
    assert settling_calls({0: prepared[0]}, equal=True) == {0: 40}
    assert settling_calls({}, equal=True) == {}


def test_a_side_that_would_take_long_to_catch_up_need_not():
    prepared = {0: Prepared(1e-4, {}, calls=5000), 1: Prepared(2e-4, {}, untimed=1e-3, calls=10)}
    assert settling_calls(prepared, equal=True) == settling_calls(prepared, equal=False) == {0: 40, 1: 3}
