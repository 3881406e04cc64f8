"""What changed in a case between the reference and other sides, from a scripted race and scripted probes."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.race import Clock, ScriptedLauncher, steady
from tests.fakes.report import judged, variant
from tests.session.test_metric_checks import Prober
from tests.versions.test_difference import launch
from tfbench.metrics.parity import Output, ProbeOutput
from tfbench.model import TIME, Both, Case, Claim, Outcome, Ratio, Reason
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.race.race import Race, RaceConfig
from tfbench.report import markdown, terminal
from tfbench.report.summary import Group, summarize
from tfbench.ruling import Result, decided
from tfbench.session.profiling import Answer, Explainer
from tfbench.sides.spec import Side
from tfbench.versions import changes, matrix
from tfbench.versions.changes import CaseChange, ChangeFinder
from tfbench.versions.matrix import Matrix, Row, Untimed

CASE = Case("w.py::test_w[a=b]", "test_w", "w.py::test_w")
SIDES = [Side(name, "python", Path("/"), name) for name in ("2.20", "2.21")]
POLICY = preset("quick")
RATIO = Ratio(1.5, 1.4, 1.6, 0.95)


@pytest.fixture
def found(monkeypatch):
    """Race a case and find its changes, with a factor of the time and the ops of both sides."""

    def find(factor, before, now, causes=None):
        made = [given if isinstance(given, ProbeOutput) else launch(*given) for given in (before, now)]
        prober = Prober({"2.20": made[0], "2.21": made[1]})
        monkeypatch.setattr(changes, "Prober", lambda launcher, policy: prober)
        launcher = ScriptedLauncher(Clock(), [steady(1e-4, 0.004), steady(1e-4 * factor, 0.004)], seed=1)
        race = Race([Entrant(CASE, side) for side in SIDES], launcher, POLICY, RaceConfig(1, range(3)), launcher.clock,
                    random.Random(1))  # fmt: skip
        race.run()
        return *ChangeFinder(launcher, POLICY, 1, causes)(race), len(prober.asked)

    return find


def test_the_same_code_has_no_changes_and_one_probe_a_side(found):
    assert found(1.0, ["Mul"], ["Mul"]) == ([], [], 2)


def test_time_and_graph_are_told_with_their_values(found):
    changed, notes, probed = found(1.5, ["Mul"], ["Mul", "Cast", "Sum"])
    assert not notes
    assert probed == 2 * POLICY.probe_launches  # a count that differs is read again
    time, ops, *_ = changed
    assert (time.verdict.metric, time.kind, time.verdict.outcome) == (TIME, "time", Outcome.REGRESSED)
    before, now = time.verdict.values
    assert now / before == pytest.approx(1.5, rel=0.05)
    assert (ops.verdict.metric, ops.kind, ops.verdict.values) == ("graph_ops", "graph", Both(1, 3))
    assert not time.cause  # nothing looks for causes
    assert ops.cause == "graph: 1 op before, 3 now; gained Cast, Sum"


def leaking(growth, *sketch):
    """Return a launch of a step that leaks so many bytes a call, with the norm and sum of its result."""
    made = launch("Mul")
    outputs = [Output(np.array(sketch, dtype=np.float64))] if sketch else []
    return replace(made, found={**made.found, "leaks": {"bytes": growth, "calls": 50}}, results=outputs)


def test_a_contract_that_the_other_side_breaks_and_another_result_are_told(found, monkeypatch):
    leak_free = Claim("no_leak", "bytes", (), 0.0, "leaks", ("bytes",))
    monkeypatch.setattr(f"{__name__}.CASE", replace(CASE, claims=(leak_free,)))
    changed, *_ = found(1.0, leaking(0, 1.0, 2.0), leaking(4096, 1.0, 3.0))
    told = {change.kind: change.verdict for change in changed}
    assert told["contract"].metric == "contract:no_leak"
    assert "the process grows with every call" in told["contract"].reason.message
    assert "differs from the reference's result" in told["result"].reason.message
    for before, now in [((4096, 1.0), (4096, 1.0)), ((4096, 1.0), (0, 1.0))]:
        changed, *_ = found(1.0, leaking(*before), leaking(*now))
        assert not {"contract", "result"} & {change.kind for change in changed}


def test_an_op_that_another_one_replaces_is_a_change_of_the_graph(found):
    changed, *_ = found(1.0, ["MatMul"], ["BatchMatMulV2"])
    assert [(change.verdict.metric, change.verdict.ratio) for change in changed] == [("graph_ops", None)]
    assert changed[0].cause == "graph: 1 op before, 1 now; lost MatMul; gained BatchMatMulV2"


def test_each_kind_of_change_has_the_first_line_of_its_cause(found, monkeypatch):
    monkeypatch.setattr(Explainer, "explain", lambda *given: Answer(["op: Cast +1 ms", "more"]))
    changed, *_ = found(1.5, ["Mul"], ["Mul", "Cast", "Sum"], Explainer(None, POLICY))
    causes = ["op: Cast +1 ms", "graph: 1 op before, 3 now; gained Cast, Sum"]
    assert [change.cause for change in changed[:2]] == causes


def change(metric, *values, outcome=Outcome.REGRESSED, ratio=None, cause=""):
    reason = Reason("slower", " -> ".join(map(str, values)))
    return CaseChange("2.21", judged(CASE, outcome, reason, metric, ratio, values=values), cause)


def made(*changes, entry=None, outcome=Outcome.REGRESSED, case=CASE):
    """Return a matrix of one case on two sides."""
    first, second = (
        variant(case, case.name, 0.1, RATIO if n else None, outcome if n else None, 6, 9, {}) for n in (0, 1)
    )
    timed = {} if entry else {"2.21": judged(case, outcome, Reason("slower", "50% slower"), TIME, RATIO)}
    about = {name: {"spec": f"tensorflow=={name}.0", "import_seconds": None} for name in ("2.20", "2.21")}
    return Matrix(about, (Row(case, (first, entry or second), timed, changes),), 1.0)


CHANGES = (
    change("time", 0.1, 0.15, ratio=RATIO, cause="op: SelectV2"),
    change("leaked_bytes", 0, 4096, cause="step.py:3 allocates"),
    change("graph_ops", 4, 4, outcome=Outcome.INCONCLUSIVE, cause="graph: lost Add; gained Mul"),
    change("fused_ops", 2, 2, outcome=Outcome.INCONCLUSIVE, cause="graph: lost Add; gained Mul"),
)


def test_each_version_has_a_report_with_its_findings_and_their_causes():
    both = made(*CHANGES)
    (report,) = matrix.reports(both, POLICY.as_json()).values()
    assert not report.gap
    (finding,) = summarize(report).findings[Group.REGRESSIONS]
    leak = "leaked_bytes: 0 -> 4096; step.py:3 allocates"
    assert finding.why == ["op: SelectV2", "graph: lost Add; gained Mul", leak]
    assert finding.again == ("tfbench", "versions", "tensorflow==2.20.0", "tensorflow==2.21.0", CASE.name)
    shown = terminal.render(report, width=80, colour=False)
    page = markdown.render(report)
    for text in finding.why[:2]:
        assert text in shown
        assert markdown.plain(text) in page
    content = matrix.as_json(both, POLICY.as_json())
    assert content["cases"][0]["changes"][0]["cause"] == "op: SelectV2"
    assert json.dumps(content)


def test_a_case_that_is_not_gated_fails_no_comparison_of_versions():
    (report,) = matrix.reports(made(*CHANGES, case=replace(CASE, ungated="a study")), POLICY.as_json()).values()
    assert decided(report).ruling.result is Result.PASS
    (finding,) = summarize(report).findings[Group.UNGATED]
    assert finding.verdict.reason.message.startswith("shown and not gated (a study): 50% slower")
    assert {str(row.outcome) for row in finding.others} == {"ungated"}


def test_the_table_has_the_time_on_the_reference_and_ratios_with_their_verdicts():
    table = matrix.side_by_side(made())
    assert table.labels == ["2.20", "2.21"]
    assert table.rows == [[CASE.name, "100 ms", "1.500 (1.400 to 1.600) slower"]]
    (row,) = matrix.side_by_side(made(outcome=Outcome.UNCHANGED)).rows
    assert row[-1] == "1.500 (1.400 to 1.600)"


@pytest.mark.parametrize(("skipped", "code"), [(True, Result.INCOMPARABLE), (False, Result.ERROR)])
def test_a_case_without_a_time_on_a_side_has_the_reason_in_its_report(skipped, code):
    broken = made(entry=Untimed("broke", "SIGABRT", skipped=skipped))
    (report,) = matrix.reports(broken, POLICY.as_json()).values()
    assert not report.gap
    assert "broke: SIGABRT" in terminal.render(report, width=80, colour=False)
    assert "broke: SIGABRT" in markdown.render(report)
    assert matrix.side_by_side(broken).rows[0][-1] == "broke"
    assert decided(report).ruling.result is code


def test_sides_without_an_environment_are_made_first_so_that_a_misspelt_one_is_known_at_once():
    labels, made = ["2.20.0", "git:main", "self", "2.21.0"], []

    def make(spec, name):
        made.append(spec)
        return Side(name, "python", Path("/"), spec)

    assert [side.name for side in matrix.sides_of(labels, make)] == labels
    assert made == ["git:main", "2.20.0", "2.21.0"]
