"""Launches in real processes that follow a script: some of them die, hang or send malformed messages."""

import math
import os
import random
import sys
import time
from dataclasses import replace
from statistics import median

import pytest

from tests.fakes import worker
from tests.fakes.suites import one_file
from tfbench.errors import BenchmarkError, BenchmarkSkipped, SideError, WorkerDied, WorkerHung
from tfbench.model import Case
from tfbench.policy import preset
from tfbench.race import process_launch
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant, EntrantFailed, make_plan, orders
from tfbench.race.prober import Prober, Profiler
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.sides.spec import Side

POLICY = replace(preset("quick"), launch_seconds=0.01)
IMPATIENT = replace(POLICY, setup_seconds=0.5, answer_seconds=0.5)
LATER = replace(POLICY, setup_seconds=1.5)
"""Its limit is far longer than the start of a process."""
FINE = "t.py::test_fine"
ODD = "t.py::test_odd"
ONE = Processors((0,), (0,))


def case(name):
    return Case(name, name, name)


@pytest.fixture
def opened():
    """Launchers, which are closed after the test."""
    found = []
    yield found
    for one in found:
        one.close()


@pytest.fixture
def launcher(tmp_path, opened):
    """Returns a launcher whose workers follow the scripts, and the entrants of the fine and of the odd case."""

    def start(odd=None, policy=POLICY, fine=None, **script):
        executable = worker.install(tmp_path, cases={FINE: fine or {}, ODD: odd or {}}, **script)
        opened.append(ProcessLauncher(one_file(tmp_path), policy, Processors((0,), (0,), near=(0, 1))))
        sides = (Side("baseline", executable, tmp_path), Side("contender", executable, tmp_path))
        return opened[-1], [Entrant(case(FINE), sides[0]), Entrant(case(ODD), sides[1])]

    return start


@pytest.fixture
def real(tmp_path, opened):
    """Returns a launcher of real workers, and an entrant on each side, which are benchmarks of a module."""

    def start(text, *names, policy=POLICY, where=ONE, slowdown=0.0):
        (tmp_path / "t.py").write_text(text)
        opened.append(ProcessLauncher(one_file(tmp_path), policy, where))
        sides = (
            Side("baseline", sys.executable, tmp_path),
            Side("contender", sys.executable, tmp_path, slowdown=slowdown),
        )
        return opened[-1], [Entrant(case(f"t.py::{name}"), side) for name, side in zip(names, sides, strict=True)]

    return start


def planned(launch, entrants, **how):
    """Returns the plan of a launch that has prepared its entrants."""
    return make_plan(entrants, {index: one.iteration for index, one in launch.prepare((0, 1)).items()}, POLICY, **how)


def raced(launcher, entrants, policy=POLICY):
    """Returns the seconds of one launch."""
    launch = launcher.open(entrants, 0)
    try:
        prepared = launch.prepare((0, 1))
        if failures := [one for one in prepared.values() if isinstance(one, Exception)]:
            raise failures[0]
        ready = {index: one.iteration for index, one in prepared.items()}
        plan = make_plan(entrants, ready, policy, False)
        return launch.rounds(plan, orders([0, 1], plan.rounds, random.Random(1)))
    finally:
        launch.kill()


def test_each_entrant_has_the_time_of_its_own_process(launcher):
    found = raced(*launcher({"seconds": 2e-5}))
    assert found[0] == pytest.approx([1e-5] * len(found[0]))
    assert found[1] == pytest.approx([2e-5] * len(found[0]))


def test_variants_of_a_side_whose_zygotes_become_launches_run_at_the_same_time(launcher):
    opened, (fine, _) = launcher({"seconds": 2e-5}, spawns=True)
    found = raced(opened, [fine, replace(fine, case=case(ODD))])
    assert found[1] == pytest.approx([2e-5] * len(found[0]))


