"""Results as entries of a journal, what must be equal to use them again, and what a run says about it."""

import hashlib
import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import SideError
from tfbench.fs import try_lock
from tfbench.model import Case, MetricValues, Outcome, Ratio, Reason, Run, Sample, Thresholds, VariantResult, Verdict
from tfbench.policy import preset
from tfbench.race.lanes import Processors
from tfbench.race.workers import Suite
from tfbench.session import resume
from tfbench.session.request import CaseResult, RunRequest
from tfbench.session.resume import Journal, Resumption, entry_of, identity, result_of
from tfbench.sides import source_tree
from tfbench.sides.spec import Side
from tfbench.suite.shards import SuitePart

A, B = (Case(f"w.py::w[a={level}]", "w", "w.py::w", (("a", level),), env=(("E", level),)) for level in "xy")
RATIO = Ratio(1.01, 0.99, 1.03, 0.95)
PROFILE = {"schema": "tfbench-profile/1", "case": A.name, "side": "contender", "folder": "p", "why": ["a kernel"],
           "step": 1.0, "time": {}, "parts": []}  # fmt: skip
FULL = CaseResult(
    A,
    Verdict.of(A, Outcome.UNCHANGED, Reason("within-tolerance", "within 2%"), ratio=RATIO, launches=6, rounds=60),
    variant_result=VariantResult.of(A, B.name, 1e-3, RATIO, Outcome.IMPROVED, 6, 60, {"flops": 3}),
    sample=Sample(A, (Run((1e-3, 2e-3), 1, {"first_call": 0.5}), Run((3e-3,), 1))),
    baseline=Sample(A, (Run((4e-3, 2e-3), 1),)),
    metrics=(Verdict.of(A, Outcome.NEW, Reason("not-in-baseline", "3"), "flops", values=(None, 3.0), unit="flop"),),
    metric_values=MetricValues({"casts": {"a": 1}}, {"flops": 3.0}),
    profiles=(PROFILE,),
    why=("a kernel", "another"),
)
SKIPPED = CaseResult(B, skip="no GPU")
SUITE = Suite((), "", "importlib", "", (), options={"size": 3})


def read_back(result):
    return result_of(result.case, json.loads(json.dumps(entry_of(result))))


@pytest.mark.parametrize(
    "result",
    [
        FULL,
        SKIPPED,
        replace(FULL, verdict=None),
        replace(
            FULL,
            verdict=FULL.verdict.changed(thresholds=Thresholds(0.2, 0.5)),
        ),
        replace(SKIPPED, skip="", verdict=Verdict.of(B, Outcome.NEW, Reason("same-code", "why"))),
    ],
)
def test_a_result_survives_the_journal(result):
    found = read_back(result)
    case = result.case
    same = {"case": case}
    if result.sample:
        seconds = [pytest.approx(run.seconds) for run in result.sample.runs]
        assert [run.seconds for run in found.sample.runs] == seconds
        assert found.sample.case == case
        assert [run.seconds for run in found.baseline.runs] == [
            pytest.approx(run.seconds) for run in result.baseline.runs
        ]
        same |= {"sample": found.sample, "baseline": found.baseline}
    assert found == replace(result, **same)


KEYS = ["verdict", "metrics", "variant_result", "sample", "baseline", "metric_values", "profiles", "why"]


@pytest.mark.parametrize("key", ["case", *KEYS])
def test_a_damaged_entry_is_no_result(key):
    entry = entry_of(FULL)
    assert set(entry) == {"case", *KEYS}
    assert result_of(A, {**entry, key: 1.5}) is None


def request(folder, **changes):
    given = {"root": folder, "folder": folder / "data", "policy": preset("quick"), "suite": SUITE, "executable": "python",
             "processors": Processors((3,), (3, 4)), "collect_command": (), "suite_cases": (B, A)}  # fmt: skip
    return RunRequest(**{**given, **changes})


@pytest.fixture
def known(monkeypatch):
    """What the identity asks of this machine and of the checkout."""
    monkeypatch.setattr(resume, "code_digest", lambda root: f"digest of {root.name}")
    monkeypatch.setattr(resume, "new_files", lambda root: [])
    monkeypatch.setattr(resume, "distributions", lambda executable: {"packages of": executable})
    monkeypatch.setattr(resume, "settings", lambda: {"TF_X": "1"})
    monkeypatch.setattr(resume, "machine", lambda: {"processor": "p"})


