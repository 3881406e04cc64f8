"""Findings of versions: each regression is written once."""

from pathlib import Path

import pytest

from tfbench.errors import TfbenchError
from tfbench.model import Case, Outcome, Ratio, VariantResult
from tfbench.policy import preset
from tfbench.sides.spec import Side
from tfbench.versions import repro
from tfbench.versions.matrix import Findings, Matrix, Row, Untimed, regressions
from tfbench.versions.repro import ReproResult

CASE, OTHER = (Case(f"w.py::{name}[a=b]", name, f"w.py::{name}") for name in ("test_w", "test_v"))
SIDES = {label: Side(label, f"/{label}/bin/python", Path("/"), label) for label in ("latest", "tf-nightly")}
RATIO = Ratio(1.5, 1.4, 1.6, 0.95)


def entry(case, outcome=None):
    return VariantResult(case, case.name, 0.1, RATIO if outcome else None, outcome, 6, 100, {})


def made_matrix(outcome=Outcome.REGRESSED, released="2.21.0"):
    rows = (Row(CASE, (entry(CASE), entry(CASE, outcome))), Row(OTHER, (entry(OTHER), Untimed("broke", "it crashes"))))
    about = {"python": "3.12", "packages": {"tensorflow": released}, "settings": {}, "defaults": {}}
    return Matrix({"latest": about, "tf-nightly": {**about, "packages": {"tf-nightly": "2.22.0.dev1"}}}, rows, 1.0)


class Launcher:
    def environment(self, side):
        return {"python": "3.12", "packages": {"tensorflow": "2.21.0"}}

    def ready(self, wanted, pairs):
        raise TfbenchError("no process in this test")


@pytest.fixture
def writer(tmp_path, monkeypatch):
    monkeypatch.setattr(repro, "compose", lambda *given: "print('the file')\n")
    monkeypatch.setattr(repro, "changes", lambda *given: ["graph: Sum added"])
    shown = {"result": ReproResult(1.52, 1.5, 1.55, True, "ratio 1.520")}
    monkeypatch.setattr(repro, "run", lambda *given: shown["result"])
    made = Findings(tmp_path / "found", {CASE.name: None}, tmp_path, Launcher(), preset("quick"), SIDES)
    return made, shown


def test_a_side_that_breaks_or_is_not_slower_has_no_regression():
    assert regressions(made_matrix(Outcome.UNCHANGED)) == []
    assert [(label, result.case) for label, result in regressions(made_matrix())] == [("tf-nightly", CASE)]


def test_a_regression_is_written_once(writer):
    made, _ = writer
    first, second = made.write(made_matrix()), made.write(made_matrix())
    assert first[0].startswith("new finding: test_w[a=b] on tf-nightly: ")
    assert second[0].startswith("finding of an earlier run: ")
    files = sorted(path.suffix for path in made.folder.iterdir())
    assert files == [".md", ".py"]
    report = next(made.folder.glob("*.md")).read_text()
    assert "test_w[a=b] is 1.50 times slower with tf-nightly than with latest" in report
    assert "graph: Sum added" in report


def test_a_slowdown_against_the_next_release_is_another_finding(writer):
    made, _ = writer
    made.write(made_matrix())
    assert made.write(made_matrix(released="2.22.0"))[0].startswith("new finding")


def test_a_file_that_does_not_show_the_slowdown_is_not_written(writer):
    made, shown = writer
    shown["result"] = ReproResult(0.9, 0.8, 1.0, False, "ratio 0.900")
    assert made.write(made_matrix()) == [
        "no finding: test_w[a=b] on tf-nightly: the file does not show the difference, so it was not written: "
        "the race found a ratio of 1.500, the extracted file 0.900"
    ]
    assert not made.folder.exists()


def test_an_interrupted_finding_counts_as_not_written(writer):
    made, _ = writer
    made.write(made_matrix())
    next(made.folder.glob("*.md")).unlink()
    assert made.write(made_matrix())[0].startswith("new finding")
