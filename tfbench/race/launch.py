"""A launch, as a race plans it and asks for it: entrants, blocks, rounds, and order of turns.

`process_launch` carries one out in real processes, which `process_launcher` starts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import BenchmarkError, BenchmarkSkipped, TfbenchError
from tfbench.metrics.catalog import FIRST_CALL_DOUBT
from tfbench.model import DOUBT, FIRST_CALL, FIRST_CALL_PARTS, ONCE, Case, Plan
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.sides.spec import Side
from tfbench.stats.rounds import without_neighbours

BLOCK_SECONDS = 3e-4
"""Length of a timed block. Faster turns cancel more of a noise burst."""
TURN_BLOCKS, TURN_SECONDS = 4, 4e-3
"""A turn has so many blocks of a step that is alone in its block, if they take about this long. With one block after three untimed
calls, rounds of steps of 0.7 to 1.4 ms would have 1.2 to 1.4 times the error for their time."""
BLOCK_LONGEST = 4.0
"""The block of the slowest side takes at most this many times the planned length, unless a single iteration does. A
step that returns at once on one side would otherwise make the other one repeat its own thousands of times."""
DEVICE_BLOCK_SECONDS = 0.003
"""The same for devices, whose blocks start with an empty queue and end with a synchronization. That takes 30 µs on an
H200: 1% of a block, by which a slowdown is measured too small. Successive blocks of small steps there differ by 8 to
20% at 10 ms, and by 14 to 15% at 3 ms, of which a launch has three times as many."""
DEVICE_LAUNCH_SECONDS = 1.0
"""Rounds of a launch of such steps take about this long, as long as CUDA's start and the first calls. Pairs of their
rounds differ by 15% on an H200, and launches of one processor by no more than that explains."""
AHEAD_BLOCK_SECONDS = 0.02
"""The same for steps whose threads work ahead, such as prefetching pipelines. A shorter block takes what is ready."""
AHEAD_DRAINED = 0.5
"""Before the rounds, such a step is called until a call takes this share of its time in succession, so that no block
takes what was made before. With a buffer of 16 elements of 20 ms, all calls of a launch would find theirs ready."""
AHEAD_CALLS = 8
"""Calls of a block at least, if their waits go on in the turn of the other side. In a block of one call, the call of
one side always waits and that of the other one never, so that one of them seems twenty times as fast."""
PRIME_SECONDS = 4e-4
"""Untimed work before the blocks of a turn, which starts with cold caches. At least one iteration."""
PRIME_CALLS, PRIME_CALLS_SECONDS = 3, 6e-3
"""And so many calls, if they take about this long, or one. After a turn of the other side, the first call of a step of 0.2 to
1.4 ms takes 1.4 to 2.1 times as long as one in succession, the second one 1.1 to 1.2 times, and the third one 1.02 to 1.05
times. A race of first calls compares refills: twenty products instead of four, of 3.8 times the time, had a ratio of 2.7."""
PRIME_BELOW_SECONDS = 0.02
"""Longer steps are not primed: a refill takes 0.2 to 0.6 ms."""
ROUNDS_LONG = 20
"""Of a long step, up to this many rounds may take as long as the preparation took. More launches instead would each
prepare anew."""
ROUNDS_MIN_SECONDS = 4.0
"""Rounds of long steps scatter little, because a second averages the bursts of other programs. So `rounds_min` rounds
may take so long, and steps above 0.3 s have fewer, at least `ROUNDS_LEAST`."""
ROUNDS_LEAST = 4
"""The range of four rounds still tells the error of their median, and that of three a third too little."""
SLICED_ABOVE_SECONDS = 0.02
"""Both sides of longer steps run on one processor at once, whose scheduler alternates them every few milliseconds. A
burst of noise then hits both. Their processor times are compared."""
SETTLE_SECONDS = 0.004
"""Time that a process which was warmed up on another processor runs the step where it races, to fill the caches there.
A longer step hides the misses of its first turn."""
EQUAL_CALLS_SECONDS = 0.3
"""Not if one side takes longer than this to catch up."""

Clock = Callable[[], float]
"""Seconds, monotonic."""
Failure = BenchmarkError | BenchmarkSkipped


@dataclass(frozen=True)
class Entrant:
    """A case on a side that takes part in a race."""

    case: Case
    side: Side


class EntrantFailed(TfbenchError):
    """One entrant of a launch broke or skipped itself, so the rounds of the launch do not count."""

    def __init__(self, entrant: int, failure: Failure) -> None:
        super().__init__(str(failure))
        self.entrant = entrant
        self.failure = failure


REFERENCE_ENTRANTS = 2
"""``Policy.launch_seconds`` is the budget of so many entrants. More entrants get more time."""

_CHANGED = 1 / 16
"""Share of the rounds in which two entrants change places."""


def make_plan(
    entrants: Sequence[Entrant],
    iteration: Mapping[int, float],
    policy: Policy,
    on_device: bool = False,
    preparation: float = 0.0,
    sliceable: bool = False,
    untimed: Mapping[int, float] | None = None,
    works_on: bool = False,
    waits: bool = False,
) -> Plan:
    """Plan blocks of about `BLOCK_SECONDS`, at least one iteration, and the rounds that fit into the launch's budget.

    Where long steps leave room for few rounds, they may take as long as the preparation took, up to `ROUNDS_LONG`.
    In sampling of two stages, the best number of samples within a unit grows with the cost of a unit (Cochran 1977,
    Sampling Techniques, section 10.6). The fewest rounds of steps above 0.3 s are fewer, see `ROUNDS_MIN_SECONDS`.

    The calls of a turn that fill the caches again are untimed. So that they cost less, a turn of a step that is alone in its
    block has several blocks, equally many on all sides.

    Entrants of the same variant get blocks of equally many iterations, so that the fixed cost of a block has the same
    weight on both sides. A side that is far slower limits their number, see `BLOCK_LONGEST`.

    Args:
        iteration: Seconds of one iteration of each participating entrant, by index.
        on_device: Whether a step runs asynchronously on a device: `DEVICE_BLOCK_SECONDS` and `DEVICE_LAUNCH_SECONDS`.
        preparation: Seconds that the launch has taken so far.
        sliceable: Whether processor time can stand for the time of these steps. Long ones then have sliced rounds.
        untimed: Seconds of untimed work around each iteration, of the entrants that have any. Their blocks have one.
        works_on: Whether threads work on after a step. `AHEAD_BLOCK_SECONDS` and the policy's `ahead_launch_seconds` then apply.
        waits: Whether the waits of a step go on after it. Blocks then have `AHEAD_CALLS` at least.
    """
    untimed = untimed or {}
    sliced = sliceable and not works_on and len(iteration) > 1 and min(iteration.values()) >= SLICED_ABOVE_SECONDS
    block = DEVICE_BLOCK_SECONDS if on_device else BLOCK_SECONDS
    if works_on:
        block = AHEAD_BLOCK_SECONDS
    if sliced:
        block = max(iteration.values())  # equal shares of the processor then bring all through a round together
    whole = {index: time + untimed.get(index, 0) for index, time in iteration.items()}
    iterations, primes, extra, blocks = [], [], [], list[int]()
    for entrant in entrants:
        # A case may have another name or other thresholds on the other side.
        alike = [index for index in iteration if entrants[index].case.variant == entrant.case.variant]
        alone = any(index in untimed for index in alike)
        times = [max(1e-9, whole[index]) for index in alike] or [block]
        longest = max((iteration[index] for index in alike), default=0.0)
        primed = not (sliced or works_on) and longest < PRIME_BELOW_SECONDS
        calls = 1 if on_device else min(PRIME_CALLS, _count(PRIME_CALLS_SECONDS, times))
        iterations.append(1 if alone else max(_count(block, times), AHEAD_CALLS if waits else 1))
        primes.append(max(_count(PRIME_SECONDS, times), calls) if primed else 0)
        blocks.append(max(1, min(TURN_BLOCKS, _count(TURN_SECONDS, times)) // iterations[-1]))
        extra.append(entrant.side.slowdown)
    several = 1 if sliced or on_device or works_on else min(blocks)
    plan = Plan(
        rounds=several,
        iterations=tuple(iterations),
        primes=tuple(primes),
        extra=tuple(extra),
        sliced=sliced,
        slow=tuple(entrant.side.slow_calls for entrant in entrants),
        blocks=several,
        drain=tuple(AHEAD_DRAINED * iteration.get(i, 0.0) for i in range(len(entrants))) if works_on else (),
    )
    turn = planned_seconds(plan, whole)
    launch_seconds = DEVICE_LAUNCH_SECONDS if on_device else policy.launch_seconds
    if works_on:
        launch_seconds = policy.ahead_launch_seconds
    budget = launch_seconds * max(1.0, len(iteration) / REFERENCE_ENTRANTS)
    rounds, more = (several * math.floor(seconds / max(turn, 1e-9)) for seconds in (budget, preparation))
    long = math.floor(ROUNDS_MIN_SECONDS * max(1.0, len(iteration) / REFERENCE_ENTRANTS) / max(turn, 1e-9))
    least = max(ROUNDS_LEAST, min(policy.rounds_min, long))
    return with_whole_turns(replace(plan, rounds=min(policy.rounds_max, max(least, rounds, min(more, ROUNDS_LONG)))))


def _count(length: float, times: Sequence[float]) -> int:
    """Return the iterations that take about ``length`` on the fastest side, and no more than a few times that on any."""
    return max(1, min(round(length / min(times)), math.floor(BLOCK_LONGEST * length / max(times))))


def settling_calls(prepared: Mapping[int, Prepared], equal: bool) -> dict[int, int]:
    """Return how often each entrant calls its step on the processors of the rounds, before these.

    If ``equal``, every entrant has to reach the same number of calls, unless that would take one of them too long.
    Where batches differ in size, both sides then have the same ones in the same round.
    """
    costs = {entrant: max(1e-9, result.whole) for entrant, result in prepared.items()}
    usual = {entrant: round(SETTLE_SECONDS / cost) for entrant, cost in costs.items()}
    most = max((result.calls + usual[entrant] for entrant, result in prepared.items()), default=0)
    calls = {entrant: most - result.calls for entrant, result in prepared.items()}
    catching_up = max((costs[entrant] * count for entrant, count in calls.items()), default=0.0)
    return calls if equal and catching_up <= EQUAL_CALLS_SECONDS else usual


def one_sample(entrants: Sequence[Entrant]) -> Plan:
    """Plan a launch whose steps run once: one round, with the injected slowdown."""
    ones = (1,) * len(entrants)
    return Plan(1, ones, (0,) * len(entrants), tuple(entrant.side.slowdown for entrant in entrants))


def planned_seconds(plan: Plan, iteration: Mapping[int, float]) -> float:
    """Return how long the rounds of a launch take, from the seconds of one iteration of each participating entrant."""
    return plan.turns * sum(
        seconds * (plan.blocks * plan.iterations[index] * (1 + plan.extra[index]) + plan.primes[index])
        for index, seconds in iteration.items()
    )


def orders(entrants: Sequence[int], turns: int, rng: random.Random) -> list[list[int]]:
    """Draw the order of the entrants in each of their turns.

    A block after one of the same entrant finds its data in the caches, and takes up to a third less time. Three entrants
    or more have an order in which that never happens. Two take turns and change places now and then, so that nothing
    else that recurs on the machine meets the blocks of one entrant only.
    """
    order = rng.sample(list(entrants), len(entrants))
    drawn = [order]
    for _ in range(turns - 1):
        if len(order) > 2:
            first = rng.choice(order[:-1])
            others = [entrant for entrant in order if entrant != first]
            order = [first, *rng.sample(others, len(others))]
        elif rng.random() < _CHANGED:
            order = order[::-1]
        drawn.append(order)
    return drawn


def followers(order: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Return for each entrant, and each of its turns, the entrant of the next turn; -1 ends the launch."""
    turns = [entrant for entrants in order for entrant in entrants]
    follow: dict[int, list[int]] = {entrant: [] for entrant in turns}
    for entrant, after in zip(turns, [*turns[1:], -1], strict=True):
        follow[entrant].append(after)
    return follow