SIDES = (
    Side("contender", "python", Path("/c"), env=(("B", "2"),)),
    Side("baseline", "other", Path("/b"), unset=("C",)),
)


def test_the_identity_names_everything_that_a_result_depends_on(tmp_path, known):
    asked = request(tmp_path, slowdown=0.1, replay="none", device="gpu", gpus=("0",), against="git:HEAD", baseline="main",
                    profile=Path("p"), profile_regressed=Path("q"))  # fmt: skip
    found = identity(asked, SIDES, "yesterday")
    assert found["the policy"]["looks"] == list(preset("quick").looks)
    assert found["the policy"] == json.loads(json.dumps(preset("quick").as_json()))
    del found["the policy"]
    assert found == {
        "the code": f"digest of {tmp_path.name}",
        "the other side": ["git:HEAD", "main", "yesterday", [
            ["contender", "python", "/c", {"B": "2"}, []], ["baseline", "other", "/b", {}, ["C"]],
        ]],
        "the packages": {"other": {"packages of": "other"}, "python": {"packages of": "python"}},
        "the options": [0.1, False, "none", "gpu", ["0"], [3], {"size": 3}, SUITE.inifile, SUITE.import_mode, "p", "q"],
        "the cases of the suite": hashlib.sha256(f"{A.name}\n{B.name}".encode()).hexdigest(),
        "the thresholds of cases": [],
        "the settings": {"TF_X": "1"},
        "the machine": {"processor": "p"},
    }  # fmt: skip
    assert identity(request(tmp_path), SIDES, "")["the options"][-2:] == ["", ""]


@contextmanager
def running(folder, resume=True, complete=False, **changes):
    saved = changes.pop("saved", "yesterday")
    run = Resumption(request(folder, resume=resume, **changes), [A, B], SIDES, saved)
    yield run
    run.close(complete)


def interrupted(folder, result):
    with running(folder, resume=False) as first:
        assert (first.earlier, first.notes) == ({}, [])
        first.keep(result)
    return folder / "data" / "journal.jsonl"


def test_finished_cases_are_taken_from_an_interrupted_run(tmp_path, known):
    interrupted(tmp_path, FULL)
    with running(tmp_path, complete=True) as second:
        assert list(second.earlier) == [A.name]
        assert second.earlier[A.name].variant_result == FULL.variant_result
        assert second.notes == ["1 of 2 cases taken from the interrupted run"]
    with running(tmp_path) as third:
        assert third.earlier == {}
        assert third.notes == ["--resume: there is no interrupted run, so every case is measured"]


def test_whoever_names_the_journal_removes_it(tmp_path, known):
    """The job of a fleet may lose its process after the last case, and before its report is safe."""
    own = {"journal": tmp_path / "own.jsonl", "job": SuitePart(1, 1, "s", 2, "j")}
    with running(tmp_path, resume=False, complete=True, **own) as first:
        first.keep(FULL)
    with running(tmp_path, **own) as second:
        assert list(second.earlier) == [A.name]


def test_a_job_goes_on_on_the_same_machine_only(tmp_path, known, monkeypatch):
    own = {"job": SuitePart(1, 1, "s", 2, "j")}
    with running(tmp_path, resume=False, **own) as first:
        first.keep(FULL)
    monkeypatch.setattr(resume.os, "uname", lambda: SimpleNamespace(nodename="another"))
    with running(tmp_path, **own) as second:
        assert second.notes == ["--resume: the machine changed since that run, so every case is measured"]


def test_another_baseline_is_another_run(tmp_path, known):
    interrupted(tmp_path, FULL)
    with running(tmp_path, saved="today") as second:
        assert second.notes == ["--resume: the other side changed since that run, so every case is measured"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"suite_cases": (B, replace(A, thresholds=(("tolerance", 0.9),)))}, "the thresholds of cases"),
        ({"suite_cases": (B, replace(A, statistic="p90"))}, "the thresholds of cases"),
        ({"suite": replace(SUITE, inifile="other.ini")}, "the options"),
    ],
)
def test_other_thresholds_or_another_configuration_file_are_another_run(tmp_path, known, change, what):
    interrupted(tmp_path, FULL)
    with running(tmp_path, **change) as second:
        assert second.notes == [f"--resume: {what} changed since that run, so every case is measured"]


def test_a_case_with_an_error_is_measured_again(tmp_path, known):
    interrupted(tmp_path, replace(FULL, metrics=(*FULL.metrics, FULL.verdict.changed(outcome=Outcome.ERROR))))
    with running(tmp_path) as second:
        assert second.earlier == {}


