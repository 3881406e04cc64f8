"""What a process does after many calls, and after the last one. Each step in a process of its own, without TensorFlow."""

import json
import time

import pytest

from tests.fakes.alone import run_alone
from tfbench.protocol import ProbeCase
from tfbench.worker import probes
from tfbench.worker.quiet import own_time

RESTS = """
    import json, os, signal, subprocess, sys, threading, time
    from tfbench.worker import probes

    probes.REST_SECONDS = 0.5

    def spin(seconds):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    def later(seconds):
        time.sleep(0.2)
        spin(seconds)

    RESTS = {
        "nothing": lambda: None,
        "timer": lambda: threading.Timer(0.2, spin, [0.2]).start(),
        "thread": lambda: threading.Thread(target=later, args=[0.2], daemon=True).start(),
        "idle thread": lambda: threading.Thread(target=time.sleep, args=[9], daemon=True).start(),
        "child": lambda: subprocess.Popen([sys.executable, "-c", "sum(range(20_000_000))"]),
        "alarm": lambda: (signal.signal(signal.SIGALRM, lambda *_: spin(0.2)), signal.setitimer(signal.ITIMER_REAL, 0.2)),
    }
    for name, start in RESTS.items():
        if (pid := os.fork()) == 0:
            start()
            began, led = time.monotonic(), probes.Probes()
            led.start("afterwork", probes.afterwork())
            led.reach(probes.END)
            print(json.dumps([name, led.found["afterwork"]["seconds"], time.monotonic() - began]), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def rests():
    return {name: (used, took) for name, used, took in map(json.loads, run_alone(RESTS).splitlines())}


@pytest.mark.parametrize("name", ["timer", "thread", "child", "alarm"])
def test_work_after_the_last_call_counts(rests, name):
    assert rests[name][0] > 0.1


def test_an_idle_process_uses_nothing_and_does_not_rest_for_long(rests):
    assert rests["idle thread"][0] < 0.05
    assert rests["nothing"][0] < 0.02
    assert rests["nothing"][1] < 0.4


class Step:
    """Takes longer from a call on."""

    def __init__(self, seconds, slow_from, factor=3):
        self.seconds, self.slow_from, self.factor, self.calls = seconds, slow_from, factor, 0

    def __call__(self):
        self.calls += 1
        until = time.perf_counter() + self.seconds * (self.factor if self.calls > self.slow_from else 1)
        while time.perf_counter() < until:
            pass


def request(most=1000, seconds=1.0):
    return ProbeCase((), "case", "folder", 4, (4, 50, 50), (0.4, 0.4, 0.4), (0, 0, 0), (), (most, seconds))


def slowing(step, most=1000, seconds=1.0):
    led = probes.Probes()
    led.start("slowing", probes.slowing(step, step.seconds, request(most, seconds)))
    led.reach(probes.END)
    return led.found.get("slowing") or led.absent["slowing"]


@pytest.mark.parametrize(("slow_from", "low", "high"), [(800, 2.0, 4.0), (10_000, 1.0, 1.4)])
def test_the_last_tenth_of_many_calls_is_compared_with_the_first(slow_from, low, high):
    step = Step(1e-4, slow_from)
    found = slowing(step)
    assert low <= found["ratio"] <= high
    assert found["calls"] == step.calls == 1000


@pytest.mark.parametrize("name", ["leaks", "slowing"])
def test_a_step_that_breaks_after_many_calls_ends_the_launch(name):
    calls = iter(range(100))
    with pytest.raises(RuntimeError) as raised:
        probes.Probes().start(name, getattr(probes, name)(lambda: next(calls), 1e-4, request()))
    assert isinstance(raised.value.__cause__, StopIteration)


def test_calls_that_become_faster_are_no_slowing():
    assert slowing(Step(1e-4, 500, factor=0.3))["ratio"] == 1.0


def test_slow_steps_are_called_as_long_as_the_seconds_allow():
    step = Step(4e-3, 10_000)
    assert 20 <= slowing(step, 5000, 0.25)["calls"] <= 80
    assert slowing(Step(2e-2, 10_000), 5000, 0.25) == "a call takes 0.02 s, so that 20 calls take longer than 0.25 s"


def test_the_own_time_of_a_thread_has_its_waits():
    began = own_time()
    time.sleep(0.05)
    assert own_time() - began >= 0.045e9