@pytest.mark.parametrize(
    ("at", "does", "error", "words"),
    [
        ("set-up", "die", WorkerDied, "exit code 3"),
        ("set-up", "crash", WorkerDied, "SIGSEGV"),
        ("set-up", "hang", WorkerHung, "did not answer within 0.5 s, and was killed: its set-up and first call must"),
        ("set-up", "skip", BenchmarkSkipped, "not here"),
        ("set-up", "fail", BenchmarkError, "^it broke"),
        ("set-up", "done", BenchmarkError, "^the benchmark ended early"),
        ("set-up", "cut", WorkerDied, "exit code 0"),
        ("set-up", "garble", BenchmarkError, "sent no valid message: .*no JSON"),
        ("meeting", "die", WorkerDied, "exit code 3"),
        ("meeting", "hang", WorkerHung, "did not answer within 0.5 s, and was killed: the step has not returned"),
        ("meeting", "fail", BenchmarkError, "^it broke"),
        ("rounds", "die", WorkerDied, "exit code 3.*while it was timed"),
        ("rounds", "hang", WorkerHung, r"did not answer within 0.5\d* s while it was timed"),
        ("rounds", "fail", BenchmarkError, "while it was timed: it broke"),
        ("rounds", "done", BenchmarkError, "while it was timed: the benchmark ended early"),
        ("rounds", "flood", WorkerDied, "exit code 3"),
        ("rounds", "garble", BenchmarkError, "while it was timed: .*no JSON"),
        ("rounds", "mistake", BenchmarkError, "while it was timed: .*Launched"),
        ("rounds", "malform", BenchmarkError, r"while it was timed: .*\(dispatched, ended, .*, used\).*\[1\]"),
        ("stop", "die", WorkerDied, "exit code 3"),
        ("stop", "hang", WorkerHung, "was killed"),
        ("stop", "garble", BenchmarkError, "after it had been timed: .*no JSON"),
        ("stop", "mistake", BenchmarkError, "after it had been timed: .*Launched"),
    ],
)
def test_an_entrant_that_breaks_is_named_with_its_reason(launcher, at, does, error, words):
    odd = {"at": at, "does": does, "meets": 2}
    opened, entrants = launcher(odd, IMPATIENT if does == "hang" else POLICY, fine={"meets": 2})
    early = at in ("set-up", "meeting")
    with pytest.raises(error if early else EntrantFailed, match=words) as caught:
        raced(opened, entrants)
    failure = caught.value
    if not early:
        assert failure.entrant == 1
        failure = failure.failure
        assert isinstance(failure, error)
    if does in ("die", "done"):
        assert "last words" in failure.output
    if does == "fail":
        assert failure.output == "where"
    assert raced(opened, [entrants[0], replace(entrants[1], case=case(FINE))])  # the zygotes still work


def prepared(launcher, entrants, order=(0, 1), **how):
    """Returns what the preparation of one launch ends in, by entrant."""
    launch = launcher.open(entrants, 0)
    try:
        return launch.prepare(order, **how)
    finally:
        launch.kill()


@pytest.fixture
def busy(monkeypatch):
    """Neighbours run all the time, as far as a launch can tell."""
    monkeypatch.setattr(process_launch.Load, "foreign", lambda self, used: math.inf)


def test_first_calls_of_two_sides_lose_what_neighbours_took(launcher, busy):
    call = {"meets": 2, "first_call": [0.1, 0.025, 0]}
    found = prepared(*launcher({**call, "first_call": [0.1, 0.1, 0]}, fine=call))
    assert [found[entrant].facts["first_call"] for entrant in (0, 1)] == pytest.approx([0.025, 0.1])


def test_an_entrant_that_does_not_wait_for_the_other_one_keeps_its_first_call(launcher, busy):
    found = prepared(*launcher({"meets": 2, "first_call": [0.1, 0.025, 0]}))
    assert [found[entrant].facts["first_call"] for entrant in (0, 1)] == pytest.approx([0.1, 0.025])


def test_a_launch_that_needs_no_first_calls_reports_none(launcher):
    found = prepared(*launcher(), together=False)
    assert [sorted(found[entrant].facts) for entrant in (0, 1)] == [["peak_host_memory"]] * 2


@pytest.fixture
def two_launches(launcher):
    """Returns two launches whose processes wait for each other, the second ahead of its time."""
    opened = []

    def start(odd, fine):
        started, entrants = launcher({"meets": 2, **odd}, fine={"meets": 2, **fine})
        opened.extend(started.open(entrants, pair) for pair in (0, 1))
        return opened

    yield start
    for launch in opened:
        launch.kill()


