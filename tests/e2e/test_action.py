"""The shell of action.yml and of the workflows, step by step, with programs that only note how they were called."""

import json
import os
import stat
import subprocess
import sys

import pytest
import yaml

from tests.e2e import gate_demo
from tests.e2e.gate_demo import ROOT, shell
from tests.fakes.report import complete, row
from tfbench.fs import LARGEST
from tfbench.report import json_format

GATE = yaml.safe_load((ROOT / ".github/workflows/gate.yml").read_text())
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
COMMENT = yaml.safe_load((ROOT / ".github/workflows/comment.yml").read_text())
EVENT = {f"github.event.pull_request.{one}": "" for one in ("base.sha", "base.ref", "head.sha")}


def named(steps, name):
    return next(step for step in steps if step.get("name") == name)


def workflow_step(job, name):
    return named(GATE["jobs"][job]["steps"], name)


def inputs(**changed):
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    found = {f"inputs.{name.replace('_', '-')}": value for name, value in {**given, **changed}.items()}
    return {**found, **EVENT, "steps.base.outputs.against": "git:main"}


def program(root, name, text):
    """Put a program first in the PATH of the steps."""
    place = root / "bin" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!{sys.executable}\nimport json, os, sys\nfrom pathlib import Path\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


NOTE = """
with open("calls.txt", "a") as file:
    file.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
"""
PYTEST = (
    NOTE
    + """
for one in sys.argv:
    if one.startswith(("--report-json=", "--tfbench-report-json=")):
        Path(one.partition("=")[2]).write_text(Path("answer.json").read_text())
sys.exit(int(os.environ.get("CODE", "0")))
"""
)


def run(root, step, values, **env):
    base = gate_demo.environment() | {"GITHUB_OUTPUT": str(root / "outputs.txt"), **env}
    base["PATH"] = f"{root / 'bin'}{os.pathsep}{base['PATH']}"
    return shell(step, root, base, values)


def calls(root):
    file = root / "calls.txt"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def root(tmp_path):
    program(tmp_path, "pytest", PYTEST)
    (tmp_path / "answer.json").write_text(json_format.render(complete([row("b/test_x.py::test_x")])))
    return tmp_path


class TestRace:
    STEP = named(ACTION["runs"]["steps"], "race")

    def test_reads_paths_from_all_lines(self, root):
        assert run(root, self.STEP, inputs(paths="b/one.py b/two.py\nb/three.py\n\n  b/four.py\n")).returncode == 0
        (call,) = calls(root)
        assert [one for one in call if one.startswith("b/")] == ["b/one.py", "b/two.py", "b/three.py", "b/four.py"]

    def test_passes_device_gpu_and_arguments(self, root):
        done = run(
            root,
            self.STEP,
            inputs(device="gpu:0", require_gpu="true", arguments="--cpus\n0,2-3\n\n-m not slow", select="a or b"),
        )
        assert done.returncode == 0, done.stderr
        (call,) = calls(root)
        assert call == [
            "pytest", "--benchmark", "--tfbench-policy", "quick", "--tfbench-against", "git:main", "--tfbench-device", "gpu:0",
            "--tfbench-require-gpu", "--cpus", "0,2-3", "-m not slow", "-k", "a or b",
            "--tfbench-report-json=tfbench-report/first.json",
        ]  # fmt: skip

    def test_passes_little_by_default(self, root):
        assert run(root, self.STEP, inputs()).returncode == 0
        assert calls(root)[0][1:] == [
            "--benchmark", "--tfbench-policy", "quick", "--tfbench-against", "git:main", "--tfbench-device", "all",
            "--tfbench-report-json=tfbench-report/first.json",
        ]  # fmt: skip

    @pytest.mark.parametrize("name", ["paths", "select", "policy", "device", "require_gpu", "arguments"])
    def test_no_input_is_shell_code(self, root, name):
        evil = "$(touch owned) `touch owned`; touch owned && touch owned | touch owned > owned \" ' *"
        assert run(root, self.STEP, inputs(**{name: evil})).returncode == 0
        assert not (root / "owned").exists()
        words = " ".join(calls(root)[0])
        assert ("$(touch owned)" in words) == (name != "require_gpu")

    def test_removes_an_earlier_report(self, root):
        (root / "tfbench-report").mkdir()
        (root / "tfbench-report" / "report.json").write_text("of yesterday")
        (root / "tfbench-report" / "accepted.json").write_text("of yesterday")
        run(root, self.STEP, inputs())
        assert [one.name for one in (root / "tfbench-report").iterdir()] == ["first.json"]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 137, 143])
