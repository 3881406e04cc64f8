"""Doing a job: once, complete or refused, by one service of a host at a time."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes import fleet_job
from tests.fakes.fleet_job import plan, report_of
from tfbench.errors import JobError, NodeError
from tfbench.fleet import node
from tfbench.fleet.jobs import FleetFolder, node_name
from tfbench.fleet.node import Canary, Place, judge, lease
from tfbench.fs import write_whole
from tfbench.gpus.monitor import GpuSession
from tfbench.model import Outcome
from tfbench.plugin.options import available_cpus
from tfbench.race.lanes import Processors
from tfbench.report import json_format

WHERE = Processors((0,), (0,))
GOOD = Canary("unchanged", "regressed", 0.1)


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    """Have tests not wait for each other."""
    monkeypatch.setattr("tfbench.fleet.node.lock_folder", lambda: tmp_path / "locks")


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path / "fleet", 2)
    return FleetFolder(tmp_path / "fleet")


def run(folder, index=1, measure=fleet_job.measure, canary=GOOD, check=lambda *_: None, **more):
    place = Place.of(folder.job_file(index))
    how = {"race_canary": lambda *_: canary, "check": check, **more}
    return node.run(place, Path("/"), WHERE, measure, **how)


def test_a_job_is_done_once(folder):
    assert run(folder)
    assert not run(folder, measure=None, canary=None)
    report = json_format.read(folder.report(1).read_text(), "it")
    assert not report.gap
    (machine,) = report.machines
    assert machine["host"] == node_name()
    assert machine["facts"].keys() >= {"governor", "turbo", "SMT", "system"}
    assert [row["event"] for row in folder.attempts(1)] == ["began", "done"]
    assert not folder.work(1).exists()


def test_two_attempts_at_once_measure_once(folder):
    measured = []

    def measure(job, root, work, held):
        measured.append(1)
        time.sleep(0.2)
        fleet_job.measure(job, root, work, held)

    attempts = [threading.Thread(target=run, args=(folder, 1, measure)) for _ in range(3)]
    for one in attempts:
        one.start()
    for one in attempts:
        one.join()
    assert len(measured) == 1
    assert [path for path in folder.work(1).parent.iterdir() if path.name != "000001"] == []


def test_an_incomplete_report_is_not_kept(folder):
    def measure(job, root, work, held):
        write_whole(work / "report.json", json_format.render(report_of(job, complete=False)))

    with pytest.raises(JobError, match="is not complete: the run did not come to its end"):
        run(folder, measure=measure)
    assert not folder.report(1).exists()
    assert folder.attempts(1)[-1]["event"] == "failed"


def test_a_clock_that_is_set_back_costs_no_result(folder, monkeypatch):
    times = iter(range(10**6, 0, -1))
    monkeypatch.setattr("tfbench.fleet.node.time.time", lambda: float(next(times)))
    assert run(folder)
    assert json_format.read(folder.report(1).read_text(), "it").machines[0]["seconds"] >= 0


@pytest.mark.parametrize("where", ["check", "measure"])
def test_every_failure_is_noted_with_its_reason(folder, where):
    def full(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run(folder, **{where: full})
    last = folder.attempts(1)[-1]
    assert (last["event"], last["reason"]) == ("failed", "[Errno 28] No space left on device")


def test_the_report_of_an_earlier_attempt_is_not_taken_for_a_new_one(folder, tmp_path):
    def measure(job, root, work, held):
        fleet_job.measure(job, root, work, held)
        node.measured([sys.executable, "-c", "raise SystemExit(1)"], job, tmp_path, work, held)

    with pytest.raises(JobError, match=r"job 1 has no report: pytest wrote no .*report.json"):
        run(folder, measure=measure)


def test_a_killed_pytest_is_named(folder, tmp_path):
    def measure(job, root, work, held):
        node.measured([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], job, tmp_path, work, held)

    with pytest.raises(JobError, match="job 1: pytest was killed by signal 9; its output says why"):
        run(folder, measure=measure)


def test_a_copy_of_a_job_does_not_stand_for_another(folder):
    folder.job_file(2).write_text(folder.job_file(1).read_text())
    with pytest.raises(JobError, match=r"000002.json is a copy of job 1; name .*000001.json, or --report-json"):
        Place.of(folder.job_file(2))


def test_a_job_outside_of_its_fleet_removes_no_folder_of_the_user(folder, tmp_path):
    job = tmp_path / "mine.json"
    job.write_text(folder.job_file(1).read_text())
    (tmp_path / "out.work").mkdir()
    place = Place.of(job, tmp_path / "out.json")
    assert node.run(place, Path("/"), WHERE, fleet_job.measure, race_canary=lambda *_: GOOD, check=lambda *_: None)
    assert {path.name for path in tmp_path.iterdir()} == {"fleet", "locks", "mine.json", "out.json", "out.work"}


def test_a_report_of_another_job_is_refused(folder):
    with pytest.raises(JobError, match="is the report of another job"):
        run(folder, measure=lambda job, *more: fleet_job.measure(folder.job(2), *more))
    folder.report(1).parent.mkdir(parents=True)
    folder.report(1).write_text(json_format.render(report_of(folder.job(2))))
    with pytest.raises(JobError, match="is the report of another job"):
        run(folder)


def test_a_machine_whose_canary_fails_is_set_aside_and_measures_no_more(folder):
    bad = judge(Outcome.REGRESSED, Outcome.REGRESSED, 0.1)
    with pytest.raises(NodeError, match="failed its canary, unchanged code is regressed"):
        run(folder, canary=bad)
    with pytest.raises(NodeError, match="was set aside: its canary failed: unchanged code is regressed; fix it"):
        run(folder, index=2)
    assert [row["event"] for row in folder.attempts(2)] == ["aside"]


@pytest.mark.parametrize(
    ("unchanged", "slowed", "failure"),
    [
        ("unchanged", "regressed", ""),
        ("inconclusive", "regressed", ""),
        ("improved", "regressed", "unchanged code is improved"),
        ("unchanged", "inconclusive", "code slowed by 10% is inconclusive instead of regressed"),
        ("unchanged", "unchanged", "code slowed by 10% is unchanged instead of regressed"),
    ],
)
def test_a_canary(unchanged, slowed, failure):
    assert judge(Outcome(unchanged), Outcome(slowed), 1.0).failure == failure


def test_a_second_service_waits_and_then_says_who_measures(tmp_path):
    with lease(0.0, tmp_path), pytest.raises(NodeError, match=r"another service measures on this host, process \d+"):
        with lease(0.1, tmp_path):
            pass
    with lease(0.0, tmp_path):
        pass


def test_a_link_in_place_of_the_lease_s_folder_is_refused(tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "tfbench").symlink_to(tmp_path / "private")
    with pytest.raises(NodeError, match=r"tfbench cannot hold the lease of this host: it is a link or no folder"):
        with lease(0.0, tmp_path / "tfbench"):
            pass
    assert (tmp_path / "private").stat().st_mode & 0o7777 == 0o700


def test_a_child_goes_on_holding_the_lease(tmp_path):
    with lease(0.0, tmp_path) as held:
        child = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[held.fileno()], stdin=subprocess.PIPE)
    try:
        with pytest.raises(NodeError, match="another service measures"), lease(0.0, tmp_path):
            pass
    finally:
        child.communicate(b"\n")
    with lease(0.0, tmp_path):
        pass


@pytest.mark.tensorflow
@pytest.mark.alone
def test_the_canary_of_a_job_on_gpus_multiplies_matrices_there(monkeypatch):
    class Session(GpuSession):
        """A machine whose GPU is in fact a CPU."""

        def __init__(self, kind, names, policy):
            assert (kind, names) == ("gpu", ("0",))
            super().__init__("cpu", (), policy)
            self.gpus = [None]

    monkeypatch.setattr(node, "GpuSession", Session)
    every = tuple(available_cpus())
    found = node.race(Processors(every[-1:], every), random.Random(1), "gpu:0")
    assert (found.unchanged, found.slowed, found.failure) == ("unchanged", "regressed", "")