def test_the_next_launch_makes_its_first_calls_at_the_same_time(two_launches, busy):
    call = {"first_call": [0.1, 0.025, 0]}
    first, second = two_launches({"first_call": [0.1, 0.1, 0]}, call)
    found = first.prepare((0, 1), ahead=second)
    assert second.began
    for both in (found, second.prepare((0, 1))):
        assert [both[entrant].facts["first_call"] for entrant in (0, 1)] == pytest.approx([0.025, 0.1])
    assert not second.began


def test_an_entrant_that_breaks_in_both_launches_is_named_by_each(two_launches):
    first, second = two_launches({"at": "meeting", "does": "die"}, {})
    for both in (first.prepare((0, 1), ahead=second), second.prepare((0, 1))):
        assert isinstance(both[1], WorkerDied)
        assert both[0].facts["first_call"] == 0.1


@pytest.mark.parametrize("does", ["fail", "skip", "done", "malform", "die"])
def test_a_broken_entrant_is_named_at_once_while_the_other_one_waits_for_its_turn(launcher, does):
    opened, entrants = launcher({"at": "rounds", "does": does}, fine={"waits": 2})
    began = time.monotonic()
    with pytest.raises(EntrantFailed) as caught:
        raced(opened, entrants)
    assert caught.value.entrant == 1
    assert time.monotonic() - began < POLICY.answer_seconds / 4


CRASHES = """
import multiprocessing, os, signal, time

def test_fine(bench):
    bench(sum, [1])

def test_odd(bench):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=[60]).start()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_dies_before_one_that_it_has_forked_has_died_and_does_not_hang(real):
    with pytest.raises(WorkerDied, match="SIGKILL"):
        raced(*real(CRASHES, "test_fine", "test_odd", policy=LATER))


RAISES = """
import gc

def test_fine(bench):
    bench(sum, [1])

def test_odd(bench):
    def step():
        assert gc.isenabled(), 'in a timed round'
        return 1

    bench(step)
"""


def test_a_step_that_raises_in_its_timed_rounds_is_an_error_of_its_entrant(real):
    began = time.monotonic()
    with pytest.raises(EntrantFailed, match="while it was timed: AssertionError: in a timed round") as caught:
        raced(*real(RAISES, "test_fine", "test_odd", where=Processors((), ())))
    assert caught.value.entrant == 1
    assert "t.py" in caught.value.failure.output
    assert time.monotonic() - began < POLICY.answer_seconds / 2


RANDOM = """
import random
import numpy
import tensorflow as tf