@pytest.mark.parametrize("where", ["action", "action's confirmation", "workflow", "workflow's confirmation"])
def test_only_the_exit_codes_0_and_1_of_pytest_are_results(root, code, where):
    values = inputs() | {"matrix.shard": "1/2"}
    if where.startswith("action"):
        step = named(ACTION["runs"]["steps"], "confirm" if "confirmation" in where else "race")
        (root / "tfbench-report").mkdir()
        report = complete([row("b/test_x.py::test_x", "regressed")])
        (root / "tfbench-report/first.json").write_text(json_format.render(report))
    else:
        step = workflow_step(*(("confirm", "confirm") if "confirmation" in where else ("race", "race")))
        (root / ".venv/bin").mkdir(parents=True)
        (root / ".venv/bin/activate").touch()
        (root / "first").mkdir()
        (root / "first/regressed.txt").write_text("b/test_x.py::test_x\n")
    done = run(root, step, values, CODE=str(code), POLICY="quick", SELECT="x")
    assert (done.returncode == 0) == (code in (0, 1)), done.stderr
    if code > 1:
        assert done.returncode == code
        assert f"ended with exit code {code}" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("::error title=tfbench::")


def test_the_report_of_a_broken_run_is_still_gated(root):
    """The gate's step runs although the race's has failed, and the job fails whatever the gate says."""
    gate = named(ACTION["runs"]["steps"], "gate")
    assert gate["if"] == "${{ !cancelled() }}"
    (root / "tfbench-report").mkdir()
    report = complete([row("b/test_x.py::test_x")], complete=False)
    (root / "tfbench-report/first.json").write_text(json_format.render(report))
    done = run(root, gate, inputs())
    assert done.returncode == 5
    assert "did not come to its end" in done.stdout
    assert "code=5" in (root / "outputs.txt").read_text()
    (root / "tfbench-report/report.json").unlink()
    assert run(root, gate, inputs()).returncode == 5  # nothing there at all


def test_jobs_upload_their_reports_although_a_step_has_failed():
    for job in ("race", "confirm"):
        upload = next(one for one in GATE["jobs"][job]["steps"] if "upload-artifact" in one.get("uses", ""))
        assert upload["if"] == "${{ !cancelled() }}"


def test_what_lies_in_the_branch_is_no_report():
    """A branch may have a folder of the names that the jobs use."""
    names = [one.get("name") for one in GATE["jobs"]["race"]["steps"]]
    assert names.index("clean") < names.index("race")
    assert workflow_step("race", "clean")["run"].startswith("rm -rf reports")
    for job, names in (("settle", "reports first.json"), ("confirm", "first second.json"), ("gate", "first second")):
        steps = GATE["jobs"][job]["steps"]
        clean = steps.index(workflow_step(job, "clean"))
        assert f"rm -rf {names}" in steps[clean]["run"]
        assert clean < min(number for number, one in enumerate(steps) if "download-artifact" in one.get("uses", ""))


class TestRequiredJob:
    def test_is_never_skipped(self):
        job = GATE["jobs"]["gate"]
        assert job["if"] == "${{ always() }}"
        assert set(job["needs"]) == set(GATE["jobs"]) - {"gate"}
        results = workflow_step("gate", "results")
        assert results["if"] == "${{ always() }}"
        assert results is job["steps"][-1]

    @pytest.mark.parametrize(
        ("race", "settle", "confirm", "regressed", "code"),
        [
            ("success", "success", "skipped", "", 0),
            ("success", "success", "success", "true", 0),
            ("success", "success", "skipped", "true", 1),
            ("success", "success", "failure", "true", 1),
            ("success", "success", "cancelled", "true", 1),
            ("success", "cancelled", "skipped", "", 1),
            ("success", "failure", "skipped", "", 1),
            ("cancelled", "success", "skipped", "", 1),
            ("failure", "success", "skipped", "", 1),
            ("skipped", "skipped", "skipped", "", 1),
            ("cancelled", "cancelled", "cancelled", "", 1),
            ("", "", "", "", 1),
        ],
    )
    def test_succeeds_only_if_every_job_did(self, root, race, settle, confirm, regressed, code):
        found = {"race": race, "settle": settle, "confirm": confirm}
        values = {f"needs.{name}.result": result for name, result in found.items()}
        done = run(root, workflow_step("gate", "results"), values | {"needs.settle.outputs.regressed": regressed})
        assert done.returncode == code
        assert ("a job did not succeed" in done.stdout) == bool(code)

    def test_keeps_a_regression_that_the_second_run_does_not_settle(self, root):
        (root / "first").mkdir()
        (root / "second").mkdir()
        first = json_format.render(complete([row("b/test_x.py::test_x", "regressed")]))
        second = json_format.render(complete([row("b/test_x.py::test_x", "unchanged")], complete=False))
        (root / "first/first.json").write_text(first)
        (root / "second/second.json").write_text(second)
        done = run(root, workflow_step("gate", "conclude"), {"needs.settle.outputs.regressed": "true"})
        assert done.returncode == 0
        assert "the regressions stay" in done.stdout
        assert (root / "report.json").read_text() == first


