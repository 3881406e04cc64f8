"""A whole session with scripted workers: where its wall time goes."""

import time
from contextlib import closing
from dataclasses import replace

import pytest

from tests.fakes import worker
from tests.fakes.suites import request_of
from tfbench.errors import UsageError
from tfbench.gpus.monitor import GpuSession
from tfbench.model import Case, Outcome
from tfbench.race.timer import Phase
from tfbench.session.request import CaseResult
from tfbench.session.resume import Journal
from tfbench.session.session import Session

GROUP = "t.py::test_a"
VARIANTS = [Case(f"{GROUP}[a={level}]", "test_a", GROUP, (("a", level),), level == "x") for level in "xy"]
CASES = [*VARIANTS, Case("t.py::test_b", "test_b", "t.py::test_b")]


@pytest.fixture
def finished(tmp_path):
    """Returns a function that measures cases in a session, and returns its report and the seconds that it took."""
    names = [case.name for case in CASES]
    executable = worker.install(tmp_path, cases={name: {"seconds": 1e-4} for name in names})

    def run(cases=CASES, **changes):
        request = request_of(tmp_path, CASES, executable=executable, **changes)
        began = time.perf_counter()
        with closing(Session(request, CASES)) as session:
            for case in cases:
                session.runs.result(case)
            return session.report(complete=True), time.perf_counter() - began

    return run


def outcomes(report):
    return [verdict.outcome for verdict in report.verdicts if verdict.metric == "time"]


def test_the_phases_and_the_cases_divide_the_wall_time(finished):
    report, took = finished()
    phases, cases = report.seconds_by_phase, report.seconds_by_case
    assert outcomes(report) == [Outcome.NEW] * 3
    assert list(phases) == [phase.value for phase in Phase]
    assert sum(phases.values()) == pytest.approx(report.wall_seconds, abs=0.01)
    assert report.wall_seconds <= took
    assert [name for name, seconds in phases.items() if not seconds] == ["shared set-up", "confirming"]
    assert list(cases) == [case.name for case in CASES]
    assert cases[CASES[0].name] == cases[CASES[1].name] > 0  # they raced each other
    work = phases["preparing"] + phases["rounds"] + phases["probing"]
    assert work <= sum(cases.values()) <= work + phases["profiling"] + phases["other"]


def test_the_mean_of_all_cases_is_raced_again_before_it_fails_the_run(tmp_path):
    names = [f"t.py::test_{number}" for number in range(8)]
    cases = [Case(name, name[6:], name) for name in names]
    executable = worker.install(tmp_path, cases={name: {"seconds": 1e-4} for name in names})
    asked = {"against": "self", "inject_slowdown": 0.015, "gate_suite": 0.01}
    request = request_of(tmp_path, cases, executable=executable, **asked)
    with closing(Session(request, cases)) as session:
        for case in cases:
            session.runs.result(case)
        assert session.judge_suite().outcome is Outcome.REGRESSED
        report = session.report(complete=True)
    assert set(outcomes(report)) == {Outcome.UNCHANGED}
    assert report.suite.reason.message.count("the mean of 8 cases") == 2
    assert report.seconds_by_phase["confirming"] > 0


def test_an_interrupted_run_races_no_case_again_and_can_be_resumed(tmp_path, monkeypatch):
    executable = worker.install(tmp_path, cases={case.name: {"seconds": 1e-4} for case in CASES})
    kept, judged = [], []
    with closing(Session(request_of(tmp_path, CASES, executable=executable, gate_suite=0.01), CASES)) as session:
        for case in CASES:
            session.runs.fail(case, "it has a result, whatever that is")

        def judge(final):
            judged.append(final)
            raise KeyboardInterrupt

        monkeypatch.setattr(session.suite_gate, "judge", judge)
        monkeypatch.setattr(session.journal, "close", lambda complete: kept.append(not complete))
        with pytest.raises(KeyboardInterrupt):
            session.judge_suite()
        assert session.judge_suite() is None
        assert session.report().interrupted
    assert (len(judged), kept) == (1, [True])


def test_shared_set_ups_of_variants_that_race_again_after_an_interruption_are_built_before(tmp_path, monkeypatch):
    cases = [replace(case, shared=True) for case in CASES]

    class Resumed(Journal):
        def __init__(self, *given):
            super().__init__(*given)
            self.earlier = {case.name: CaseResult(case, skip="no") for case in cases[1:]}  # one variant is not finished

    monkeypatch.setattr("tfbench.session.session.Journal", Resumed)
    with closing(Session(request_of(tmp_path, cases), cases)) as session:
        assert session.starter.unbuilt == cases[:2]


def test_a_run_that_cannot_be_put_together_releases_its_gpus(finished, monkeypatch):
    """The side that does not exist is noticed after the GPUs are locked."""
    closed = []
    monkeypatch.setattr(GpuSession, "close", lambda self: closed.append(self))
    with pytest.raises(UsageError, match="is not understood"):
        finished(against="nothing:at:all")
    assert len(closed) == 1
