"""The time of a stretch of work without the programs that share its processor."""

import os
import subprocess
import sys

import pytest

from tfbench.worker.quiet import Stretch, bounds, certain, waiting

MS = 1_000_000


def test_what_a_single_thread_queues_is_no_time_of_its_own():
    assert bounds(30 * MS, 10 * MS, [(10 * MS, 20 * MS)], hidden=False) == (10 * MS, 10 * MS)


def test_what_a_single_thread_waits_is_time_of_its_own():
    assert bounds(40 * MS, 10 * MS, [(10 * MS, 25 * MS)], hidden=False) == (15 * MS, 15 * MS)


def test_without_a_loss_the_time_is_that_of_the_clock():
    assert bounds(10 * MS, 10 * MS - 500, [(10 * MS - 500, 500)], hidden=False) == (10 * MS, 10 * MS)
    assert bounds(50 * MS, 10 * MS, [(10 * MS, 900)], hidden=False) == (50 * MS, 50 * MS)


def test_threads_that_queue_behind_each_other_lose_nothing():
    """Two threads run for 5 ms each, at the same time. Neither waits for anything else."""
    assert bounds(10 * MS, 10 * MS, [(5 * MS, 5 * MS), (5 * MS, 4 * MS)], hidden=False) == (10 * MS, 10 * MS)


def test_threads_that_run_side_by_side_beside_a_neighbour_lose_what_each_of_them_lost():
    """Both are in the queue while the neighbour runs for 20 ms, and one of them while the other one runs."""
    low, high = bounds(30 * MS, 10 * MS, [(5 * MS, 25 * MS), (5 * MS, 25 * MS)], hidden=False)
    assert (low, high) == (10 * MS, 10 * MS)


def test_threads_that_hand_over_leave_the_wait_between_two_bounds():
    """One thread runs for 9 ms and the other for 1 ms, which loses nothing."""
    low, high = bounds(40 * MS, 10 * MS, [(9 * MS, 30 * MS), (1 * MS, 0)], hidden=False)
    assert (low, high) == (10 * MS, 11 * MS)


def test_work_that_is_not_seen_may_have_lost_all_of_the_rest():
    """Such as that of a child process, which has ended."""
    assert bounds(40 * MS, 10 * MS, [(1 * MS, 10 * MS)], hidden=True) == (10 * MS, 39 * MS)
    assert bounds(40 * MS, 10 * MS, [(1 * MS, 10 * MS)], hidden=False) == (30 * MS, 39 * MS)


def test_waits_are_those_of_the_median_stretch_at_most():
    stretches = [Stretch(10, 10, least, most) for least, most in [(10, 10), (10, 15), (10, 30)]]
    assert waiting(stretches) == 0.5
    assert waiting([]) == 0.0
    assert not certain(stretches)
    assert certain(stretches[:1])
    assert certain([])


_BESIDE = """
import hashlib, os, subprocess, sys, threading, time
from statistics import median
from tfbench.worker.quiet import Meter

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
DATA = bytes(1 << 20)

def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(DATA).digest()  # without the interpreter's lock

def threads():
    both = [threading.Thread(target=work, args=(0.01,)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

def child():
    subprocess.run([sys.executable, "-S", "-c", "for _ in range(500_000): pass"])

for step in (lambda: work(0.02), lambda: (work(0.01), time.sleep(0.02)), threads, child):
    meter = Meter()
    for _ in range(9):
        meter.begin()
        began = time.perf_counter_ns()
        step()
        meter.end(time.perf_counter_ns() - began)
    print(*(median(getattr(one, name) for one in meter.stretches) * 1e-9 for name in ("used", "least", "most")))
"""


@pytest.mark.alone
@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this kernel does not tell how long threads queue"
)
def test_neighbours_take_no_time_of_a_stretch():
    processor = min(os.sched_getaffinity(0))
    spin_forever = f"import os\nos.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    neighbours = [subprocess.Popen([sys.executable, "-c", spin_forever]) for _ in range(2)]
    try:
        run = subprocess.run([sys.executable, "-c", _BESIDE], capture_output=True, text=True, check=True)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    work, sleep, threads, child = (tuple(map(float, line.split())) for line in run.stdout.splitlines())
    assert work[1:] == pytest.approx((0.02, 0.02), rel=0.2)
    assert sleep[1:] == pytest.approx((0.03, 0.03), rel=0.2)
    assert threads[1] == pytest.approx(0.02, rel=0.2)
    assert child[1] == pytest.approx(child[0], rel=0.01)  # and no more is certain
    assert child[2] > 2 * child[1]
