"""The registry of metrics: one object is enough to extract, compare and report a metric."""

import json
from pathlib import Path

import pytest

from tests.fakes.report import judged
from tests.session.test_metric_checks import Prober
from tfbench.metrics import catalog
from tfbench.metrics.catalog import PROBED, Metric, Worse, read
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import Case, Outcome, Reason, Report, Run, Sample
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.report import json_format
from tfbench.session.request import CaseResult
from tfbench.session.results import BaselineValues, MetricChecker
from tfbench.sides.spec import Side

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
SOFTMAXES = Metric(
    "softmaxes", Worse.MORE, "graph", lambda launch: [node["op"] for node in launch.executed].count("Softmax")
)


def launch(*ops):
    nodes = [{"name": f"n{index}", "op": op} for index, op in enumerate(ops)]
    return ProbeOutput({"graph": {"optimized": [nodes], "executed": [nodes], "onednn": False}}, {})


def test_a_metric_defined_by_one_object_is_extracted_compared_and_reported(monkeypatch):
    monkeypatch.setattr(catalog, "PROBED", (*PROBED, SOFTMAXES))
    assert read(launch("MatMul", "Softmax")).value("softmaxes") == 1
    assert read(ProbeOutput({}, {"graph": "an eager op"})).absent["softmaxes"] == "an eager op"

    here, there = Side("contender", "python", Path("/")), Side("baseline", "python", Path("/"))
    timed = CaseResult(CASE, judged(CASE, Outcome.UNCHANGED, Reason("x", "x")), sample=Sample(CASE, (Run((1.0,), 1),)))
    probes = {"baseline": launch("Softmax"), "contender": launch("Softmax", "Softmax")}
    checker = MetricChecker(Prober(probes), preset("standard"), [CASE], 1)
    rows = checker.checked(timed, here, BaselineValues(entrant=Entrant(CASE, there))).metrics
    report = json_format.render(Report(preset("standard").as_json(), {}, (timed.verdict, *rows)))
    (row,) = (row for row in json.loads(report)["verdicts"] if row["metric"] == "softmaxes")
    assert row["outcome"] == "regressed"
    assert row["reason"]["message"] == "1 before, 2 now"
    assert (*next(v for v in json_format.read(report, "r.json").verdicts if v.metric == "softmaxes").values,) == (1, 2)


@pytest.mark.parametrize("metric", PROBED, ids=lambda metric: metric.name)
def test_every_metric_is_in_the_documentation(metric):
    table = Path(__file__).parents[2].joinpath("docs", "metrics.md").read_text()
    assert f"`{metric.name}`" in table


def test_a_launch_without_evidence_says_why_for_every_metric():
    values = read(ProbeOutput({}, {"graph": "an eager op"}))
    assert set(values.absent) == {metric.name for metric in PROBED}
    assert values.absent["casts"] == "an eager op"
    assert values.absent["accuracy"] == "the benchmark does not report it"


def test_leaks_keep_the_number_of_calls_over_which_they_were_measured():
    assert read(ProbeOutput({"leaks": {"bytes": 1024.0, "calls": 200}}, {})).value("leak_calls") == 200
