"""A fleet on this machine with real benchmarks: plan, canary, measure, merge, decide, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.e2e.project import Project

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
    assert plan.stdout.startswith("2 cases in 2 jobs on any machine, about 12 s of machine time\n"), plan.stderr
    first = project.tfbench("job", "run", "fleet/jobs/000/000001.json")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "done already" in project.tfbench("job", "run", "fleet/jobs/000/000001.json").stdout
    done = project.tfbench("fleet", "run", "--resume", "fleet", "--report-json=whole.json")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "2 of 2 jobs, 0 running, 2 of 2 cases" in done.stdout
    report = json.loads((project.root / "whole.json").read_text())
    names = [row["case"] for row in report["verdicts"] if row["metric"] == "time"]
    assert sorted(names) == [f"benchmarks/test_mine.py::test_{name}" for name in "ab"]
    assert report["machines"][0]["jobs"] == 2
    assert report["machines"][0]["canary"]["slowed"] == "regressed"
    assert len(list((project.root / ".tfbench" / "history").glob("*.jsonl"))) == 2

    project.write(BENCHMARKS + "\n# changed\n")
    (project.root / "fleet" / "reports" / "000" / "000002.json").unlink()
    refused = project.tfbench("job", "run", "fleet/jobs/000/000002.json")
    assert refused.returncode == 5
    assert "is not the planned code" in refused.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--against=git:HEAD", "--engine=pbs"], "--engine 'pbs': choose from local, slurm, ray"),
        (["--engine=local"], "a fleet races two sides: give --against SPEC"),
        (["--resume=nothing"], "nothing is no folder of a fleet"),
        (["--against=self", "--history=postgresql://me:pass-word@127.0.0.1:1/x"], "the history in postgresql://me@127.0.0.1:1/x"),
        (["--against=self", "--local-nodes=3", "--folder=f"], "--local-nodes is for --engine ray"),
        (["--against=self", "-k", "nothing"], "no benchmark is selected"),
    ],
)  # fmt: skip
def test_what_a_fleet_refuses(project, options, text):
    done = project.tfbench("fleet", "run", *options)
    assert done.returncode in (2, 5)
    assert text in done.stderr
    assert "pass-word" not in done.stdout + done.stderr


def test_a_case_that_a_mark_skips_stays_in_the_plan_because_the_base_runs_it(project):
    gone = "def test_gone(bench): bench(max, range(700))\n"
    project.write(BENCHMARKS + gone)
    project.git("commit", "-qam", "more")
    project.write(BENCHMARKS.replace("def test_b", "import pytest\n@pytest.mark.skip(reason='later')\ndef test_b"))
    done = project.tfbench(
        "fleet", "run", "--against", "git:HEAD", "--policy", "quick", "--job-seconds=6", "--folder=fleet"
    )
    assert "2 cases in 2 jobs" in done.stdout
    assert done.returncode == 4, done.stdout + done.stderr
    assert "incomparable benchmarks/test_mine.py::test_b: skipped here, and git:" in done.stdout
    assert "runs it: later" in done.stdout
    assert "missing benchmarks/test_mine.py::test_gone: the other side runs it under the same options" in done.stdout
    assert len(json.loads((project.root / "fleet" / "report.json").read_text())["due"]) == 3
