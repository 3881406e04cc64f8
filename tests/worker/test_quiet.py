"""The time of a stretch of work without the programs that share its processor."""

import os
import subprocess
import sys

import pytest

from tfbench.worker.quiet import Stretch, bounds, certain, waiting

MS = 1_000_000


@pytest.mark.parametrize(
    ("wall", "used", "threads", "low", "high"),
    [
        pytest.param(30, 10, [(10, 20)], 10, 10, id="a single thread queues"),
        pytest.param(10, 9.9995, [(9.9995, 0.0005)], 10, 10, id="no loss"),
        pytest.param(50, 10, [(10, 0.0009)], 50, 50, id="a wait without loss"),
        pytest.param(10, 10, [(5, 5), (5, 4)], 10, 10, id="threads queue behind each other alone"),
        pytest.param(30, 10, [(5, 25), (5, 25)], 10, 10, id="threads side by side queue behind a neighbour"),
        pytest.param(40, 10, [(9, 30), (1, 0)], 10, 11, id="a thread hands over to another"),
        pytest.param(40, 10, [(1, 10)], 30, 39, id="a thread queues while others work"),
        pytest.param(
            40, 10, [(1, 10), "hidden"], 10, 39, id="a child process, which has ended, may have lost all of the rest"
        ),
    ],
)
def test_the_time_without_neighbours_has_bounds(wall, used, threads, low, high):
    """In milliseconds: by the clock, on processors, and for each thread on one and in a queue."""
    times = [(round(ran * MS), round(queued * MS)) for ran, queued in (one for one in threads if one != "hidden")]
    assert bounds(wall * MS, round(used * MS), times, "hidden" in threads) == (low * MS, high * MS)


def test_waits_are_those_of_the_median_stretch_at_most():
    stretches = [Stretch(10, least, most) for least, most in [(10, 10), (10, 15), (10, 30)]]
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
