"""The journal of a run: finished cases, kept and taken over, and what must be equal to use them again."""

import hashlib
import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.report import variant
from tests.fakes.suites import request_of
from tfbench.errors import SideError
from tfbench.fs import try_lock
from tfbench.model import Case, MetricValues, Outcome, Ratio, Reason, Run, Sample, Thresholds, Verdict
from tfbench.model.formats import line, plain
from tfbench.policy import preset
from tfbench.race.lanes import Processors
from tfbench.race.workers import Suite
from tfbench.session import resume
from tfbench.session.request import CaseResult
from tfbench.session.resume import Journal, identity, result_of
from tfbench.sides import source_tree
from tfbench.sides.spec import Side
from tfbench.suite.shards import SuitePart

A, B = (Case(f"w.py::w[a={level}]", "w", "w.py::w", (("a", level),), env=(("E", level),)) for level in "xy")
RATIO = Ratio(1.01, 0.99, 1.03, 0.95)
PROFILE = {"schema": "tfbench-profile/1", "case": A.name, "side": "contender", "folder": "p", "why": ["a kernel"],
           "step": 1.0, "time": {}}  # fmt: skip
FULL = CaseResult(
    A,
    Verdict.of(A, Outcome.UNCHANGED, Reason("within-tolerance", "within 2%"), ratio=RATIO, launches=6, rounds=60),
    variant_result=variant(A, B.name, 1e-3, RATIO, Outcome.IMPROVED, 6, 60, {"flops": 3}),
    sample=Sample(A, (Run((1e-3, 2e-3), 1, {"first_call": 0.5}), Run((3e-3,), 1))),
    baseline=Sample(A, (Run((4e-3, 2e-3), 1),)),
    metrics=(Verdict.of(A, Outcome.NEW, Reason("not-in-baseline", "3"), "flops", values=(None, 3.0), unit="flop"),),
    metric_values=MetricValues({"casts": {"a": 1}}, {"flops": 3.0}),
    profiles=(PROFILE,),
    why=("a kernel", "another\u2028größer"),
)
SKIPPED = CaseResult(B, skip="no GPU")
SUITE = Suite((), "", "importlib", "", (), options={"size": 3})
SIDES = (
    Side("contender", "python", Path("/c"), env=(("B", "2"),)),
    Side("baseline", "other", Path("/b"), unset=("C",)),
)


@pytest.mark.parametrize(
    "result",
    [
        FULL,
        SKIPPED,
        replace(FULL, verdict=None),
        replace(FULL, verdict=FULL.verdict.changed(thresholds=Thresholds(0.2, 0.5))),
        replace(FULL, verdict=FULL.verdict.changed(ratio=Ratio(1.01, 0.0, float("inf"), 0.95))),
        replace(SKIPPED, skip="", verdict=Verdict.of(B, Outcome.NEW, Reason("same-code", "why"))),
    ],
)
def test_a_result_survives_the_journal(result):
    found = result_of(line(result))
    assert replace(found, why=()) == replace(result, why=())
    assert len(found.why) == len(result.why)


ENTRY = plain(FULL)


@pytest.mark.parametrize("key", sorted(ENTRY))
def test_a_damaged_entry_is_no_result(key):
    assert result_of(json.dumps(ENTRY)) is not None
    assert result_of(json.dumps({**ENTRY, key: 1.5})) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"case": plain(B)},
        *(
            {"sample": {"case": ENTRY["case"], "runs": [{"seconds": [1e-3], "iterations": 1, **run}]}}
            for run in ({"seconds": [0.0]}, {"iterations": 0}, {"seconds": [None]}, {"facts": {"first_call": None}})
        ),
    ],
)
def test_rows_of_another_case_and_launches_without_usable_times_are_no_result(changes):
    assert result_of(json.dumps({**ENTRY, **changes})) is None


def request(folder, **changes):
    given = {"suite": SUITE, "processors": Processors((3,), (3, 4)), "device": "all", **changes}
    return request_of(folder, (B, A), **given)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """What the identity asks of this machine and of the checkout."""
    monkeypatch.setattr(resume, "code_digest", lambda root: f"digest of {root.name}")
    monkeypatch.setattr(resume, "new_files", lambda root: [])
    monkeypatch.setattr(resume, "installed", lambda executable: {"packages of": executable})
    monkeypatch.setattr(resume, "settings", lambda: {"TF_X": "1"})
    monkeypatch.setattr(resume, "machine", lambda: {"processor": "p"})


