"""Workflows and action on GitHub: their syntax, their security, and the steps of the sharded gate."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e import gate_demo
from tests.e2e.gate_demo import ROOT, shell

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
        for job in content(file)["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", "")


def test_the_action_has_no_expressions_in_shell_code():
    for step in content(ROOT / "action.yml")["runs"]["steps"]:
        assert "${{" not in step["run"]


BENCHMARKS = """
    import pytest
    from tests.fakes.steps import taking


    @pytest.mark.parametrize("number", range(2))
    def test_many(bench, number):
        bench(taking(bench, {seconds}))


    def test_one(bench):
        bench(taking(bench, 6e-5))
"""


@pytest.fixture
def sharded(project):
    """A pull request and its base, with reports of two shards."""
    project.write(".tfbench\n__pycache__\nreports\n*.json\n.venv\n*.txt\nfirst\nsecond\n", ".gitignore")
    (project.root / ".venv").symlink_to(sys.prefix)
    project.write(BENCHMARKS.format(seconds=5e-5))
    project.git("init", "-q")
    project.git("add", "-A")
    project.git("commit", "-qm", "base")
    return project


def steps(job):
    return {
        step["name"]: step
        for step in content(ROOT / ".github/workflows/gate.yml")["jobs"][job]["steps"]
        if "name" in step
    }


def step(project, job, name, **values):
    env = gate_demo.environment(cheap=True) | {"AGAINST": "git:HEAD", "POLICY": "quick", "SELECT": "test"}
    env |= {
        "GITHUB_OUTPUT": str(project.root / "outputs.txt"),
        "GITHUB_STEP_SUMMARY": str(project.root / "summary.txt"),
    }
    return shell(steps(job)[name], project.root, env, {"steps.base.outputs.against": "git:HEAD", **values})


@pytest.mark.slow
def test_shards_are_raced_merged_confirmed_and_gated(sharded):
    sharded.write(BENCHMARKS.format(seconds=1e-4))
    for shard in ("1/2", "2/2"):
        raced = step(sharded, "race", "race", **{"matrix.shard": shard})
        assert raced.returncode == 0, raced.stdout + raced.stderr
    settled = step(sharded, "settle", "settle")
    assert settled.returncode == 0, settled.stdout + settled.stderr
    regressed = (sharded.root / "regressed.txt").read_text().splitlines()
    assert regressed == sorted(f"benchmarks/test_mine.py::test_many[{number}]" for number in range(2))
    assert "regressed=true" in (sharded.root / "outputs.txt").read_text()
    (sharded.root / "first").mkdir()
    for name in ("first.json", "regressed.txt"):
        shutil.move(sharded.root / name, sharded.root / "first" / name)
    confirmed = step(sharded, "confirm", "confirm")
    assert confirmed.returncode == 0, confirmed.stdout + confirmed.stderr
    (sharded.root / "second").mkdir()
    shutil.move(sharded.root / "second.json", sharded.root / "second" / "second.json")
    reported = {"needs.settle.outputs.regressed": "true"}
    assert step(sharded, "gate", "conclude", **reported).returncode == 0
    shutil.copytree(ROOT / ".github", sharded.root / ".github")
    gated = step(sharded, "gate", "gate")
    assert gated.returncode == 1, gated.stdout + gated.stderr
    assert "2 regressed" in gated.stdout
    assert "a second job confirms it" in (sharded.root / "report.json").read_text()

    (sharded.root / "reports" / "shard-2.json").unlink()
    missing = step(sharded, "settle", "settle")
    assert missing.returncode == 5
    assert "shard 2/2 never reported" in missing.stderr
