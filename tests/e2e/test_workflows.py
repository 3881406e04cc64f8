"""Workflows and action on GitHub: their syntax, their security, and the steps of the sharded gate."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e import gate_demo
from tests.e2e.gate_demo import ROOT, shell
from tests.sides.test_source_tree import git

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
READING = {"contents": "read"}


def program(name):
    return str(Path(sys.executable).with_name(name))


def content(file):
    return yaml.safe_load(file.read_text())


def test_workflows_and_action_have_valid_syntax():
    for schema, files in (("vendor.github-workflows", WORKFLOWS), ("vendor.github-actions", [ROOT / "action.yml"])):
        subprocess.run([program("check-jsonschema"), "--builtin-schema", schema, *map(str, files)], check=True)


def test_a_security_check_finds_no_fault():
    command = [program("zizmor"), "--offline", "--min-severity=medium", str(ROOT / ".github"), str(ROOT / "action.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
class TestWorkflow:
    def test_actions_are_pinned_and_leave_no_credentials(self, file):
        steps = [step for job in content(file)["jobs"].values() for step in job["steps"]]
        for step in steps:
            if uses := step.get("uses"):
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses)
            if uses and "checkout" in uses:
                assert step["with"]["persist-credentials"] is False

    def test_only_jobs_without_code_of_a_pull_request_may_write(self, file):
        workflow = content(file)
        triggers = set(workflow[True])  # YAML takes `on` for a truth
        for name, job in workflow["jobs"].items():
            permissions = job.get("permissions", workflow["permissions"])
            if permissions != READING:
                assert (file.stem, name) in {("comment", "comment"), ("history", "publish"), ("release", "publish")}
                assert not triggers & {"pull_request", "pull_request_target"}
        assert "secrets." not in file.read_text()

    def test_expressions_of_github_go_through_the_environment(self, file):
        for job in (*content(file)["jobs"].values(), content(ROOT / "action.yml")["runs"]):
            for step in job["steps"]:
                assert "${{" not in step.get("run", "")


BENCHMARKS = """
    import pytest
    from speed import SECONDS
    from tests.fakes.steps import taking


    @pytest.mark.parametrize("number", range(2))
    def test_many(bench, number):
        bench(taking(bench, SECONDS))


    def test_one(bench):
        bench(taking(bench, 6e-5))
"""


@pytest.fixture
def sharded(project):
    """A pull request and its base, with reports of two shards."""
    project.write("reports\n.venv\n*.txt\ntfbench-report\n", ".gitignore")
    (project.root / ".venv").symlink_to(sys.prefix)
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write("SECONDS = 5e-5\n", "speed.py")
    project.write(BENCHMARKS)
    project.commit("base")
    return project


def steps(job):
    return {
        step["name"]: step
        for step in content(ROOT / ".github/workflows/gate.yml")["jobs"][job]["steps"]
        if "name" in step
    }


def step(project, job, name, **values):
    env = gate_demo.environment(cheap=True) | {"POLICY": "quick", "SELECT": "test"}
    env |= {
        "GITHUB_EVENT_PATH": str(project.root / "event.json"),
        "GITHUB_OUTPUT": str(project.root / "outputs.txt"),
        "GITHUB_STEP_SUMMARY": str(project.root / "summary.txt"),
    }
    return shell(steps(job)[name], project.root, env, values)


@pytest.mark.slow
def test_shards_are_raced_merged_and_gated(sharded):
    base = git(sharded.root, "rev-parse", "HEAD")
    sharded.write("SECONDS = 1e-4\n", "speed.py")
    sharded.commit("slower")
    pull = {"base": {"sha": base, "ref": "main"}, "head": {"sha": git(sharded.root, "rev-parse", "HEAD")}}
    sharded.write(json.dumps({"pull_request": pull}), "event.json")
    reports = []
    for number in (1, 2):
        raced = step(sharded, "race", "race", **{"matrix.shard": f"{number}/2"})
        assert raced.returncode == 0, raced.stdout + raced.stderr
        (file,) = (sharded.root / "reports").iterdir()
        reports.append((file, file.read_text()))
    for file, text in reports:
        file.write_text(text)
    gated = step(sharded, "gate", "gate")
    assert gated.returncode == 1, gated.stdout + gated.stderr
    assert "regressed: 2 regressed" in gated.stdout  # each in time and in its result, which is a time here
    assert "code=1" in (sharded.root / "outputs.txt").read_text()
    assert sorted(file.name for file in (sharded.root / "tfbench-report").iterdir()) == ["accepted.json", "report.json"]