{seeds}
def test_fine(bench):
    drawn = random.random(), numpy.random.random(), tf.random.uniform([])
    bench(sum, [1], flops=float(drawn[0]), bytes=float(drawn[1]), items=float(drawn[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ["", "random.seed(7), numpy.random.seed(7), tf.random.set_seed(7)\n"])
def test_each_timed_process_draws_numbers_of_its_own_as_bare_ones_do(real, seeds):
    """Forked processes inherit the state of numpy's generator, and lose what a module has seeded Python's with."""
    started = real(RANDOM.format(seeds=seeds), "test_fine", "test_fine", policy=preset("quick"))
    found = [prepared(*started) for _ in range(2)]
    drawn = [
        tuple(both[index].facts[name] for name in ("flops", "bytes", "items")) for both in found for index in (0, 1)
    ]
    if seeds:
        assert len(set(drawn)) == 1
    else:
        assert all(len(set(numbers)) == 4 for numbers in zip(*drawn, strict=True))


BY_TURN = """
now = calls = 0

def step():
    global now, calls
    calls += 1
    now += 100_000 * (3 if calls % {inputs} else 4)
    return 1

def test_fine(bench):
    bench.clock = lambda: now
    bench(step)
"""


@pytest.mark.parametrize("inputs", [2, 4])
def test_all_inputs_of_a_step_that_takes_them_by_turn_are_timed(real, inputs):
    """A turn has one timed call and one before it."""
    policy = preset("quick")
    times = raced(*real(BY_TURN.format(inputs=inputs), "test_fine", "test_fine", policy=policy), policy)
    for side in times.values():
        longer = [seconds > 0.35e-3 for seconds in side]
        assert sum(longer) / len(longer) == pytest.approx(1 / inputs, abs=0.15)


def test_an_entrant_that_waits_for_its_turn_is_not_called_hung(launcher):
    opened, entrants = launcher({"at": "rounds", "does": "hang"}, IMPATIENT, fine={"waits": 2})
    with pytest.raises(EntrantFailed, match="did not answer") as caught:
        raced(opened, entrants)
    assert caught.value.entrant == 1


def test_rounds_that_take_too_long_are_the_slowest_entrants(launcher):
    opened, entrants = launcher({"waits": 2, "seconds": 1e-3}, IMPATIENT, fine={"waits": 2})
    with pytest.raises(EntrantFailed, match="took longer than") as caught:
        raced(opened, entrants)
    assert caught.value.entrant == 1
    assert isinstance(caught.value.failure, WorkerHung)


BROKEN = [
    ("die", WorkerDied, "exit code 3"),
    ("skip", BenchmarkSkipped, "not here"),
    ("fail", BenchmarkError, "it broke"),
    ("garble", BenchmarkError, "no JSON"),
    ("mistake", BenchmarkError, "Launched"),
]


@pytest.mark.parametrize("at", ["set-up", "stop"])
@pytest.mark.parametrize(("does", "error", "words"), BROKEN)
def test_a_probing_or_profiling_launch_that_breaks_ends_in_the_reason_of_its_process(
    launcher, tmp_path, at, does, error, words
):
    opened, entrants = launcher({"at": at, "does": does})
    fine, odd = Prober(opened, POLICY).probe(entrants)
    assert fine.facts["first_call"] == 0.1
    assert type(odd) is error
    assert words in str(odd)
    if error is not BenchmarkSkipped:
        assert f"{'while' if at == 'set-up' else 'after'} it was probed" in str(odd)
    with pytest.raises(error, match=words):
        Profiler(opened, POLICY).profile(entrants[1], tmp_path / "logs", 0, 0)


def test_devices_are_listed_by_a_process_of_their_own(launcher):
    opened, (fine, _) = launcher()
    assert opened.devices(fine.side) == {"CPU": ("cpu:0",)}


@pytest.mark.parametrize(("does", "error", "words"), [*BROKEN, ("done", BenchmarkError, "the benchmark ended early")])
def test_devices_that_cannot_be_listed_are_an_error_with_the_reason(launcher, does, error, words):
    opened, (fine, _) = launcher(at="set-up", does=does)
    with pytest.raises(error, match=words):
        opened.devices(fine.side)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("die", "last words"),
        ("hang", "no answer within 2 s"),
        ("cut", "the other process is gone"),
        ("fail", "it broke"),
    ],
)
def test_a_side_that_does_not_start_says_why(launcher, does, words):
    opened, entrants = launcher(
        policy=replace(POLICY, start_seconds=2.0 if does == "hang" else 60.0), at="start", does=does
    )
    with pytest.raises(SideError, match=words):
        raced(opened, entrants)


@pytest.mark.parametrize("does", ["die", "hang", "garble"])
def test_a_zygote_that_forks_nothing_is_an_error_of_its_side(launcher, does):
    opened, entrants = launcher(policy=IMPATIENT if does == "hang" else POLICY, at="launch", does=does)
    with pytest.raises(SideError, match="the zygote is gone"):
        raced(opened, entrants)


@pytest.mark.parametrize("does", ["wait", "repeat"])
def test_a_late_or_repeated_answer_of_a_zygote_is_never_taken_for_another_one(launcher, does, tmp_path):
    once = {"once": str(tmp_path / "asked")} if does == "wait" else {}
    opened, entrants = launcher(policy=IMPATIENT, at="launch", does=does, **once)
    if does == "wait":
        with pytest.raises(SideError, match=r"the zygote is gone .*no answer within 0\.5 s"):
            raced(opened, entrants)
    else:
        assert raced(opened, entrants)  # the second answer is found when the process is reaped
    assert raced(opened, entrants)


def test_slow_steps_are_not_called_hung_while_their_plan_says_so(launcher):
    # Seven rounds of 0.4 s on each side, of which the workers really take one second
    opened, entrants = launcher({"seconds": 0.2, "at": "rounds", "does": "wait"}, IMPATIENT, fine={"seconds": 0.2})
    assert raced(opened, entrants)[1] == pytest.approx([0.2] * POLICY.rounds_min)


