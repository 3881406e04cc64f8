"""Sessions in which several cases race at the same time."""

import os
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tests.fakes import worker
from tests.fakes.suites import request_of
from tfbench.model import Case, Outcome
from tfbench.race import process_launcher
from tfbench.race.lanes import Processors
from tfbench.session.session import Session

GROUP = "t.py::test_v"
CASES = [
    *(Case(f"{GROUP}[a={level}]", "test_v", GROUP, (("a", level),), level == "x") for level in "xy"),
    *(Case(f"t.py::test_{number}", f"test_{number}", f"t.py::test_{number}") for number in range(6)),
    Case("t.py::test_all", "test_all", "t.py::test_all", cpus=0),
]
CPUS = tuple(sorted(os.sched_getaffinity(0)))
WHOLE = Processors(CPUS[-1:], CPUS)


def lanes(count):
    return tuple(Processors(cpu, cpu) for cpu in [(CPUS[number % len(CPUS)],) for number in range(count)])


@pytest.fixture
def session(tmp_path):
    """Returns a function that opens a session of scripted workers."""
    opened = []

    def start(count, device="cpu", **settings):
        script = {case.name: {"seconds": 1e-4} for case in CASES}
        for name, more in settings.pop("script", {}).items():
            script[name] |= more
        request = request_of(
            tmp_path, CASES, processors=WHOLE, executable=worker.install(tmp_path, cases=script), device=device,
            folder=tmp_path / f"data{len(opened)}", lane_processors=lanes(count), seed=7, **settings,
        )  # fmt: skip
        opened.append(Session(request, CASES))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def run(session):
    with closing(session):
        for case in CASES:
            session.result(case)
        session.conclude()
        return session.report(complete=True)


def rows(report):
    return [(row.case.name, row.metric, row.outcome, row.launches, row.rounds) for row in report.verdicts]


@pytest.mark.parametrize("settings", [{}, {"against": "self"}])
def test_the_report_does_not_depend_on_the_number_of_lanes(session, settings):
    one, three = (run(session(count, **settings)) for count in (1, 3))
    assert rows(one) == rows(three)
    assert one.due == three.due
    assert [row.case for row in one.variant_results] == [row.case for row in three.variant_results]
    assert set(three.seconds_by_case) == {case.name for case in CASES}
    assert sum(three.seconds_by_phase.values()) > 0


def test_cases_that_may_be_skipped_wait_for_their_turn(session):
    opened = session(2, uncertain=frozenset({"t.py::test_3"}))
    opened.result(CASES[0])
    opened.runs.skip(Case("t.py::test_3", "test_3", "t.py::test_3"), "not today")
    report = run(opened)
    assert [(skip.case.name, skip.reason) for skip in report.skips] == [("t.py::test_3", "not today")]
    assert len([row for row in report.verdicts if row.metric == "time"]) == len(CASES) - 1


@pytest.mark.parametrize(
    ("device", "levels", "apart"), [("cpu", (), False), ("all", (), True), ("all", (("device", "cpu"),), False)]
)
def test_a_case_that_may_run_on_a_gpu_needs_the_machine(session, monkeypatch, device, levels, apart):
    monkeypatch.setattr(process_launcher, "has_driver", lambda: True)
    assert session(2, device)._apart((replace(CASES[2], variant=levels),)) is apart


@pytest.mark.parametrize(("cpus", "apart"), [(1, False), (2, False), (3, True), (0, True)])
def test_a_case_that_fits_into_each_lane_needs_no_machine_of_its_own(session, cpus, apart):
    opened = session(1)
    opened.request = replace(opened.request, lane_processors=(Processors((1,), (0, 1)), Processors((4,), (2, 3, 4))))
    assert opened._apart((CASES[2], replace(CASES[3], cpus=cpus))) is apart


def test_ctrl_c_ends_all_lanes_and_keeps_what_is_finished(session):
    slow = {case.name: {"at": "rounds", "does": "hang"} for case in CASES[4:]}
    opened = session(2, script=slow)
    opened.result(CASES[0])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(opened)
    assert time.monotonic() - began < 5
    report = opened.report()
    assert report.interrupted
    times = {row.case.name: row for row in report.verdicts if row.metric == "time"}
    assert times[CASES[0].name].outcome is Outcome.NEW
    assert {times[case.name].reason.code for case in CASES[4:]} == {"not-measured"}