def test_a_damaged_entry_is_measured_again(tmp_path, known):
    path = interrupted(tmp_path, FULL)
    path.write_text(path.read_text().replace('"unchanged"', '"fine"'))
    with running(tmp_path) as second:
        assert (second.earlier, second.notes) == ({}, [])


def test_a_run_that_cannot_write_its_journal_goes_on_and_says_so(tmp_path, known, monkeypatch):
    def full(journal, entry):
        raise OSError(28, "No space left on device")

    with running(tmp_path, resume=False, complete=True) as run:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "add", full)
            run.keep(FULL)
        assert run.notes == ["this run cannot be resumed: [Errno 28] No space left on device"]
        assert run.lost == "[Errno 28] No space left on device"
        try_lock(tmp_path / "data" / "journal.lock").close()  # free for another run
        run.keep(FULL)
    assert len(run.notes) == 1
    assert (tmp_path / "data" / "journal.jsonl").exists()


def test_without_a_checkout_only_a_resumed_run_says_why_it_measures_everything(tmp_path, known, monkeypatch):
    def refuse(root):
        raise SideError("no git checkout")

    monkeypatch.setattr(resume, "code_digest", refuse)
    with running(tmp_path, resume=False) as silent, running(tmp_path) as told:
        assert (silent.notes, silent.lost) == ([], "no git checkout")
        assert told.notes == ["--resume: every case is measured: no git checkout"]
        told.keep(FULL)


class TestInACheckout:
    """Of the surroundings of two runs, only what the benchmarks may read counts."""

    @pytest.fixture
    def root(self, tmp_path, known, monkeypatch):
        monkeypatch.setattr(resume, "new_files", source_tree.new_files)
        root = tmp_path / "project"
        root.mkdir()
        for name, text in (
            ("test_w.py", ""),
            ("data.txt", "1"),
            (".gitignore", "ignored\ndata/\n"),
            ("ignored", "1"),
        ):
            (root / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        subprocess.run(["git", "add", "test_w.py"], cwd=root, check=True)
        return root

    def notes(self, root, before, now, change=lambda: None, **more):
        with running(root, resume=False, variables=before, **more) as first:
            first.keep(FULL)
        change()
        with running(root, variables=now, **more) as second:
            assert bool(second.earlier) == second.notes[0].startswith("1 of 2 cases")
        return second.notes[0]

    @pytest.mark.parametrize(
        ("before", "now"), [({"SIZE": "1"}, {"SIZE": "2"}), ({"SIZE": "1"}, {}), ({}, {"SIZE": "1"})]
    )
    def test_another_value_of_a_variable_is_another_run(self, root, before, now):
        assert self.notes(root, before, now).startswith(
            "--resume: the environment variable SIZE changed since that run"
        )

    def test_variables_of_a_shell_or_a_job_may_differ(self, root):
        before = {"SLURM_JOB_ID": "1", "TMPDIR": "/a", "TF_X": "1"}
        assert self.notes(root, before, {"SLURM_JOB_ID": "2"}).startswith("1 of 2 cases")

    @pytest.mark.parametrize("way", ["edited", "gone"])
    def test_another_new_file_is_another_run(self, root, way):
        def change():
            (root / "data.txt").unlink() if way == "gone" else (root / "data.txt").write_text("2")

        said = self.notes(root, {}, {}, change)
        assert said.startswith("--resume: the file data.txt changed since that run, so every case is measured")
        assert said.endswith("; have git ignore the files that benchmarks write")

    def test_ignored_files_and_what_a_run_writes_may_differ(self, root):
        (root / "report.json").write_text("1")

        def change():
            for name in ("ignored", "report.json", "later"):
                (root / name).write_text("2")
            os.utime(root / "data.txt", (1, 1))

        assert self.notes(root, {}, {}, change, written={root / "report.json"}).startswith("1 of 2 cases")

    def test_a_folder_of_very_many_new_files_is_no_data(self, root, monkeypatch):
        monkeypatch.setattr(resume, "_MOST", 1)
        assert self.notes(root, {}, {}, (root / "data.txt").unlink).startswith("1 of 2 cases")

    def test_a_message_names_a_few_changes(self, root):
        def change():
            for file in files:
                file.unlink()

        files = [root / f"{number}.txt" for number in range(9)]
        for file in files:
            file.touch()
        assert "the file 4.txt and 4 more changed since" in self.notes(root, {}, {}, change)