@pytest.mark.parametrize("at", ["set-up", "rounds"])
def test_a_launch_that_prints_too_much_is_killed_with_its_last_lines(launcher, at):
    opened, entrants = launcher({"at": at, "does": "print"}, replace(POLICY, output_bytes=1 << 20))
    with pytest.raises(EntrantFailed if at == "rounds" else BenchmarkError, match="printed more than 1 MiB") as caught:
        raced(opened, entrants)
    failure = caught.value.failure if at == "rounds" else caught.value
    assert "once more" in failure.output
    assert len(failure.output) < 1 << 16


def test_a_case_that_the_side_does_not_collect_is_an_error_without_a_launch(launcher):
    opened, (fine, odd) = launcher()
    with pytest.raises(BenchmarkError, match="does not collect"):
        raced(opened, [fine, replace(odd, case=case("t.py::test_other"))])


SLICED = """
import threading, time

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return 1

def test_fine(bench):
    bench(busy, 0.03)

def test_odd(bench):
    bench(lambda: time.sleep(0.01) or busy(0.03))

def test_own_clock(bench):
    bench.clock = time.monotonic_ns
    bench(busy, 0.03)
"""


FIRST_CALLS = (
    SLICED
    + """
def step(first, wait=0.0):
    calls = []
    def run():
        if not calls:
            busy(first)
            time.sleep(wait)
        calls.append(1)
        return calls
    return run

def test_fine(bench):
    bench(step(0.1))

def test_slow(bench):
    bench(step(0.15))

def test_waiting(bench):
    bench(step(0.1, 0.05))

def test_fine_once(bench):
    bench.once(step(0.1))

def test_slow_once(bench):
    bench.once(step(0.15))
"""
)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("fine", "odd", "ratio"),
    [
        ("test_fine", "test_fine", 1), ("test_fine", "test_slow", 1.5), ("test_fine", "test_waiting", 1.5),
        ("test_fine_once", "test_fine_once", 1), ("test_fine_once", "test_slow_once", 1.5),
    ],
)  # fmt: skip
def test_first_calls_in_turn_differ_by_their_own_time(real, fine, odd, ratio):
    if len(cpus := tuple(sorted(os.sched_getaffinity(0)))) < 2:
        pytest.skip("both sides prepare at once on two processors only")
    opened, entrants = real(FIRST_CALLS, fine, odd, where=Processors(cpus[:1], cpus, cpus))
    found = []
    for _ in range(3):
        first, ahead = opened.open(entrants, 0), opened.open(entrants, 0)
        launches = first.prepare((0, 1), ahead=ahead), ahead.prepare((0, 1))
        first.kill()
        ahead.kill()
        found += [[both[index].facts.get("first_call", both[index].iteration) for index in (0, 1)] for both in launches]
    baseline, contender = (median(seconds) for seconds in zip(*found, strict=True))
    assert contender / baseline == pytest.approx(ratio, rel=0.1)
    assert baseline == pytest.approx(0.1, rel=0.5)  # and not twice as long


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("slowdown", [0.0, 0.1])
def test_long_steps_are_alternated_by_the_scheduler(real, slowdown):
    opened, entrants = real(SLICED, "test_fine", "test_fine", slowdown=slowdown)
    launch = opened.open(entrants, 0)
    plan = planned(launch, entrants, sliceable=True)
    baseline, contender = launch.rounds(plan, orders([0, 1], plan.rounds, random.Random(1))).values()
    assert min(contender) / min(baseline) == pytest.approx(1 + slowdown, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_odd", "test_own_clock"])
def test_long_steps_that_wait_or_have_their_own_clock_take_turns(real, name):
    opened, entrants = real(SLICED, "test_fine", name)
    race = Race(entrants, opened, POLICY, RaceConfig(1, range(1)), time.perf_counter, random.Random(1))
    plans = []
    original = race._plan
    race._plan = lambda *prepared: plans.append(original(*prepared)) or plans[-1]
    race._launch([0, 1])
    runs = race.launches[0].runs
    assert not plans[0].sliced
    assert min(runs[1].seconds) > (0.039 if name == "test_odd" else 0.029)  # the sleep of test_odd counts


TWO = tuple(sorted(os.sched_getaffinity(0)))[:2]
needs_two = pytest.mark.skipif(len(TWO) < 2, reason="needs two processors")


ACTIVE = """
import subprocess, sys

def busy(turns):
    for _ in range(turns):
        pass
    return 1

def test_fine(bench):
    bench(busy, 2_000_000)

def test_active(bench):
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        bench(busy, 2_000_000)
    finally:
        for other in others:
            other.kill()
"""


@pytest.mark.slow
@pytest.mark.alone
@needs_two
def test_on_several_processors_a_side_is_stopped_while_the_other_has_the_turn(real):
    opened, entrants = real(ACTIVE, "test_fine", "test_active", where=Processors(TWO, TWO))
    launch = opened.open(entrants, 0)
    found = launch.rounds(planned(launch, entrants), orders([0, 1], 12, random.Random(1)))
    # Eight busy processes leave a fifth of a processor to their own side, and would leave it to the other one as well.
    assert median(found[1]) > 1.3 * median(found[0])


ENDS_EARLY = """
import os, time

def after(calls, does):
    made = []
    def step():
        made.append(1)
        if len(made) > calls:
            does()
        time.sleep(0.01)
        return 1
    return step

def test_fine(bench):
    bench(after(1_000_000, None))

def test_dies(bench):
    bench(after(40, lambda: os._exit(3)))

def test_hangs(bench):
    bench(after(40, lambda: time.sleep(1000)))
"""


@pytest.mark.slow
@needs_two
@pytest.mark.parametrize(("name", "error"), [("test_dies", WorkerDied), ("test_hangs", WorkerHung)])
def test_a_side_that_ends_in_its_turn_leaves_no_stopped_process(real, name, error):
    opened, entrants = real(ENDS_EARLY, "test_fine", name, policy=IMPATIENT, where=Processors(TWO, TWO))
    launch = opened.open(entrants, 0)
    plan = planned(launch, entrants)
    pids = [process.pid for process in launch._running.values()]
    with pytest.raises(EntrantFailed) as failed:
        launch.rounds(plan, orders([0, 1], 60, random.Random(1)))
    launch.kill()
    opened.close()
    assert failed.value.entrant == 1
    assert isinstance(failed.value.failure, error)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


AHEAD = """
import queue, threading, time

def busy(turns):
    for _ in range(turns):
        pass
    return 1

def wait(milliseconds):
    time.sleep(milliseconds / 1000)
    return 1

def ready(work, size, much):
    made = queue.Queue(size)
    def produce():
        while True:
            made.put(work(much))
    threading.Thread(target=produce, daemon=True).start()
    return made.get

def test_busy(bench):
    bench(ready(busy, 8, 20_000))

def test_busy_longer(bench):
    bench(ready(busy, 8, 26_000))

def test_wait(bench):
    bench(ready(wait, 1, 4.0))

def test_wait_longer(bench):
    bench(ready(wait, 1, 5.2))
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("work", "least"), [("busy", 300), ("wait", 100)])
def test_what_threads_do_ahead_counts(real, work, least):
    long = replace(preset("quick"), ahead_launch_seconds=2.0)  # eight elements more or less in a queue count little
    opened, entrants = real(AHEAD, f"test_{work}", f"test_{work}_longer", policy=long)
    race = Race(entrants, opened, long, RaceConfig(1, range(1)), time.perf_counter, random.Random(1))
    race._launch([0, 1])
    race._launch([0, 1], brief=True)
    runs, (short,) = race.launches[0].runs, race.short_launches
    baseline, contender = (sum(run.seconds) / len(run.seconds) for run in runs)
    assert contender / baseline == pytest.approx(1.3, rel=0.1)
    assert len(runs[0].seconds) * runs[0].iterations >= least
    assert all(run.seconds for run in short.runs), race.failures


@pytest.mark.alone
@pytest.mark.parametrize(("at", "alone", "order"), [("meeting", False, (0, 1)), ("set-up", True, (1, 0))])
def test_sides_that_hang_share_one_time_limit_and_the_first_of_two_ends_the_launch(launcher, at, alone, order):
    """A step that never returns on either side costs one wait, not one for each process."""
    hangs = {"at": at, "does": "hang", "meets": 2}
    opened, entrants = launcher(hangs, LATER, fine=hangs)
    began = time.monotonic()
    found = prepared(opened, [replace(one, case=replace(one.case, alone=alone)) for one in entrants], order)
    assert not alone or list(found) == [1]
    assert all(isinstance(one, WorkerHung) for one in found.values())
    assert time.monotonic() - began < 2 * LATER.setup_seconds