def git(root, *words):
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(root, name):
    (root / name).write_text(name)
    git(root, "add", name)
    git(root, "commit", "-qm", name)
    return git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "step", [named(ACTION["runs"]["steps"], "base"), workflow_step("race", "base"), workflow_step("confirm", "base")],
    ids=["action", "race", "confirm"],
)  # fmt: skip
class TestBase:
    """The event names an old commit of the base; the pull request was merged with a later one."""

    @pytest.fixture
    def history(self, tmp_path):
        git(tmp_path, "init", "-q", "-b", "main")
        old = commit(tmp_path, "old")
        git(tmp_path, "switch", "-qc", "change")
        change = commit(tmp_path, "change")
        git(tmp_path, "switch", "-q", "main")
        new = commit(tmp_path, "new")
        git(tmp_path, "update-ref", "refs/remotes/origin/main", new)
        return tmp_path, old, change, new

    def base(self, root, step, base, head):
        event = {"base.sha": base, "base.ref": "main", "head.sha": head}
        values = inputs() | {f"github.event.pull_request.{name}": value for name, value in event.items()}
        assert run(root, step, values).returncode == 0
        return (root / "outputs.txt").read_text().strip()

    def test_is_the_first_parent_of_the_merge_that_github_tests(self, step, history):
        root, old, change, new = history
        git(root, "merge", "-q", "--no-ff", "-m", "merge", change)
        assert self.base(root, step, old, change) == f"against=git:{new}"

    def test_is_never_older_than_what_was_merged_into_the_head(self, step, history):
        root, old, _, new = history
        git(root, "switch", "-q", "change")
        git(root, "merge", "-q", "-m", "merge main", "main")
        head = git(root, "rev-parse", "HEAD")
        assert self.base(root, step, old, head) == f"against=git:{new}"

    def test_is_the_named_commit_otherwise(self, step, history):
        root, old, change, new = history
        git(root, "switch", "-q", "change")
        assert self.base(root, step, new, change) == f"against=git:{new}"
        git(root, "update-ref", "-d", "refs/remotes/origin/main")
        (root / "outputs.txt").unlink()
        assert self.base(root, step, old, change) == f"against=git:{old}"


def test_the_action_takes_another_side_and_refuses_none(root):
    step = named(ACTION["runs"]["steps"], "base")
    git(root, "init", "-q")
    assert run(root, step, inputs(against="tensorflow==2.20.0")).returncode == 0
    assert (root / "outputs.txt").read_text() == "against=tensorflow==2.20.0\n"
    done = run(root, step, inputs())
    assert done.returncode == 2
    assert "set the input against" in done.stdout
    assert run(root, step, inputs(against="git:main\ncode=0")).returncode == 2
    assert (root / "outputs.txt").read_text() == "against=tensorflow==2.20.0\n"


GH = """
import subprocess
arguments = sys.argv[1:]
with open("gh.txt", "a") as file:
    file.write(json.dumps(arguments) + "\\n")
answers = json.loads(Path("answers.json").read_text())
path = next(one for one in arguments if one.startswith("repos/"))
if "DELETE" in arguments:
    pass
elif "--method" in arguments and arguments[arguments.index("--method") + 1] in ("POST", "PATCH"):
    Path("posted.md").write_text(Path("comment.md").read_text())
elif path.endswith("/zip"):
    sys.exit("gh: gone") if answers["zip"] is None else sys.stdout.buffer.write(Path(answers["zip"]).read_bytes())
else:
    kind = path.rpartition("/")[2]
    if kind == "artifacts":  # gh has the same jq inside
        filter = ["jq", "-r", arguments[arguments.index("--jq") + 1]]
        text = json.dumps({"artifacts": answers[kind]})
        answers[kind] = subprocess.run(filter, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
    sys.stdout.write(answers[kind])
"""
SHA = "0123456789abcdef0123456789abcdef01234567"


def pull(number=3, sha=SHA, head="stranger/r", base="o/r", ref="main"):
    """Return a pull request as GitHub describes it."""
    branch = {"sha": sha, "repo": head and {"full_name": head}}
    return {"number": number, "head": branch, "base": {"ref": ref, "repo": {"full_name": base}}}


def asked(root):
    """Return the calls of gh."""
    return [json.loads(line) for line in (root / "gh.txt").read_text().splitlines()]


