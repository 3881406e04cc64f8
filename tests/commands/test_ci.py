"""The gate of a CI job as one command: what pytest is asked for, which base, and which exit code."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.e2e.project import wait_for
from tests.fakes.report import CODE, SIDES, complete, row
from tests.sides.test_source_tree import git as git_in
from tfbench import cli
from tfbench.commands import ci
from tfbench.errors import SideError
from tfbench.model import Ratio
from tfbench.report import json_format
from tfbench.sides.source_tree import base_of_change, working_code
from tfbench.suite.shards import Shard, part

ROOT = Path(__file__).resolve().parents[2]
CASE = "b/test_x.py::test_x"
PYTEST = """
import json, os, sys
from pathlib import Path

with open("calls.txt", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
code, report = json.loads(Path("answers.json").read_text())
if report:
    Path(sys.argv[-1].partition("=")[2]).write_text(report)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def report(*outcomes, **fields):
    sides = SIDES | {"baseline": {"spec": "git:main", **CODE}}
    rows = [row(f"{CASE}{number or ''}", outcome) for number, outcome in enumerate(outcomes)]
    return json_format.render(complete(rows, **{"sides": sides, **fields}))


UNCHANGED = report("unchanged")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A folder in which pytest only notes its call and answers with prepared reports."""
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("pytest_only.py").write_text(PYTEST)
    monkeypatch.setattr(ci, "PYTEST", (sys.executable, "pytest_only.py"))

    def run(*words, raced=(0, UNCHANGED), against="git:main"):
        Path("answers.json").write_text(json.dumps(raced))
        Path("calls.txt").unlink(missing_ok=True)
        return cli.main(["ci", *(["--against", against] if against else []), *words])

    return run


def calls():
    return [json.loads(line) for line in Path("calls.txt").read_text().splitlines()]


def left():
    return sorted(file.name for file in Path("tfbench-report").iterdir())


def test_a_change_that_is_not_slower_passes_and_leaves_a_report_and_a_comment(job, capsys):
    Path("tfbench-report").mkdir()
    Path("tfbench-report/report.json").write_text("of yesterday")
    Path("tfbench-report/shard-7.json").write_text("of the branch")
    assert job("--comment", "comment.md") == 0
    assert calls() == [
        ["--benchmark", "--tfbench-policy", "quick", "--tfbench-against", "git:main", "--tfbench-device", "all",
         "--tfbench-profile-on-regression", "--tfbench-report-json=tfbench-report/report.json"]
    ]  # fmt: skip
    assert left() == ["accepted.json", "report.json"]
    assert "### tfbench: pass" in Path("comment.md").read_text()
    assert capsys.readouterr().err == ""


def test_all_options_reach_pytest(job):
    job(
        "b", "c d", "-k", "x or y", "--policy", "strict", "--device", "gpu:0", "--require-gpu", "true",
        "--arguments=--cpus\n0,2-3\n\n-m not slow\n",
    )  # fmt: skip
    assert calls() == [
        ["--benchmark", "--tfbench-policy", "strict", "--tfbench-against", "git:main", "--tfbench-device", "gpu:0",
         "--tfbench-profile-on-regression", "--cpus", "0,2-3", "-m not slow", "--tfbench-require-gpu", "-k", "x or y",
         "b", "c d", "--tfbench-report-json=tfbench-report/report.json"]
    ]  # fmt: skip


@pytest.mark.parametrize(("outcome", "code"), [("inconclusive", 0), ("incomparable", 4), ("missing", 4), ("error", 5)])
def test_without_strict_an_inconclusive_case_is_tolerated_if_enough_others_were_compared(job, outcome, code):
    assert job("--strict", "false", raced=(0, report("unchanged", outcome))) == code
    assert job("--strict", "false", raced=(0, report(outcome))) == (code or 3)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, -9])
def test_other_exit_codes_of_pytest_than_0_and_1_are_no_pass(job, capsys, code):
    expected = {0: 0, 1: 0, 4: 2}.get(code, 5)
    assert job(raced=(code, report("unchanged"))) == expected
    shown = f"the run of pytest ended with exit code {code if code >= 0 else 128 - code} (2 interrupted"
    assert (shown in capsys.readouterr().err) == bool(expected)
    assert job(raced=(code, "")) == (expected or 5)
    assert ("pytest wrote no report" in capsys.readouterr().err) == (not expected)


def test_a_regression_names_the_command_that_finds_its_commit_and_runs_it_within_a_budget(job, capsys, monkeypatch):
    found = f"tfbench bisect --good main --bad {CODE['commit']} {CASE}"
    assert job(raced=(1, report("regressed"))) == 1
    assert found in capsys.readouterr().out.replace("\n", " ")
    run, asked = ci.run_terminable, []

    def bisecting(words, seconds=None):
        if "bisect" not in words:
            return run(words)
        asked.append((words[1:], seconds))
        return run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)

    monkeypatch.setattr(ci, "run_terminable", bisecting)
    assert job("--bisect", "3", raced=(1, report("regressed"))) == 1
    assert asked == [(["-m", *found.split()], 180)]
    assert "not found within --bisect 3" in capsys.readouterr().out


def test_the_command_has_the_scale_and_the_parameters_of_the_case_and_its_file_from_this_folder(job, capsys):
    Path("sub").mkdir()
    name = "b/test_x.py::test_x[http://x/../y-scale=medium]"
    sides = {
        "baseline": {"spec": "git:main", **CODE},
        "contender": {**SIDES["contender"], "root": str(Path("sub").resolve())},
    }
    job(raced=(1, json_format.render(complete([row(name, "regressed")], sides=sides))))
    found = f"tfbench bisect --good main --bad {CODE['commit']} --scale medium 'sub/{name}'"
    assert found in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("folder", [".", "sub"])
def test_an_annotation_names_the_file_from_the_root_of_the_repository(job, monkeypatch, capsys, tmp_path, folder):
    root = tmp_path / "sub"
    (root / "b").mkdir(parents=True)
    (root / "b/test_x.py").write_text("\ndef test_x(bench): ...\n")
    sides = {"baseline": {"spec": "git:main", **CODE}, "contender": {**SIDES["contender"], "root": str(root)}}
    Path("r.json").write_text(report("regressed", sides=sides))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir(folder)
    assert cli.main(["gate", str(tmp_path / "r.json")]) == 1
    assert "::error file=sub/b/test_x.py,line=2,title=regressed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outcome", "baseline", "contender"),
    [
        ("inconclusive", "git:main", {}),
        ("regressed", "keras==3.5.0", {}),
        ("regressed", "git:main+keras==3.5.0", {}),
        ("regressed", "git:main", {"dirty": True}),
    ],
)
def test_no_bisection_is_offered_where_no_commits_lie_between_the_sides(job, capsys, outcome, baseline, contender):
    sides = {"baseline": {"spec": baseline, **CODE}, "contender": {**SIDES["contender"], **contender}}
    job(raced=(1, report(outcome, sides=sides)))
    assert "bisect" not in capsys.readouterr().out


@pytest.mark.parametrize(("content", "fault"), [(None, "Is a directory"), ("x", "is not TOML")])
def test_accepted_regressions_that_cannot_be_read_end_the_job_before_the_race(job, capsys, content, fault):
    accepted = Path("accepted.toml")
    accepted.mkdir() if content is None else accepted.write_text(content)
    assert job("--accepted", "accepted.toml") in (2, 5)
    assert fault in capsys.readouterr().err
    assert not Path("calls.txt").exists()


ENTRY = f'[[accept]]\ncase = "{CASE}"\nreason = "agreed"\nuntil = 9999-01-01\nup_to = 2\n'


def test_an_entry_counts_against_another_setting_of_the_same_tree(job):
    Path("accepted.toml").write_text(ENTRY)
    git("init", "-q")
    git("add", "accepted.toml")
    code = {**CODE, "tree": git("write-tree")}
    sides = {"contender": {"spec": "working tree", **code}, "baseline": {"spec": "tensorflow==2.20.0", **code}}
    rows = [row(CASE, "regressed", ratio=Ratio(1.5, 1.4, 1.6, 0.99)), row(f"{CASE}_2")]
    raced = json_format.render(complete(rows, sides=sides))
    assert job("--accepted", "accepted.toml", raced=(0, raced)) == 0
    assert CASE in Path("tfbench-report/accepted.json").read_text()


def test_an_entry_that_the_baseline_has_as_well_covers_and_fails_nothing(job, capsys):
    def against(tree, outcome):
        side = {"spec": "git:main", **CODE, "tree": tree}
        rows = [row(CASE, outcome, ratio=Ratio(1.5, 1.4, 1.6, 0.99)), row(f"{CASE}_2")]
        return (0, json_format.render(complete(rows, sides=SIDES | {"baseline": side})))

    Path("accepted.toml").write_text("")
    git("init", "-q")
    git("add", "accepted.toml")
    older = git("write-tree")
    Path("accepted.toml").write_text(ENTRY)
    git("add", "accepted.toml")
    merged = git("write-tree")
    words = ("--accepted", "accepted.toml")
    assert job(*words, raced=against(older, "regressed")) == 0
    assert job(*words, raced=against(older, "unchanged")) == 5  # it was added for nothing
    assert job(*words, raced=against(merged, "unchanged")) == 0
    assert f"{CASE}: the acceptance has served its purpose" in capsys.readouterr().out
    assert job(*words, raced=against(merged, "regressed")) == 1
    Path("accepted.toml").write_text(ENTRY.replace("= 2", "= 3"))
    assert job(*words, raced=against(merged, "regressed")) == 0  # it is renewed
    assert job(*words, raced=against("0" * 40, "regressed")) == 2
    said = "accepted.toml: which entries the baseline has already is unknown; this clone does not have the tree 000000000000"
    assert said in capsys.readouterr().err


def test_a_shard_is_raced_and_left_to_the_gate(job):
    assert job("--shard", "2/3", raced=(1, report("regressed"))) == 0
    assert left() == ["shard-2.json"]
    assert calls()[0][-3:-1] == ["--tfbench-shard", "2/3"]
    assert job("--shard", "2/3", raced=(3, report("regressed"))) == 5


INTERRUPTED = """
import signal, sys, time
from pathlib import Path

def end(*_):
    time.sleep(0.5)
    Path("ended").touch()
    sys.exit(2)

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell's script
signal.signal(signal.SIGTERM, end)
Path("began").touch()
time.sleep(60)
"""
STARTED = """
import sys
from tfbench import cli
from tfbench.commands import ci

ci.PYTEST = (sys.executable, "slow.py")
sys.exit(cli.main(["ci", "--against", "git:main"]))
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_reaches_pytest_and_the_command_ends_after_it(tmp_path, ending):
    (tmp_path / "slow.py").write_text(INTERRUPTED)
    words = [sys.executable, "-c", STARTED]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    usual = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the tests themselves may run in the background
    with subprocess.Popen(
        words, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True, preexec_fn=usual
    ) as process:
        wait_for(tmp_path / "began")
        process.send_signal(ending)
        assert "tfbench ci: interrupted" in process.communicate()[1]
    assert process.returncode == 130
    assert (tmp_path / "ended").exists()


class TestHandedOn:
    """Shards may be of another job, or of an earlier run."""

    @pytest.fixture
    def raced(self, job):
        git("init", "-q")
        Path(".gitignore").write_text("tfbench-report\n*.json\n*.txt\n*.py\n")
        commit("old")
        Path("reports").mkdir()
        self.race(working_code(Path()))
        return git("rev-parse", "HEAD")

    def race(self, code, **changes):
        side = {"spec": "working tree", "commit": code.commit, "tree": code.tree, "dirty": code.dirty, **changes}
        sides = {"contender": side, "baseline": {"spec": "git:main", **CODE}}
        Path("reports/shard-1.json").write_text(
            report("unchanged", sides=sides, shard=part(Shard(1, 1), [CASE], [CASE]))
        )

    def test_a_shard_of_the_checked_out_code_is_used_whatever_files_are_new(self, raced):
        Path("build").mkdir()
        Path("build/new.toml").touch()
        assert cli.main(["gate", "reports", "--output", "tfbench-report", "--comment", "comment.md"]) == 0
        assert left() == ["accepted.json", "report.json"]
        assert "### tfbench: pass" in Path("comment.md").read_text()
        assert cli.main(["gate", "tfbench-report"]) == 0

    @pytest.mark.parametrize("change", ["commit", "edit"])
    def test_a_shard_of_other_code_is_refused(self, raced, capsys, change):
        commit("new") if change == "commit" else Path("old").write_text("edited")
        assert cli.main(["gate", "reports", "--output", "tfbench-report"]) == 5
        said = capsys.readouterr().err
        assert f"is of commit {raced[:12]} (tree " in said
        assert " is checked out; race the shard again" in said
        assert not Path("tfbench-report").exists()

    def test_a_shard_that_names_no_commit_is_used(self, raced):
        self.race(working_code(Path()), commit="", tree="session:1")
        assert cli.main(["gate", "reports"]) == 0


def test_the_least_share_of_compared_cases_reaches_the_gate_and_is_checked_before_the_race(job, capsys):
    first = (0, report("unchanged", "incomparable", "incomparable"))
    assert job(raced=first) == 4
    assert "only 1 of 3 cases were compared" in capsys.readouterr().out
    job("--min-compared", "0.3", raced=first)
    assert "only 1 of 3" not in capsys.readouterr().out
    assert job("--min-compared=-0.1") == 2
    assert not Path("calls.txt").exists()


def test_github_is_told_by_outputs_and_annotations(job, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", "outputs.txt")
    for name, value in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "o/r"), ("RUN_ID", "7")):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    assert job("--comment", "c.md", raced=(3, report("regressed"))) == 1
    assert Path("outputs.txt").read_text() == "code=1\n"
    assert "::error title=tfbench::the run of pytest ended with exit code 3" in capsys.readouterr().out
    assert "https://github.com/o/r/actions/runs/7" in Path("c.md").read_text()
    Path("outputs.txt").unlink()
    assert job(raced=(0, "")) == 5
    assert Path("outputs.txt").read_text() == "code=5\n"


