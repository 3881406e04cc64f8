"""A fleet on this machine with real benchmarks: plan, measure, merge, decide, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.project import LIMIT, Project, wait_for
from tests.faults.processes import Run

pytestmark = pytest.mark.slow
BENCHMARKS = """
def test_a(bench): bench(sum, range(500))
def test_b(bench): bench(sorted, list(range(900)))
"""


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path, full=True)
    found.write("[pytest]\n", "pytest.ini")
    found.write(BENCHMARKS)
    found.commit("one")
    return found


def test_a_suite_is_measured_in_jobs_and_goes_on_where_it_was(project):
    plan = project.tfbench(
        "fleet", "plan", "--against", "git:HEAD", "--policy", "quick", "--job-seconds=6", "--folder=fleet"
    )
    assert plan.stdout.startswith("2 cases in 2 jobs, about 12 s of machine time\n"), plan.stderr
    first = project.tfbench("fleet", "job", "fleet", "1")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "done already" in project.tfbench("fleet", "job", "fleet", "1").stdout
    done = project.tfbench("fleet", "run", "fleet")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "2 of 2 jobs, " in done.stdout
    assert project.tfbench("gate", "fleet").returncode == done.returncode
    report = json.loads((project.root / "fleet/report.json").read_text())
    names = [row["case"] for row in report["verdicts"] if row["metric"] == "time"]
    assert sorted(names) == [f"benchmarks/test_mine.py::test_{name}" for name in "ab"]

    project.write(BENCHMARKS + "\n# changed\n")
    (project.root / "fleet" / "reports" / "000" / "000002.json").unlink()
    refused = project.tfbench("fleet", "job", "fleet", "2")
    assert refused.returncode == 5
    assert "is not the planned code" in refused.stderr


def started(project, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tfbench", *arguments], cwd=project.root, env=project.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def test_a_fleet_and_a_job_end_with_all_processes_and_lose_no_measured_case(tmp_path):
    project = Run(tmp_path, full=True)
    (tmp_path / "conftest.py").unlink()  # it changes the policy
    project.write(BENCHMARKS)
    project.write("temporary/\n.cache/\n", ".gitignore")
    project.commit("one")
    planned = ("--against", "git:HEAD", "--policy", "quick", "--job-seconds=6", "--folder=fleet")
    assert project.tfbench("fleet", "plan", *planned).returncode == 0
    fleet = started(project, "fleet", "run", "fleet")
    wait_for(tmp_path / "fleet/work/000/000001/job.json")
    fleet.terminate()
    output = fleet.communicate(timeout=LIMIT)[0]
    assert (fleet.returncode, "tfbench fleet run --engine local fleet goes on" in output) == (130, True), output
    project.check_clean()

    killed = started(project, "fleet", "job", "fleet", "1")
    journal = tmp_path / "fleet/work/000/000001/journal.jsonl"
    end = time.monotonic() + LIMIT
    while not journal.exists() or journal.read_text().count("\n") < 2:
        assert time.monotonic() < end
        assert killed.poll() is None, killed.stdout.read()
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    done = project.tfbench("fleet", "run", "fleet")
    assert done.returncode in (0, 3), done.stdout + done.stderr  # all sides are known, so the reports can be merged
    assert "1 of 1 cases taken from the interrupted run" in (tmp_path / "fleet/logs/000/000001.txt").read_text()
    project.check_clean()


def test_settings_of_the_project_are_part_of_the_plan(project):
    project.write("[pytest]\naddopts = --tfbench-statistic=mean\n", "pytest.ini")
    project.commit("by the mean")
    planned = project.tfbench("fleet", "plan", "--against=git:HEAD", "--policy=quick", "-k", "test_a", "--folder=fleet")
    assert planned.returncode == 0, planned.stderr
    done = project.tfbench("fleet", "run", "fleet")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert json.loads((project.root / "fleet/report.json").read_text())["policy"]["statistic"] == "mean"


def test_a_case_that_a_mark_skips_stays_in_the_plan_because_the_base_runs_it(project):
    gone = "def test_gone(bench): bench(max, range(700))\n"
    project.write(BENCHMARKS + gone)
    project.commit("more")
    project.write(BENCHMARKS.replace("def test_b", "import pytest\n@pytest.mark.skip(reason='later')\ndef test_b"))
    planned = ("--against", "git:HEAD", "--policy", "quick", "--job-seconds=6", "--folder=fleet")
    assert project.tfbench("fleet", "plan", *planned).returncode == 0
    done = project.tfbench("fleet", "run", "fleet")
    assert "2 cases in 2 jobs" in done.stdout
    assert done.returncode == 4, done.stdout + done.stderr
    assert "incomparable benchmarks/test_mine.py::test_b: skipped here, and git:" in done.stdout
    assert "runs it: later" in done.stdout
    assert "missing benchmarks/test_mine.py::test_gone: the other side runs it under the same options" in done.stdout
    assert len(json.loads((project.root / "fleet" / "report.json").read_text())["due"]) == 3
