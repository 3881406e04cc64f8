"""Rounds that the scheduler alternates."""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfbench.model import BESIDE
from tfbench.protocol import ServeSliced
from tfbench.worker import block
from tfbench.worker.block import Block, WorkBeside, serve_slices
from tfbench.worker.quiet import Meter


@pytest.fixture
def pipes():
    """Returns three inboxes, as pipes."""
    opened = [os.pipe() for _ in range(3)]
    yield opened
    for pipe in opened:
        for descriptor in pipe:
            os.close(descriptor)


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return 1


def serve(pipes, own, call, pairs=3, extra=0.0, beside=None):
    others = tuple(index for index in range(len(pipes)) if index != own)
    order = ServeSliced((own, len(others) - own) * pairs, others, 1, extra)
    timed = Block(call, None, time.process_time_ns)
    return serve_slices(timed, order, [pipes[own][0], *(outbox for _, outbox in pipes)], beside or WorkBeside())


def side_by_side(pipes, step):
    """Serve a step, which takes its place, in a thread for each pipe."""
    with ThreadPoolExecutor(len(pipes)) as pool:
        list(pool.map(lambda own: serve(pipes, own, lambda: step(own)), range(len(pipes))))


def test_all_are_in_each_round_together(pipes):
    done, ahead, lock = Counter(), [], threading.Lock()

    def step(own):
        with lock:
            ahead.append(done[own] - min(done[other] for other in range(3)))
        time.sleep(0.002 * own)
        done[own] += 1

    side_by_side(pipes, step)
    assert done == {0: 6, 1: 6, 2: 6}
    assert set(ahead) <= {0, 1}


def test_a_block_has_the_time_of_the_process_with_its_injected_slowdown(pipes):
    def step():
        time.sleep(0.01)  # the other side's slice
        busy(0.01)

    rounds, waited = serve(pipes[:1], 0, step, extra=0.25)
    times = [end - start for start, end in zip(rounds.began, rounds.ended, strict=True)]
    assert min(times) == pytest.approx(1.25e7, rel=0.1)
    assert waited > 0.9 / 1.25


def test_a_block_that_works_does_not_wait_even_if_it_queues_for_its_processor(pipes):
    _, waited = serve(pipes[:1], 0, lambda: busy(0.03))
    assert waited < 0.01


def test_a_look_for_waits_is_no_work_beside_calls(pipes, monkeypatch):
    class Slow(Meter):
        def begin(self):
            busy(0.01)
            super().begin()

    monkeypatch.setattr(block, "Meter", Slow)
    beside = WorkBeside()
    serve(pipes[:1], 0, lambda: busy(0.02), beside=beside)
    assert beside.facts(6)[BESIDE] < 0.002


def test_the_entrants_of_a_round_start_at_their_places(pipes, monkeypatch):
    monkeypatch.setattr(block, "HEAD_START", 0.05)  # a busy machine may delay a thread by milliseconds
    began, lock = [], threading.Lock()

    def step(own):
        with lock:
            began.append(own)
        time.sleep(0.01)

    side_by_side(pipes[:2], step)
    assert began == [0, 1, 1, 0] * 3


def slice_of_the_scheduler():
    with open("/proc/self/sched") as file:
        return next((int(line.split()[-1]) for line in file if line.startswith("se.slice")), 0)


def test_slices_are_long_enough_to_hide_the_misses_after_each(pipes):
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if release < (6, 12) or not os.access("/proc/self/sched", os.R_OK) or not slice_of_the_scheduler():
        pytest.skip("this kernel cannot choose or tell the length of a slice")
    child = os.fork()
    if not child:
        serve(pipes[:1], 0, lambda: busy(0.001))
        os._exit(slice_of_the_scheduler() != 20_000_000)
    assert os.waitpid(child, 0)[1] == 0
