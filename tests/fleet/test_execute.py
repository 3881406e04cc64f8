"""Doing a job: once, complete or refused."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes import fleet_job
from tests.fakes.fleet_job import plan, report_of
from tfbench.errors import JobError
from tfbench.fleet.jobs import FleetFolder, do, measured
from tfbench.fs import write_whole
from tfbench.report import json_format


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path / "fleet", 2)
    return FleetFolder(tmp_path / "fleet")


def run(folder, index=1, measure=fleet_job.measure):
    return do(folder, index, Path("/"), measure, lambda *_: None)


def test_a_job_is_done_once(folder):
    assert run(folder)
    assert not run(folder, measure=None)
    assert not json_format.read(folder.report(1).read_text(), "it").gap
    assert not folder.work(1).exists()


def test_two_attempts_at_once_measure_once(folder):
    done = []

    def measure(job, root, work):
        done.append(1)
        time.sleep(0.2)
        fleet_job.measure(job, root, work)

    attempts = [threading.Thread(target=run, args=(folder, 1, measure)) for _ in range(3)]
    for one in attempts:
        one.start()
    for one in attempts:
        one.join()
    assert len(done) == 1


def test_an_incomplete_report_is_not_kept(folder):
    def measure(job, root, work):
        write_whole(work / "report.json", json_format.render(report_of(job, complete=False)))

    with pytest.raises(JobError, match="is not complete: the run did not come to its end"):
        run(folder, measure=measure)
    assert not folder.report(1).exists()


def test_the_report_of_an_earlier_attempt_is_not_taken_for_a_new_one(folder, tmp_path):
    def measure(job, root, work):
        fleet_job.measure(job, root, work)
        measured([sys.executable, "-c", "raise SystemExit(1)"], "0", job, tmp_path, work)

    with pytest.raises(JobError, match=r"job 1 has no report: pytest wrote no .*report.json"):
        run(folder, measure=measure)


def test_a_killed_pytest_is_named(folder, tmp_path):
    def measure(job, root, work):
        measured([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "", job, tmp_path, work)

    with pytest.raises(JobError, match="job 1: pytest was killed by signal 9; its output says why"):
        run(folder, measure=measure)


def test_a_report_of_another_job_and_a_copy_of_a_job_are_refused(folder):
    with pytest.raises(JobError, match="is the report of another job"):
        run(folder, measure=lambda job, *more: fleet_job.measure(folder.job(2), *more))
    folder.report(1).parent.mkdir(parents=True)
    folder.report(1).write_text(json_format.render(report_of(folder.job(2))))
    with pytest.raises(JobError, match="is the report of another job"):
        run(folder)
    folder.job_file(2).write_text(folder.job_file(1).read_text())
    with pytest.raises(JobError, match=r"000002.json is job 1, and its name says 2; plan again"):
        run(folder, 2)
