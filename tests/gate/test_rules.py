"""The gate: a known regression counts, and missing data never counts as a pass."""

import datetime
from dataclasses import replace

import pytest

from tests.fakes.report import complete
from tfbench.gate.accepted import Accepted, Entry
from tfbench.gate.rules import Gate, rule
from tfbench.model import Case, Outcome, Reason, Verdict


def report(*outcomes, **changes):
    verdicts = tuple(
        Verdict(Case(f"f.py::t{number}", "t", "t"), Outcome(outcome), Reason("x", "why"))
        for number, outcome in enumerate(outcomes)
    )
    return complete(verdicts, **changes)


@pytest.mark.parametrize(
    ("outcomes", "gate"),
    [
        (["unchanged"], Gate.PASS),
        (["unchanged", "improved", "new"], Gate.PASS),
        (["unchanged", "regressed"], Gate.REGRESSED),
        (["error", "regressed", "inconclusive"], Gate.REGRESSED),
        (["unchanged", "inconclusive"], Gate.INCONCLUSIVE),
        (["inconclusive", "incomparable"], Gate.INCOMPARABLE),
        (["unchanged", "missing"], Gate.INCOMPARABLE),
        (["error", "missing", "unchanged"], Gate.ERROR),
        (["new", "new"], Gate.INCOMPARABLE),
        ([], Gate.INCOMPARABLE),
    ],
)
def test_the_most_severe_outcome_counts(outcomes, gate):
    assert rule(report(*outcomes)).gate is gate


def test_the_exit_codes_are_the_documented_ones():
    assert [int(gate) for gate in Gate] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("outcomes", [["unchanged"], [], ["inconclusive"]])
def test_an_interrupted_run_does_not_pass(outcomes):
    assert rule(report(*outcomes, interrupted=True)).gate is Gate.ERROR


def test_an_interrupted_run_still_reports_a_regression():
    assert rule(report("regressed", interrupted=True)).gate is Gate.REGRESSED


def test_a_decision_has_counts_and_verdicts():
    decision = rule(report("unchanged", "inconclusive", "regressed"))
    assert decision.because == "1 regressed, 1 inconclusive"
    assert [verdict.outcome.value for verdict in decision.verdicts] == ["regressed", "inconclusive"]
    assert "--baseline NAME" in rule(report("new")).because
    assert "no case was measured" in rule(report()).because


def test_an_acceptance_applies_to_its_case_and_metric_only():
    first, second = report("regressed", "unchanged"), report("regressed", "unchanged")
    entry = Entry("f.py::t0", "agreed", datetime.date(2027, 1, 31))
    accepted = Accepted(((first.verdicts[0], entry),))
    assert rule(second, accepted).gate is Gate.PASS  # an equal row of another object
    other_metric = replace(second.verdicts[0], metric="graph_ops")
    assert rule(replace(second, verdicts=(*second.verdicts, other_metric)), accepted).gate is Gate.REGRESSED