def test_the_identity_names_everything_that_a_result_depends_on(tmp_path):
    asked = request(tmp_path, inject_slowdown=0.1, replay="never", device="gpu:0", against="git:HEAD", baseline="main",
                    profile="p", profiles=Path("p"), profile_on_regression=True, save_baseline="main")  # fmt: skip
    found = identity(asked, SIDES, "yesterday")
    assert found.pop("the policy") == json.loads(json.dumps(preset("quick").as_json()))
    options = {
        "replay": "never", "inject-slowdown": 0.1, "device": "gpu:0", "fail-on-improvement": False, "changed-only": False,
        "profile": "p", "profile-on-regression": True,
    }  # fmt: skip
    cpus = {"one": [3], "every": [3, 4], "near": []}
    assert found == {
        "the code": f"digest of {tmp_path.name}",
        "the other side": ["git:HEAD", "main", "yesterday", [
            ["contender", "python", "/c", {"B": "2"}, []], ["baseline", "other", "/b", {}, ["C"]],
        ]],
        "the packages": {"other": {"packages of": "other"}, "python": {"packages of": "python"}},
        "the options": [options, True, "p", cpus, {"size": 3}, SUITE.inifile, SUITE.import_mode],
        "the cases of the suite": hashlib.sha256(f"{A.name}\n{B.name}".encode()).hexdigest(),
        "the settings": {"TF_X": "1"},
        "the machine": {"processor": "p"},
    }  # fmt: skip


@contextmanager
def running(folder, resume=True, complete=False, saved="yesterday", **changes):
    run = Journal(request(folder, resume=resume, **changes), [A, B], SIDES, saved)
    yield run
    run.close(complete)


def interrupted(folder, *results, **changes):
    with running(folder, resume=False, **changes) as first:
        assert (first.earlier, first.notes) == ({}, [])
        for result in results:
            first.keep(result)
    return folder / "data" / "journal.jsonl"


def taken(folder, **changes):
    """Return the names of the cases that a resumed run takes, and its note."""
    with running(folder, **changes) as second:
        return list(second.earlier), "".join(second.notes)


TAKEN = [A.name], ""
NOT_THERE = [], "--resume: there is no interrupted run, so every case is measured"


def test_finished_cases_are_taken_from_an_interrupted_run_and_kept_until_one_is_complete(tmp_path):
    path = interrupted(tmp_path, FULL)
    head, entry, _ = path.read_text().split("\n")
    assert json.loads(head)["schema"] == "tfbench-journal/1"
    assert json.loads(entry)["case"]["name"] == A.name
    with running(tmp_path) as second:
        assert second.earlier[A.name].variant_result == FULL.variant_result
        second.keep(SKIPPED)
    assert taken(tmp_path, complete=True) == ([A.name, B.name], "")
    assert taken(tmp_path) == NOT_THERE


def test_without_resume_an_earlier_run_is_forgotten(tmp_path):
    interrupted(tmp_path, FULL)
    interrupted(tmp_path, SKIPPED)
    assert taken(tmp_path)[0] == [B.name]


def test_whoever_names_the_journal_removes_it(tmp_path):
    """The job of a fleet may lose its process after the last case, and before its report is safe."""
    own = {"journal": tmp_path / "own.jsonl", "part": SuitePart(1, 1, "s", 2, "j")}
    interrupted(tmp_path, FULL, complete=True, **own)
    assert taken(tmp_path, **own) == TAKEN


def test_a_job_goes_on_on_the_same_machine_only(tmp_path, monkeypatch):
    own = {"part": SuitePart(1, 1, "s", 2, "j")}
    interrupted(tmp_path, FULL, **own)
    monkeypatch.setattr(resume.os, "uname", lambda: SimpleNamespace(nodename="another"))
    assert taken(tmp_path, **own)[1] == "--resume: the machine changed since that run, so every case is measured"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"suite": replace(SUITE, inifile="other.ini")}, "the options"),
        ({"processors": Processors((3,), (2, 3))}, "the options"),
        ({"fail_on_improvement": True}, "the options"),
        ({"saved": "today", "changed_only": True}, "the other side and the options"),
    ],
)
def test_another_run_is_named_by_what_changed_and_the_earlier_cases_are_gone(tmp_path, change, what):
    interrupted(tmp_path, FULL)
    assert taken(tmp_path, **change) == ([], f"--resume: {what} changed since that run, so every case is measured")
    assert taken(tmp_path)[0] == []


def test_a_case_with_an_error_is_measured_again(tmp_path):
    interrupted(tmp_path, replace(FULL, metrics=(*FULL.metrics, FULL.verdict.changed(outcome=Outcome.ERROR))))
    assert taken(tmp_path) == ([], "")


@pytest.mark.parametrize("change", [{"thresholds": (("tolerance", 0.9),)}, {"statistic": "mean"}])
def test_a_case_with_another_mark_is_measured_again_and_others_are_taken(tmp_path, change):
    interrupted(tmp_path, FULL, SKIPPED)
    run = Journal(request(tmp_path, resume=True), [replace(A, **change), B], SIDES, "yesterday")
    run.close(complete=False)
    assert list(run.earlier) == [B.name]


