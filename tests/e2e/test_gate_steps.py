"""The step of action.yml on two of the pull requests of `gate_demo`, with real TensorFlow."""

import pytest

from tests.e2e import gate_demo
from tests.e2e.project import forks
from tests.fakes import preloaded


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_gate_fails_a_slower_change_with_its_cause_and_a_deleted_benchmark(tmp_path, monkeypatch):
    monkeypatch.setenv(preloaded.VARIABLE, forks().preloaded)
    root = tmp_path / "repository"
    gate_demo.build(root)
    found = gate_demo.gate(root, "slower", cheap=True, policy="quick")
    assert found.code == 1, found.output
    assert "### tfbench: failed, regressed" in found.comment
    assert "`benchmarks/test_model.py::test_stack`" in found.comment
    assert "MatMul" in found.comment  # the cause
    assert "::error file=benchmarks/test_model.py,line=6,title=regressed" in found.output
    assert "### tfbench: regressed" in found.summary
    found = gate_demo.gate(root, "deleting", cheap=True, policy="quick", strict="false")  # of what is open
    assert found.code == 4, found.output
    assert "missing" in found.comment
    assert "test_scale" in found.comment
