"""The steps of action.yml on five pull requests, with real TensorFlow."""

import json

import pytest

from tests.suite import gate_demo
from tests.suite.conftest import FEW_PROCESSES


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("gate") / "repository"
    gate_demo.build(root, FEW_PROCESSES)
    return root


@pytest.mark.tensorflow
class TestPullRequest:
    def test_that_is_slower_is_stopped_and_told_why(self, repository):
        found = gate_demo.gate(repository, "slower", policy="quick")
        assert found.code == 1, found.output
        assert "### tfbench: regressed" in found.comment
        assert "`benchmarks/test_model.py::test_stack`" in found.comment
        assert "MatMul" in found.comment  # the cause
        assert "a second job says" in found.comment
        assert "::error file=benchmarks/test_model.py,line=6,title=regressed" in found.output
        assert "### tfbench: regressed" in found.summary

    def test_that_is_equal_passes(self, repository):
        # What a busy machine leaves open is no failure of the steps.
        found = gate_demo.gate(repository, "equal", policy="quick", strict="false")
        assert found.code == 0, found.output
        assert "### tfbench: pass" in found.comment or "### tfbench: inconclusive" in found.comment

    def test_whose_benchmark_crashes_is_an_error_and_no_regression(self, repository):
        found = gate_demo.gate(repository, "crashing", policy="quick")
        assert found.code == 5, found.output
        assert "no_such_function" in found.output
        assert "### tfbench: error" in found.comment
        assert "regressed" not in found.comment

    def test_that_deletes_a_benchmark_is_stopped(self, repository):
        found = gate_demo.gate(repository, "deleting", policy="quick")
        assert found.code == 4, found.output
        assert "missing" in found.comment
        assert "test_scale" in found.comment
        forgiving = gate_demo.gate(repository, "deleting", policy="quick", strict="false")  # of what is open
        assert forgiving.code == 4

    def test_that_renames_a_benchmark_passes_and_the_old_name_is_told(self, repository):
        found = gate_demo.gate(repository, "renaming", policy="quick", strict="false")
        assert found.code == 0, found.output
        report = json.loads((repository / "tfbench-report" / "report.json").read_text())
        reasons = {row["case"]: row["reason"]["message"] for row in report["verdicts"] if row["metric"] == "time"}
        assert (
            "it is called benchmarks/test_model.py::test_scale there"
            in reasons["benchmarks/test_model.py::test_scaling"]
        )