class TestComment:
    STEP = named(COMMENT["jobs"]["comment"]["steps"], "comment")

    @pytest.fixture
    def posted(self, tmp_path):
        program(tmp_path, "gh", GH)

        def post(
            report=None, conclusion="success", changed="README.md\n", earlier="", pulls=None, artifact=True, size=1000
        ):
            if report is not None:
                import zipfile

                with zipfile.ZipFile(tmp_path / "sent.zip", "w") as made:
                    made.writestr("report.json", report)
            answers = {
                "pulls": json.dumps([pull()] if pulls is None else pulls), "files": changed,
                "artifacts": [{"name": "tfbench-report", "id": 7, "size_in_bytes": size}] if artifact else [],
                "comments": earlier, "zip": None if report is None else str(tmp_path / "sent.zip"),
            }  # fmt: skip
            (tmp_path / "answers.json").write_text(json.dumps(answers))
            event = {
                "id": "1", "html_url": "https://github.com/o/r/actions/runs/1", "head_repository.owner.login": "stranger",
                "head_repository.full_name": "stranger/r",
                "head_branch": "main", "head_sha": SHA, "conclusion": conclusion,
            }  # fmt: skip
            values = {f"github.event.workflow_run.{name}": value for name, value in event.items()}
            values |= {"github.token": "t", "github.repository": "o/r"}
            done = run(tmp_path, self.STEP, values)
            assert done.returncode == 0, done.stderr
            file = tmp_path / "posted.md"
            return file.read_text() if file.exists() else ""

        return post

    def test_has_the_conclusion_and_the_commit_of_github(self, posted):
        forged = json_format.render(complete([row("b/test_x.py::test_x")]))
        text = posted(forged, conclusion="failure")
        assert "### tfbench: failed (`0123456789ab`)" in text
        assert "**The report and the conclusion of the run disagree.**" in text

    @pytest.mark.parametrize("artifact", [False, True])
    @pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out"])
    def test_replaces_an_earlier_one_where_there_is_no_report(self, posted, tmp_path, artifact, conclusion):
        text = posted(None, conclusion=conclusion, earlier="99\n", artifact=artifact)
        assert "There is no usable report" in text
        assert "### tfbench: pass" not in text
        patched = ["api", "--method", "PATCH", "repos/o/r/issues/comments/99", "-F", "body=@comment.md"]
        assert patched in asked(tmp_path)

    def test_replaces_an_earlier_one_where_the_report_is_refused(self, posted):
        assert "There is no usable report" in posted("{}", earlier="99\n")

    def test_flags_changes_of_the_gate_itself(self, posted):
        report = json_format.render(complete([row("b/test_x.py::test_x")]))
        text = posted(report, changed="README.md\n.github/workflows/gate.yml\nconftest.py\n")
        assert "changes what the gate itself runs" in text
        assert "`.github/workflows/gate.yml`, `conftest.py`" in text
        assert "changes what the gate itself" not in posted(report)
        assert "changes what the gate itself" in posted(report, changed="a.py\n" * 3000)

    @pytest.mark.parametrize(
        "other", [pull(sha="f" * 40), pull(base="o/another"), pull(head="stranger/another"), pull(head=None)]
    )
    def test_is_not_posted_for_a_commit_that_is_no_longer_the_head(self, posted, tmp_path, other):
        report = json_format.render(complete([row("b/test_x.py::test_x")]))
        assert posted(report, pulls=[other]) == ""
        assert posted(report, pulls=[other, pull(5)])
        assert ["api", "--method", "POST", "repos/o/r/issues/5/comments", "-F", "body=@comment.md"] in asked(tmp_path)

    def test_is_on_none_of_several_pull_requests_with_the_commit_and_replaces_their_earlier_ones(
        self, posted, tmp_path
    ):
        report = json_format.render(complete([row("b/test_x.py::test_x")]))
        assert posted(report, pulls=[pull(3), pull(5, ref="stable")], earlier="99\n") == ""
        assert asked(tmp_path).count(["api", "--method", "DELETE", "repos/o/r/issues/comments/99"]) == 2

    def test_does_not_fetch_an_artifact_that_is_larger_than_a_report(self, posted, tmp_path):
        report = json_format.render(complete([row("b/test_x.py::test_x")]))
        assert "There is no usable report" in posted(report, size=30 << 30)
        assert not [call for call in asked(tmp_path) if any(word.endswith("/zip") for word in call)]
        assert int(self.STEP["env"]["LARGEST"]) == LARGEST

    def test_runs_for_cancelled_runs_as_well(self):
        assert COMMENT["jobs"]["comment"]["if"] == "${{ github.event.workflow_run.event == 'pull_request' }}"