class TestBase:
    """CI names an old commit of the base, and the change was merged with a later one."""

    @pytest.fixture
    def history(self, job, tmp_path):
        git("init", "-q", "-b", "main")
        old = commit("old")
        git("switch", "-qc", "change")
        change = commit("change")
        git("switch", "-q", "main")
        new = commit("new")
        git("update-ref", "refs/remotes/origin/main", new)
        return old, change, new

    def test_is_the_first_parent_of_the_merge_that_github_tests(self, history):
        old, change, new = history
        git("merge", "-q", "--no-ff", "-m", "merge", change)
        assert base_of_change(Path(), old, "main", change) == new

    def test_is_never_older_than_what_was_merged_into_the_head(self, history):
        old, _, new = history
        git("switch", "-q", "change")
        git("merge", "-q", "-m", "merge main", "main")
        assert base_of_change(Path(), old, "main", git("rev-parse", "HEAD")) == new

    def test_is_otherwise_the_last_commit_that_the_change_shares_with_the_named_one(self, history):
        old, change, new = history
        git("switch", "-q", "change")
        for base in (old, new, "main"):
            assert base_of_change(Path(), base, "main", change) == old
            assert base_of_change(Path(), base) == old

    def test_that_is_not_there_is_named_with_a_fix(self, history):
        with pytest.raises(SideError, match="no such revision in this repository"):
            base_of_change(Path(), "f" * 40, "main", "")
        git("switch", "-q", "--orphan", "other")
        commit("other")
        with pytest.raises(SideError, match="no commit in common with HEAD"):
            base_of_change(Path(), "main")

    @pytest.mark.parametrize("system", ["github", "queue", "gitlab", "option"])
    def test_is_read_from_the_ci_system(self, job, history, monkeypatch, system):
        old, change, new = history
        git("switch", "-q", "change")
        if system != "option":
            in_ci(monkeypatch, system, new if system == "github" else old, change)
        assert job(*(["--base", "main"] if system == "option" else []), against="") == 0
        assert calls()[0][4] == f"git:{old}"

    @pytest.mark.parametrize("system", ["github", "queue", "gitlab"])
    @pytest.mark.parametrize("words", [(), ("--base", "main")])
    def test_is_not_raced_against_itself_where_the_change_is_not_checked_out(
        self, job, history, monkeypatch, capsys, system, words
    ):
        old, change, _ = history
        in_ci(monkeypatch, system, old, change)
        assert job(*words, against="") == 5
        assert f"the change {change[:12]} is not checked out" in capsys.readouterr().err
        assert not Path("calls.txt").exists()
        git("merge", "-q", "--no-ff", "-m", "merge", change)
        assert job(*words, against="") == 0

    def test_needs_a_change_that_gitlab_names(self, job, history, monkeypatch, capsys):
        in_ci(monkeypatch, "gitlab", *history[:2])
        monkeypatch.delenv("CI_COMMIT_SHA")
        assert job(against="") == 2
        assert "no commit of the change: set CI_COMMIT_SHA" in capsys.readouterr().err
        monkeypatch.delenv("CI_MERGE_REQUEST_DIFF_BASE_SHA")
        assert job(against="") == 2
        assert "no base: this is no job of a pull request; add --base BRANCH" in capsys.readouterr().err

    def test_a_merge_train_of_gitlab_may_have_squashed_the_change(self, job, history, monkeypatch):
        _, change, new = history
        git("merge", "-q", "--squash", change)
        git("commit", "-qm", "squashed")
        in_ci(monkeypatch, "gitlab", new, git("rev-parse", "HEAD"))
        monkeypatch.setenv("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", change)
        assert job(against="") == 0
        assert calls()[0][4] == f"git:{new}"

    def test_a_shallow_clone_in_which_git_cannot_tell_is_refused_with_the_fix(
        self, job, history, monkeypatch, capsys, tmp_path
    ):
        _, change, _ = history
        git("merge", "-q", "--no-ff", "-m", "merge", change)
        commit("later")
        url = tmp_path.as_uri()
        for depth, code in ((2, 5), (3, 0)):  # with two, the merge has no parents
            git("clone", "-q", "--depth", str(depth), url, f"clone-{depth}")
            git("-C", f"clone-{depth}", "fetch", "-q", "--depth", "1", "origin", change)
            monkeypatch.chdir(tmp_path / f"clone-{depth}")
            Path("pytest_only.py").write_text(PYTEST)
            in_ci(monkeypatch, "github", "HEAD~1", change)
            assert job(against="") == code
            told = "git cannot tell whether the change" in (said := capsys.readouterr().err)
            assert (told and "git fetch --unshallow" in said) == bool(code)
            monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize("base", ["main", "HEAD", "origin/main"])
    def test_is_not_the_checked_out_commit_itself_unless_something_is_edited(self, job, history, capsys, base):
        Path(".gitignore").write_text("*.json\n*.txt\n")
        git("add", "-A")
        new = commit("with the files of the test")
        git("update-ref", "refs/remotes/origin/main", new)
        assert job("--base", base, against="") == 2
        assert f"--base {base}: HEAD has no change since it" in capsys.readouterr().err
        assert not Path("calls.txt").exists()
        assert job("--base", "HEAD~1", against="") == 0
        Path("new.py").touch()
        assert job("--base", base, against="") == 0
        assert calls()[0][4] == f"git:{new}"

    @pytest.mark.parametrize(
        "event", ["", "[]", '{"pull_request": {"base": {}}}', '{"pull_request": 1}', '{"merge_group": []}', "[" * 99999]
    )
    def test_is_asked_for_where_the_event_of_github_is_none(self, job, history, monkeypatch, capsys, event):
        in_ci(monkeypatch, "github", *history[:2])
        Path("event.json").write_text(event)
        assert job(against="") == (2 if event.endswith("[]}") else 5)
        assert len((said := capsys.readouterr().err).splitlines()) == 1
        assert "add --base BRANCH" in said


def in_ci(monkeypatch, system, base, change):
    """Set what a CI system says of a change."""
    if system == "gitlab":
        monkeypatch.setenv("CI_MERGE_REQUEST_DIFF_BASE_SHA", base)
        monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
        monkeypatch.setenv("CI_COMMIT_SHA", change)
        return
    pull = {"pull_request": {"base": {"sha": base, "ref": "main"}, "head": {"sha": change}}}
    queue = {"merge_group": {"base_sha": base, "head_sha": change}}
    Path("event.json").write_text(json.dumps(pull if system == "github" else queue))
    monkeypatch.setenv("GITHUB_EVENT_PATH", "event.json")


git = partial(git_in, ".")


def commit(name):
    Path(name).write_text(name)
    git("add", name)
    git("commit", "-qm", name)
    return git("rev-parse", "HEAD")


def test_gitlabs_template_is_valid_and_calls_the_command(tmp_path):
    file = ROOT / "ci" / "gitlab.yml"
    check = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.gitlab-ci", str(file)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (script,) = yaml.safe_load(file.read_text())["tfbench"]["script"]
    assert script.startswith("tfbench ci ")