@pytest.mark.parametrize(
    ("now", "names"),
    [
        (lambda text: text.replace('"unchanged"', '"fine"'), [B.name]),
        (lambda text: text.replace("0.004", "NaN"), [B.name]),
        (lambda text: text[:-9], [A.name]),
        (lambda text: text.replace("tfbench-journal/1", "tfbench-journal/2"), []),
    ],
)
def test_a_damaged_line_is_measured_again_and_another_version_is_not_used(tmp_path, now, names):
    path = interrupted(tmp_path, FULL, SKIPPED)
    path.write_text(now(path.read_text()))
    assert taken(tmp_path)[0] == names


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nonsense\n", ""),
        ("[]\n", "cannot be read (ValueError: the first line is a list instead of an object)"),
        ("{}\n", "cannot be read ('schema' is missing)"),
        ('{"schema": "tfbench-journal/1", "identity": 1}\n', "(ValueError: identity is 1 instead of an object)"),
    ],
)
def test_another_file_is_not_taken_for_a_journal(tmp_path, text, fault):
    path = interrupted(tmp_path)
    path.write_text(text)
    names, note = taken(tmp_path)
    assert (names, note[:10], note[-25:]) == ([], "--resume: ", "so every case is measured")
    assert fault in note


def test_a_second_run_in_the_folder_goes_without(tmp_path):
    with running(tmp_path, resume=False) as first:
        with running(tmp_path, complete=True) as second:
            assert second.notes == ["another run is using this folder, so this run cannot be resumed"]
            second.keep(SKIPPED)
        first.keep(FULL)
    assert taken(tmp_path) == TAKEN


def test_a_journal_that_was_removed_is_no_error_at_the_end(tmp_path):
    with running(tmp_path, resume=False, complete=True):
        (tmp_path / "data" / "journal.jsonl").unlink()


def test_a_run_that_cannot_write_its_journal_goes_on_and_says_so(tmp_path):
    def full(text):
        raise OSError(28, "No space left on device")

    with running(tmp_path, resume=False, complete=True) as run:
        run._file = SimpleNamespace(write=full, close=run._file.close)
        run.keep(FULL)
        assert run.notes == ["this run cannot be resumed: [Errno 28] No space left on device"]
        assert run.lost == "[Errno 28] No space left on device"
        try_lock(tmp_path / "data" / "journal.lock").close()  # free for another run
        run.keep(FULL)
    assert len(run.notes) == 1
    assert (tmp_path / "data" / "journal.jsonl").exists()


def test_without_a_checkout_only_a_resumed_run_says_why_it_measures_everything(tmp_path, monkeypatch):
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
    def root(self, tmp_path, monkeypatch):
        monkeypatch.setattr(resume, "new_files", source_tree.new_files)
        root = tmp_path / "project"
        root.mkdir()
        for name in ("test_w.py", "data.txt", "ignored", "report.json"):
            (root / name).write_text("1")
        (root / ".gitignore").write_text("ignored\ndata/\n")
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        subprocess.run(["git", "add", "test_w.py"], cwd=root, check=True)
        return root

    def note(self, root, before=(), now=(), change=lambda: None):
        written = frozenset({root / "report.json"})
        interrupted(root, FULL, variables=dict(before), written=written)
        change()
        names, note = taken(root, variables=dict(now), written=written)
        assert bool(names) != bool(note)
        return note

    @pytest.mark.parametrize(
        ("before", "now"), [({"SIZE": "1"}, {"SIZE": "2"}), ({"SIZE": "1"}, {}), ({}, {"SIZE": "1"})]
    )
    def test_another_value_of_a_variable_is_another_run(self, root, before, now):
        assert self.note(root, before, now).startswith("--resume: the environment variable SIZE changed since that run")

    def test_variables_of_a_shell_or_a_job_may_differ(self, root):
        before = {"SLURM_JOB_ID": "1", "TMPDIR": "/a", "TF_X": "1"}
        assert self.note(root, before, {"SLURM_JOB_ID": "2"}) == ""

    @pytest.mark.parametrize("way", ["edited", "gone"])
    def test_another_new_file_is_another_run(self, root, way):
        def change():
            (root / "data.txt").unlink() if way == "gone" else (root / "data.txt").write_text("2")

        said = self.note(root, change=change)
        assert said.startswith("--resume: the file data.txt changed since that run, so every case is measured")
        assert said.endswith("; have git ignore the files that benchmarks write")

    def test_ignored_files_and_what_a_run_writes_may_differ(self, root):
        def change():
            for name in ("ignored", "report.json", "later"):
                (root / name).write_text("2")
            os.utime(root / "data.txt", (1, 1))

        assert self.note(root, change=change) == ""
