"""The inner loops, with a clock that only the step advances."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from tfbench.model import BESIDE, RESTLESS
from tfbench.protocol import Serve
from tfbench.worker import block as block_module
from tfbench.worker.block import (
    Block,
    TakenBlock,
    WorkBeside,
    active_time,
    drain,
    gc_disabled,
    gc_rate,
    gc_watched,
    injection,
    pace,
    rest,
    serve_turns,
    waits_ahead,
    warm_up,
)


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def step(self, nanoseconds=1000):
        def call():
            self.now += nanoseconds
            return self.now

        return call


@pytest.mark.parametrize(
    ("extra", "wait", "times", "waits", "dispatched"),
    [
        (0, 0, (5000, 12000), [], []),
        (1, 0, (5000, 13000), [], []),
        (0, 50, (5050, 12100), [5000, 12050], [12050]),  # work on a device, whose dispatch is noted
    ],
)
def test_a_block_times_its_iterations_and_the_device_and_not_its_priming(extra, wait, times, waits, dispatched):
    clock, waited = Clock(), []

    def synchronise():
        waited.append(clock.now)
        clock.now += wait

    block = Block(clock.step(), synchronise if wait else None, clock)
    assert block(iterations=7, prime=5, extra=extra) == times
    assert (waited, block.dispatched) == (waits, dispatched)


def test_warm_up_runs_until_two_windows_agree():
    clock, calls = Clock(), []

    def step():
        calls.append(1)
        clock.now += 1_000_000 if len(calls) > 30 else 3_000_000 - 50_000 * len(calls)

    seconds = warm_up(Block(step, None, clock), (0.02, 1.0, 0.02, 0.0))
    assert seconds == pytest.approx(1e-3)


@pytest.mark.parametrize(("limit", "seconds"), [(3.0, 2e-3), (0.8, 0.05)])
def test_warm_up_goes_on_while_calls_trace_functions_up_to_a_limit(limit, seconds):
    """The step traces a function for each of 24 shapes, which takes longer than its later calls."""
    clock, calls = Clock(), []

    def step():
        calls.append(1)
        clock.now += 50_000_000 if len(calls) <= 24 else 2_000_000

    found = warm_up(Block(step, None, clock), (0.02, 0.5, 0.02, limit), lambda: min(24, len(calls)))
    assert found == pytest.approx(seconds)


def test_the_pace_of_a_step_counts_the_calls_that_wait_for_others():
    clock, calls = Clock(), []

    def step():  # takes eight results that are ready, then waits until eight are
        calls.append(1)
        clock.now += 8_000_000 if len(calls) % 8 == 0 else 1000

    assert pace(Block(step, None, clock), 0.03) == pytest.approx(1e-3, rel=0.01)
    assert pace(Block(step, None, clock), 0.0) == pytest.approx(1e-6)  # short launches warm nothing up


def with_full_buffer(clock, ready, seconds):
    """Return a step that takes a microsecond while results are ready, and then as long as it takes to make one."""
    left = iter(range(ready))

    def step():
        clock.now += 1000 if next(left, None) is not None else round(seconds * 1e9)

    return step


def test_what_threads_have_made_ahead_is_no_pace_and_is_used_up_by_calls():
    clock = Clock()
    assert pace(Block(with_full_buffer(clock, 500, 0.004), None, clock), 0.03) == pytest.approx(0.004)
    block = Block(with_full_buffer(clock, 16, 0.02), None, clock)
    assert drain(block, 0.01, 1.0) == (17, 16 * 1000 + 20_000_000)
    assert drain(block, 0.01, 1.0) == (1, 20_000_000)
    never_long = Block(clock.step(1_000_000), None, clock)
    assert drain(never_long, 0.01, 0.1) == (100, 100_000_000)


def test_a_long_step_is_called_once_to_be_warm_and_once_after_a_rest(monkeypatch):
    clock, calls = Clock(), []

    def step():
        calls.append(clock.now)
        clock.now += 2_000_000_000

    monkeypatch.setattr(block_module.time, "sleep", lambda seconds: None)
    block = Block(step, None, clock)
    iteration = warm_up(block, (0.03, 0.5, 0.02, 0.0))
    assert iteration == pytest.approx(2.0)
    assert len(calls) == 1
    assert waits_ahead(block, 0.03, iteration) is None
    assert len(calls) == 2


@pytest.mark.parametrize(("fraction", "seconds"), [(0.0, 2.0), (0.1, 2.2), (1.5, 5.0)])
def test_blocks_of_a_step_that_runs_once_have_its_time_and_the_slowdown_and_call_nothing(fraction, seconds):
    clock = Clock()
    block = TakenBlock(clock.step(), None, clock, taken=2_000_000_000)
    began, ended = block(1, 0, *next(injection(1, fraction, (), 0)))
    assert (ended - began) * 1e-9 == pytest.approx(seconds)
    assert (clock.now, block.calls) == (0, 0)


@pytest.mark.parametrize("tick", [10, 40])
def test_a_slowdown_comes_after_the_work_of_the_device_and_is_exact(tick):
    order = []

    class Ticking(Clock):
        def __call__(self):
            self.now += tick
            return self.now

    clock = Ticking()

    def synchronise():
        order.append("waited")

    block = Block(lambda: order.append("called"), synchronise, clock)
    began, ended = block(iterations=1, rest=10.0)
    assert order == ["waited", "called", "waited"]
    taken = 2 * tick  # the clock is read at dispatch and at the end
    assert ended - began == 11 * taken
    assert clock.now > began + 11 * taken


def test_a_step_that_collects_garbage_itself_pays_for_all_objects():
    gc.freeze()
    with gc_watched():
        gc.collect(0)
        assert gc.get_freeze_count() > 1000
        gc.collect()
        assert gc.get_freeze_count() < 1000
    gc.freeze()
    with gc_disabled():
        assert gc.get_freeze_count() < 1000


@pytest.mark.parametrize(
    ("thresholds", "rate"), [((1, 1), 1.0), ((0.5, 1), 2.0), ((2, 1), 1.0), ((2, 0.5), 2.0), ((0, 1), 0.0)]
)
def test_the_rate_of_collections_is_that_of_the_generation_that_is_collected_most(monkeypatch, thresholds, rate):
    monkeypatch.setattr(block_module, "_USUAL", (700, 10, 0))
    young, middle = thresholds
    monkeypatch.setattr(block_module.gc, "get_threshold", lambda: (700 * young, 10 * middle, 0))
    assert gc_rate() == rate
    with gc_disabled():
        assert (gc.isenabled(), gc_rate()) == (False, 0.0)
    assert gc.isenabled()


def order_of(follow, groups=()):
    return Serve(tuple(follow), 1, 0, 0.0, groups)


def test_turns_are_passed_on_in_order():
    clock, order = Clock(), []
    pipes = [os.pipe() for _ in range(2)]
    outboxes = [write for _, write in pipes]

    def entrant(own, follow):
        def step():
            order.append(own)
            clock.now += 10

        block = partial(Block(step, None, clock), iterations=1)
        serve_turns(lambda: [block()], order_of(follow), own, [pipes[own][0], *outboxes])

    # the rounds 0 1 | 1 0 | 0 1: entrant 1 keeps the turn once, entrant 0 too
    threads = [threading.Thread(target=entrant, args=one) for one in ((0, [1, 0, 1]), (1, [1, 0, -1]))]
    for thread in threads:
        thread.start()
    os.write(outboxes[0], b"1")
    for thread in threads:
        thread.join(5)
    assert order == [0, 1, 1, 0, 0, 1]
    for pipe in pipes:
        for descriptor in pipe:
            os.close(descriptor)


def signals(monkeypatch, block, follow):
    """Returns the signals that entrant 0 of three sends, the second of which has left the launch."""
    sent = []
    monkeypatch.setattr(os, "killpg", lambda group, which: sent.append((which, group)))
    inbox, outbox = os.pipe()
    os.write(outbox, b"11")
    try:
        serve_turns(block, order_of(follow, (10, 0, 12)), 0, [inbox, *[outbox] * 3])
    except ZeroDivisionError:
        sent.append("failed")
    os.close(inbox)
    os.close(outbox)
    return sent


def test_others_are_stopped_during_a_turn(monkeypatch):
    stop, go_on = (signal.SIGSTOP, 12), (signal.SIGCONT, 12)
    assert signals(monkeypatch, lambda: [(1, 2)], [2, 0, -1]) == [stop, go_on, stop, go_on]
    assert signals(monkeypatch, lambda: 1 / 0, [2]) == [stop, go_on, "failed"]


def test_a_process_group_that_no_longer_exists_is_ignored():
    inbox, outbox = os.pipe()
    os.write(outbox, b"1")
    gone = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    gone.wait()
    blocks = [(1, 2), (3, 5)]
    assert serve_turns(lambda: blocks, order_of([-1], (0, gone.pid)), 0, [inbox, *[outbox] * 2]) == ([1, 3], [2, 5])
    os.close(inbox)
    os.close(outbox)


def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(100))


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, partial(ProcessPoolExecutor, mp_context=get_context("fork"))])
def test_rest_waits_for_the_work_of_threads_and_processes_beside_a_busy_process(kind):
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # work in the queue of a processor is not done
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with kind(1) as pool:
            pool.submit(work, 0.0).result()
            began = active_time()
            pool.submit(work, 0.2)
            rests = rest(30)
            used = active_time() - began
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, processors)
    assert rests
    assert used == pytest.approx(0.2e9, rel=0.2)


def worked_before(told):
    work(0.3)
    told.set()
    work(0.2)


def test_a_child_that_ends_meanwhile_has_used_what_it_used_since():
    context = get_context("fork")
    told = context.Event()
    child = context.Process(target=worked_before, args=(told,))
    child.start()
    told.wait()
    began = active_time()
    rests = rest(30)
    used = active_time() - began
    child.join()
    assert rests
    assert used == pytest.approx(0.2e9, rel=0.2)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, lambda size: ProcessPoolExecutor(size, get_context("fork"))])
def test_work_of_others_counts_outside_of_blocks_alone(pool):
    with pool(1) as others:
        others.submit(work, 0.0).result()  # has begun to live
        beside = WorkBeside()
        others.submit(work, 0.1).result()
        beside.pause()
        others.submit(work, 0.3).result()  # inside of a block
        beside.go_on()
        beside.end_rounds()
        others.submit(work, 0.2)
        found = beside.facts(2)
    assert RESTLESS not in found
    assert found[BESIDE] == pytest.approx(0.15, rel=0.2)


def test_work_of_a_handler_of_signals_counts_between_the_blocks():
    before = signal.signal(signal.SIGALRM, lambda *_: work(0.1))
    try:
        beside = WorkBeside()
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        time.sleep(0.01)  # as while it waits for its turn
        beside.end_rounds()
        work(0.1)  # the launch's own, after the rounds
        found = beside.facts(2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert found[BESIDE] == pytest.approx(0.05, rel=0.2)


def test_a_benchmark_that_replaces_the_collection_hides_no_garbage(monkeypatch):
    class Slow:
        def __del__(self):
            work(0.1)

    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    with gc_disabled():
        beside = WorkBeside()
        beside.end_rounds()
        cycle = Slow()
        cycle.own = cycle
        del cycle
        found = beside.facts(1)
    assert found[BESIDE] == pytest.approx(0.1, rel=0.3)


def test_callbacks_of_the_garbage_collector_count_for_each_collection_that_the_rounds_put_off():
    def called(phase, info):
        work(0.01 * (phase == "stop"))

    with gc_disabled():
        beside = WorkBeside()
        beside.end_rounds()
        kept = [[] for _ in range(5 * gc.get_threshold()[0] + 100)]
        gc.callbacks.append(called)
        try:
            found = beside.facts(1)
        finally:
            gc.callbacks.remove(called)
    assert kept
    assert found[BESIDE] == pytest.approx(0.05, rel=0.3)


def test_rest_ends_at_its_limit_if_threads_never_rest():
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [work(1e-3) for _ in iter(ended.is_set, True)])
        began = active_time()
        rests = rest(0.05)
        used = active_time() - began
        ended.set()
    assert not rests
    assert used > 0.01e9


@pytest.mark.parametrize(("ahead", "noticed"), [(True, True), (False, False)])
def test_what_goes_on_between_the_calls_is_noticed_without_processor_time(monkeypatch, ahead, noticed):
    clock, ready = Clock(), 5_000_000

    def step():
        nonlocal ready
        clock.now = max(clock.now, ready) + 100
        if ahead:
            ready = clock.now + 5_000_000  # the next answer is on its way
        else:
            clock.now += 5_000_000
        return 1

    def sleep(seconds):
        clock.now += round(seconds * 1e9)

    monkeypatch.setattr(block_module.time, "sleep", sleep)
    paced = waits_ahead(Block(step, None, clock), 0.03)
    assert (paced is not None) is noticed
    assert paced is None or paced == pytest.approx(5e-3, rel=0.01)
