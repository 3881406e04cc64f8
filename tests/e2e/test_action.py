"""The shell of action.yml and of the workflows, step by step, with programs that only note how they were called."""

import json
import os
import re
import stat
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


def named(steps, name):
    return next(step for step in steps if step.get("name") == name)


def workflow_step(job, name):
    return named(GATE["jobs"][job]["steps"], name)


def inputs(**changed):
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    return {f"inputs.{name.replace('_', '-')}": value for name, value in {**given, **changed}.items()}


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


def run(root, step, values, **env):
    base = gate_demo.environment() | {"GITHUB_OUTPUT": str(root / "outputs.txt"), **env}
    base["PATH"] = f"{root / 'bin'}{os.pathsep}{base['PATH']}"
    return shell(step, root, base, values)


def calls(root):
    file = root / "calls.txt"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class TestAction:
    STEP = named(ACTION["runs"]["steps"], "gate")

    def call(self, root, **changed):
        """Return the words of the step's only command."""
        program(root, "tfbench", NOTE)
        done = run(root, self.STEP, inputs(**changed))
        assert done.returncode == 0, done.stderr
        ((name, *words),) = calls(root)
        assert name == "tfbench"
        return words

    def test_calls_one_command_with_all_inputs(self, tmp_path):
        assert self.call(tmp_path, against="git:main", select="a or b", arguments="--cpus\n0,2-3", strict="false") == [
            "ci", "--against", "git:main", "-k", "a or b", "--policy", "quick", "--device", "all", "--require-gpu", "false",
            "--arguments=--cpus\n0,2-3", "--accepted", ".github/tfbench-accepted.toml", "--strict", "false", "--",
        ]  # fmt: skip
        used = re.findall(r"inputs\.([\w-]+)", str(self.STEP["env"]))
        assert sorted(used) == sorted(ACTION["inputs"])

    def test_reads_paths_from_all_lines(self, tmp_path):
        words = self.call(tmp_path, paths="b/one.py b/two.py\nb/three.py\n\n  b/four*.py\n")
        assert words[words.index("--") + 1 :] == ["b/one.py", "b/two.py", "b/three.py", "b/four*.py"]

    @pytest.mark.parametrize("name", sorted(ACTION["inputs"]))
    def test_no_input_is_shell_code(self, tmp_path, name):
        evil = "$(touch owned) `touch owned`; touch owned && touch owned | touch owned > owned \" ' *"
        assert "$(touch owned)" in " ".join(self.call(tmp_path, **{name: evil}))
        assert not (tmp_path / "owned").exists()


def test_what_lies_in_the_branch_is_no_report():
    """A branch may have a folder of the names that the jobs use."""
    for job, folder, last in (
        ("race", "reports", "tfbench ci"),
        ("gate", "reports tfbench-report", "download-artifact"),
    ):
        words = " ".join(one.get("run", "") + one.get("uses", "") for one in GATE["jobs"][job]["steps"])
        assert f"rm -rf {folder}" in words[: words.index(last)]


class TestRequiredJob:
    def test_is_never_skipped(self):
        job = GATE["jobs"]["gate"]
        assert job["if"] == "${{ always() }}"
        assert set(job["needs"]) == set(GATE["jobs"]) - {"gate"}
        results = workflow_step("gate", "results")
        assert results["if"] == "${{ always() }}"
        assert results is job["steps"][-1]

    @pytest.mark.parametrize("race", ["success", "failure", "cancelled", "skipped", ""])
    def test_succeeds_only_if_every_shard_was_raced(self, tmp_path, race):
        done = run(tmp_path, workflow_step("gate", "results"), {"needs.race.result": race})
        assert (done.returncode, "a job did not succeed" in done.stdout) == (
            (0, False) if race == "success" else (1, True)
        )


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
