"""First calls that shared a processor, on a scheduler that alternates them in slices."""

import pytest

from tfbench.model import ONCE
from tfbench.protocol import Prepared
from tfbench.race.launch import alone, time_in_queue

SLICE = 4
RUN, WAIT = "run", "wait"


def scheduled(*calls, skew=0):
    """Run calls on one processor by slices; returns the wall time and the processor time of each.

    Args:
        calls: Parts of each call, ``(RUN or WAIT, milliseconds)``.
        skew: Milliseconds by which the second call starts later.
    """
    left = [[[kind, time] for kind, time in parts] for parts in calls]
    begins, ends, last = [0, skew], [None] * len(calls), -1
    now = 0
    while None in ends:
        ready = [i for i, parts in enumerate(left) if ends[i] is None and now >= begins[i] and parts[0][0] == RUN]
        running = next((i for i in (*range(last + 1, len(calls)), *range(last + 1)) if i in ready), None)
        for _ in range(SLICE):
            now += 1
            for i, parts in enumerate(left):
                if ends[i] is None and now > begins[i] and (i == running or parts[0][0] == WAIT):
                    parts[0][1] -= 1
                    while parts and parts[0][1] <= 0:
                        parts.pop(0)
                    if not parts:
                        ends[i] = now
            if running is None or ends[running] is not None or left[running][0][0] == WAIT:
                break
        last = running if running is not None else last
    used = [sum(time for kind, time in parts if kind == RUN) for parts in calls]
    return [(end - begin, cpu) for begin, end, cpu in zip(begins, ends, used, strict=True)]


def seconds(*calls, skew=0):
    """Returns the calls without their time in the queue, milliseconds."""
    times = scheduled(*calls, skew=skew)
    queue = time_in_queue(dict(enumerate(times)))
    return [wall - queue for wall, _ in times]


@pytest.mark.parametrize("skew", [0, 1, 5, 30])
@pytest.mark.parametrize("longer", [100, 110, 150, 300])
def test_each_call_takes_its_own_processor_time(longer, skew):
    assert seconds([(RUN, 100)], [(RUN, longer)], skew=skew) == pytest.approx([100, longer], abs=SLICE)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("wait", [30, 100, 400])
def test_what_one_side_waits_for_in_addition_counts(wait, where):
    parts = {
        "first": [(WAIT, wait), (RUN, 100)],
        "middle": [(RUN, 50), (WAIT, wait), (RUN, 50)],
        "last": [(RUN, 100), (WAIT, wait)],
    }
    before, now = seconds([(RUN, 100)], parts[where])
    assert now / before == pytest.approx(1 + wait / 100, rel=0.1)


def test_what_both_sides_wait_for_counts():
    waiting = [(RUN, 20), (WAIT, 200), (RUN, 20)]
    assert seconds(waiting, waiting) == pytest.approx([240, 240], abs=2 * SLICE)


def test_a_call_shorter_than_a_slice_that_ends_before_the_other_begins_takes_its_processor_time():
    assert seconds([(RUN, 2)], [(RUN, 3)], skew=2) == [2, 3]


def test_a_single_call_has_waited_for_nobody():
    assert time_in_queue({1: (2.0, 1.0)}) == 0


def test_the_parts_of_a_call_are_shortened_with_it():
    call = Prepared(1e-5, {"first_call": 2.0, "first_call_parts": {"trace": 1.5}}, first_call=(2.0, 1.0))
    assert alone(call, 1.0) == Prepared(
        1e-5, {"first_call": 1.0, "first_call_parts": {"trace": 0.75}}, first_call=(2.0, 1.0)
    )


def test_the_only_call_of_a_step_that_runs_once_is_shortened():
    assert alone(Prepared(2.0, {ONCE: True}, first_call=(2.0, 1.0)), 0.5).iteration == 1.5


@pytest.mark.parametrize("call", [Prepared(1e-5, {"first_call": 2.0}), Prepared(2.0, {ONCE: True})])
def test_a_call_that_shared_nothing_keeps_its_time(call):
    assert alone(call, 1.0) == call
