"""The controller with a scripted engine: each case ends with exactly one verdict, whatever the engine does."""

from __future__ import annotations

import json

import pytest

from tests.fakes.fleet_job import plan, report_of
from tests.fakes.report import CODE
from tfbench.errors import EngineError, JobError, ReportError
from tfbench.fleet import jobs as fleet
from tfbench.fleet.jobs import FleetFolder, merge
from tfbench.fs import write_whole
from tfbench.report import json_format
from tfbench.report.merge import merge as merge_reports


class Engine:
    """Ends each job by calling ``does(index, attempt)``."""

    def __init__(self, does):
        self._does, self.attempts, self.cancelled = does, {}, []

    def __call__(self, jobs):
        waiting = list(jobs)
        try:
            while waiting:
                index = waiting[0]
                self.attempts[index] = self.attempts.get(index, 0) + 1
                self._does(index, self.attempts[index])
                yield waiting.pop(0)
        finally:
            self.cancelled += waiting


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path / "fleet", 4, cases=2)
    return FleetFolder(tmp_path / "fleet")


def run(folder, engine, tell=lambda text: None, **more):
    return fleet.run(folder, engine, tell, **more)


def finish(folder, index):
    write_whole(folder.report(index), json_format.render(report_of(folder.job(index))))


def outcomes(report):
    return {row.case.short_name: str(row.outcome) for row in report.verdicts}


def test_every_job_ends_and_each_is_told(folder):
    told = []
    assert run(folder, Engine(lambda index, attempt: finish(folder, index)), told.append) == {}
    report = merge(folder, {})
    assert set(outcomes(report).values()) == {"unchanged"}
    assert json.loads("".join(json_format.lines(report))) == json.loads(json_format.render(report))
    assert told[0].startswith("1 of 4 jobs, 2 unchanged, about ")
    assert told[-1] == "4 of 4 jobs, 8 unchanged"


def test_no_engine_is_asked_when_every_job_has_its_report(folder):
    asked = []

    def engine(jobs):
        asked.append(len(jobs))
        return Engine(lambda index, attempt: finish(folder, index))(jobs)

    assert run(folder, engine) == run(folder, engine) == {}
    assert asked == [4]


def test_a_lost_job_is_tried_again_and_then_an_error_of_each_of_its_cases(folder):
    def does(index, attempt):
        if index == 1 and attempt < 3:
            return
        if index == 2:
            folder.log(2).parent.mkdir(parents=True, exist_ok=True)
            folder.log(2).write_text("first\nthe disk is full\n")
            return
        finish(folder, index)

    engine = Engine(does)
    lost = run(folder, engine)
    assert engine.attempts == {1: 3, 2: 3, 3: 1, 4: 1}
    report = merge(folder, lost)
    assert sorted(outcomes(report).values()) == ["error"] * 2 + ["unchanged"] * 6
    row = next(row for row in report.verdicts if str(row.outcome) == "error")
    assert "job 2 was lost: the disk is full; its output is in" in row.reason.message
    assert not report.gap


@pytest.mark.parametrize("error", [KeyboardInterrupt, EngineError])
def test_an_interruption_cancels_what_was_submitted(folder, error):
    def does(index, attempt):
        raise error

    engine = Engine(does)
    with pytest.raises(error):
        run(folder, engine)
    assert engine.cancelled == [1, 2, 3, 4]


def test_a_report_of_another_job_loses_the_job(folder):
    def does(index, attempt):
        write_whole(folder.report(index), json_format.render(report_of(folder.job(2 if index == 1 else index))))

    assert "is the report of another job" in run(folder, Engine(does))[1]


@pytest.mark.parametrize("use", [lambda folder: merge(folder, {}), lambda folder: run(folder, Engine(None))])
def test_a_damaged_report_stays_and_the_message_has_the_fix(folder, use):
    for index in range(1, 5):
        finish(folder, index)
    whole = folder.report(2).read_text()
    folder.report(2).write_text(whole[:-9])
    with pytest.raises(JobError, match=r"000002.json is not JSON: .*; remove the file, and the job is measured again"):
        use(folder)
    assert folder.report(2).read_text() == whole[:-9]


def test_jobs_and_plans_of_another_fleet_are_refused_before_anything_runs(folder, tmp_path):
    plan(tmp_path / "other", 4, cases=2)
    other, engine = FleetFolder(tmp_path / "other"), Engine(None)
    mine = folder.job_file(2).read_text()
    folder.job_file(2).write_text(other.job_file(2).read_text())
    with pytest.raises(JobError, match=r"000002.json belongs to another plan than"):
        run(folder, engine)
    folder.job_file(2).write_text(mine)
    folder.plan_file.write_text(other.plan_file.read_text())
    with pytest.raises(JobError, match=r"000001.json belongs to another plan than"):
        run(folder, engine)
    assert engine.attempts == {}


def test_merging_refuses_what_is_missing_twice_or_from_another_kind_of_machine(folder):
    with pytest.raises(JobError, match="none of the 4 jobs has a report: no machine"):
        merge(folder, dict.fromkeys(range(1, 5), "no machine"))
    for index in (1, 2, 3):
        finish(folder, index)
    with pytest.raises(JobError, match=r"job 4 of 4 has no report: .* fleet run .* measures what is missing"):
        merge(folder, {})
    with pytest.raises(ReportError, match=r"report of a fleet's job: merge the folder of the fleet, whose plan knows"):
        merge_reports([("1.json", json_format.read(folder.report(1).read_text(), "1.json"))])
    side = {"spec": "git:main", "slowdown": 0.0, **CODE, "machine": {"driver": "550.1"}}
    other = report_of(folder.job(4), sides={"baseline": side, "contender": {**side, "spec": "working tree"}})
    write_whole(folder.report(4), json_format.render(other))
    with pytest.raises(ReportError, match="are not of one run: their sides differ"):
        merge(folder, {})
