"""Metrics that are counted on two sides."""

from pathlib import Path

import pytest

from tests.session.test_metric_checks import Prober
from tfbench.errors import BenchmarkError
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import Case, Outcome, Ratio
from tfbench.policy import Policy
from tfbench.race.launch import Entrant
from tfbench.sides.spec import Side
from tfbench.versions.changes import counted

CASE = Case("w.py::w", "w", "w.py::w")
BEFORE, NOW = (Entrant(CASE, Side(name, "python", Path("/"))) for name in ("good", "bad"))


def launch(*ops):
    nodes = [{"name": f"{op}_{i}", "op": op, "inputs": [], "fused": [], "types": {}} for i, op in enumerate(ops)]
    graph = {"optimized": [nodes], "executed": [nodes], "onednn": False}
    return ProbeOutput({"graph": graph}, {})


def found(before, now, metric="graph_ops"):
    return counted(Prober({"good": before, "bad": now}), Policy(), metric, BEFORE, NOW)


def test_more_ops_are_a_regression_with_their_ratio():
    one = found([launch("MatMul")] * 3, [launch("MatMul", "Sum", "Mul")] * 3)
    assert (one.outcome, one.ratio, one.launches) == (Outcome.REGRESSED, Ratio(3.0, 3.0, 3.0, 1.0), 3)
    assert one.reason == "1 before, 3 now: gained Mul, Sum"
    assert found([launch("MatMul")] * 3, [launch("MatMul")] * 3).outcome is Outcome.UNCHANGED


def test_a_change_within_the_tolerance_has_no_ratio():
    kinds = ("bytes", "resident_bytes", "objects", "threads", "files", "traces")
    launches = [[ProbeOutput({"leaks": dict.fromkeys(kinds, growth)}, {})] * 3 for growth in (0.1, 0.3)]
    one = found(*launches, "leaked_objects")
    assert (one.outcome, one.ratio) == (Outcome.UNCHANGED, None)
    assert one.reason == "0.1 before, 0.3 now: within the tolerance"


def test_launches_of_a_side_that_disagree_decide_nothing():
    other = [launch("Sum"), launch("MatMul"), launch("Sum")]
    assert found([launch("MatMul")] * 3, other).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_that_breaks_is_named(side):
    sides = [[launch("MatMul")] * 3, [launch("MatMul")] * 3]
    sides[side] = [BenchmarkError("it raised")] * 3
    assert list(found(*sides).failures) == [side]


@pytest.mark.parametrize(("metric", "why"), [("accuracy", "neither side reports accuracy"), ("graph_ops", "")])
def test_what_a_side_does_not_report_is_inconclusive(metric, why):
    one = found([launch("MatMul")] * 3, [ProbeOutput({}, {})] * 3, metric)
    assert (one.outcome, one.failures) == (Outcome.INCONCLUSIVE, {})
    assert one.reason.startswith(why)
