"""The steps of action.yml on five pull requests: one with real TensorFlow, the others with scripted times."""

import json

import pytest

from tests.e2e import gate_demo
from tests.e2e.project import forks
from tests.fakes import preloaded

MODEL = """
    import math


    LAYERS = 20


    def stack():
        return LAYERS * 1e-5


    def scale():
        return math.exp2(-16)
"""
BENCHMARKS = """
    from model import scale, stack
    from tests.fakes.steps import taking


    def test_stack(bench):
        bench(taking(bench, stack()))


    def test_scale(bench):
        bench(taking(bench, scale()))
"""
FILES = {"model.py": MODEL, "benchmarks/test_model.py": BENCHMARKS}
CHANGES = {
    "equal": [("model.py", "LAYERS = 20", "LAYERS = 10 + 10")],
    "crashing": [("model.py", "math.exp2", "math.no_such_function")],
    "deleting": [("benchmarks/test_model.py", BENCHMARKS[BENCHMARKS.index("\n\n\n    def test_scale") :], "\n")],
    "renaming": [("benchmarks/test_model.py", "def test_scale", "def test_scaling")],
    "editing": [
        ("model.py", "LAYERS = 20", "LAYERS = 24"), ("benchmarks/test_model.py", "taking(bench, stack())", "taking(bench, stack() / 2)"),
    ],
}  # fmt: skip


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    gate_demo.build(root, FILES, CHANGES)
    return root


@pytest.mark.slow
class TestPullRequest:
    @pytest.mark.tensorflow
    def test_that_is_slower_fails_with_the_cause(self, tmp_path, monkeypatch):
        monkeypatch.setenv(preloaded.VARIABLE, forks().preloaded)
        gate_demo.build(tmp_path / "repository")
        found = gate_demo.gate(tmp_path / "repository", "slower", cheap=True, policy="quick")
        assert found.code == 1, found.output
        assert "### tfbench: failed, regressed" in found.comment
        assert "`benchmarks/test_model.py::test_stack`" in found.comment
        assert "MatMul" in found.comment  # the cause
        assert "::error file=benchmarks/test_model.py,line=6,title=regressed" in found.output
        assert "### tfbench: regressed" in found.summary

    def test_that_is_equal_passes_the_strict_gate(self, repository):
        found = gate_demo.gate(repository, "equal", cheap=True, policy="quick")
        assert found.code == 0, found.output
        assert "### tfbench: pass" in found.comment

    def test_whose_benchmark_crashes_is_an_error_and_no_regression(self, repository):
        found = gate_demo.gate(repository, "crashing", cheap=True, policy="quick")
        assert found.code == 5, found.output
        assert "no_such_function" in found.output
        assert "### tfbench: failed, error" in found.comment
        assert "regressed" not in found.comment

    def test_that_deletes_a_benchmark_fails(self, repository):
        found = gate_demo.gate(repository, "deleting", cheap=True, policy="quick")
        assert found.code == 4, found.output
        assert "missing" in found.comment
        assert "test_scale" in found.comment
        forgiving = gate_demo.gate(
            repository, "deleting", cheap=True, policy="quick", strict="false"
        )  # of what is open
        assert forgiving.code == 4

    def test_that_renames_a_benchmark_passes(self, repository):
        found = gate_demo.gate(repository, "renaming", cheap=True, policy="quick", strict="false")
        assert found.code == 0, found.output
        report = json.loads((repository / "tfbench-report" / "report.json").read_text())
        outcomes = {row["case"]: row["outcome"] for row in report["verdicts"] if row["metric"] == "time"}
        assert outcomes["benchmarks/test_model.py::test_scaling"] == "unchanged"
        assert "benchmarks/test_model.py::test_scale" not in outcomes

    def test_that_edits_the_benchmark_that_judges_it_fails_if_it_is_slower(self, repository):
        found = gate_demo.gate(repository, "editing", cheap=True, policy="quick")
        assert found.code == 1, found.output
        assert "The yardstick itself changed" in found.comment
        assert "test\\_stack" in found.comment