def with_whole_turns(plan: Plan) -> Plan:
    """Return the plan with rounds for whole turns. Sliced rounds are even in number, so each of two entrants starts half of them."""
    step = 2 if plan.sliced else plan.blocks
    return replace(plan, rounds=-(-plan.rounds // step) * step)


def starting_places(orders: Sequence[Sequence[int]], entrant: int) -> tuple[int, ...]:
    """Return how many others start a sliced round before this entrant, for each round.

    Every second round has the reversed order of the one before, so that of two entrants each is the first as often.
    """
    mirrored = [orders[number - 1][::-1] if number % 2 else order for number, order in enumerate(orders)]
    return tuple(order.index(entrant) for order in mirrored)


# First calls that two sides make in turn on one processor


_FACTS = (FIRST_CALL, FIRST_CALL_PARTS)


def alone(prepared: Prepared, foreign: float) -> Prepared:
    """Return the result with a first call, or the one iteration of a step that runs once, without neighbours.

    These ran for ``foreign`` nanoseconds in its turn.
    """
    if prepared.first_call is None or foreign <= 0:
        return prepared
    most, least, _ = prepared.first_call
    (time,), doubt = without_neighbours([most], {0: least}, None, foreign * 1e-9 / most)
    if prepared.facts.get(ONCE):
        return replace(prepared, iteration=time, facts={**prepared.facts, DOUBT: doubt})
    parts = {part: value * time / most for part, value in prepared.facts[FIRST_CALL_PARTS].items()}
    first = {FIRST_CALL: time, FIRST_CALL_PARTS: parts, FIRST_CALL_DOUBT: doubt}
    return replace(prepared, facts={**prepared.facts, **first})


def without_first_call(prepared: Prepared) -> Prepared:
    """Drop a first call that was made apart from that of the other side, with which it cannot be compared well."""
    return replace(prepared, facts={name: fact for name, fact in prepared.facts.items() if name not in _FACTS})
