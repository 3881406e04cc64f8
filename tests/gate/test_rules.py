"""The gate: a known regression counts, and missing data never counts as a pass."""

import datetime
from dataclasses import replace

import pytest

from tests.fakes.report import complete
from tfbench.gate.accepted import Accepted, Entry
from tfbench.gate.rules import Gate, rule
from tfbench.metrics.catalog import DECISIVE
from tfbench.model import Case, Outcome, Reason, ReasonCode, Skip, SuiteVerdict, Verdict


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


def with_same_code(compared, same):
    case = Case("f.py::same", "same", "same")
    spared = [
        Verdict(replace(case, name=f"{case.name}{number}"), Outcome.NEW, Reason(ReasonCode.SAME_CODE, "why"))
        for number in range(same)
    ]
    return complete((*report(*compared).verdicts, *spared))


def test_cases_that_run_the_same_code_pass_beside_one_that_was_raced():
    decision = rule(with_same_code(["unchanged"], 9))
    assert (decision.gate, decision.because) == (Gate.PASS, "1 unchanged, 9 same code")
    assert rule(with_same_code([], 9)).gate is Gate.INCOMPARABLE
    assert rule(with_same_code(["regressed"], 9)).gate is Gate.REGRESSED
    assert rule(with_same_code(["unchanged", *["new"] * 9], 3)).gate is Gate.INCOMPARABLE


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


SHARD = {"index": 1, "of": 2}


@pytest.mark.parametrize(
    ("found", "gate", "because"),
    [
        (report("unchanged", "new", "improved"), 0, "1 unchanged, 1 improved, 1 new"),
        (report("unchanged", interrupted=True), 5, "the run was interrupted, so its other cases are unknown"),
        (report("unchanged", shard=SHARD), 5,
         "the report is shard 1 of 2 alone; combine the shards with tfbench merge"),
        (report("unchanged", complete=False), 5, "the report cannot be used: the run did not come to its end"),
        (report(), 4, "no case was measured: run with --baseline NAME or --against SPEC"),
        (report("new", "new"), 4, "2 cases measured, none compared: run with --baseline NAME or --against SPEC"),
        (report("unchanged", "new", "new"), 4,
         "only 1 of 3 cases were compared (1 unchanged, 2 new); if that is meant, lower --min-compared 0.5"),
    ],
)  # fmt: skip
def test_a_decision_states_its_reason(found, gate, because):
    decision = rule(found)
    assert (decision.gate, decision.because) == (gate, because)


def test_what_prevents_a_pass_is_counted_and_kept():
    decision = rule(report("unchanged", "missing", "error"))
    assert (decision.gate, decision.because) == (Gate.ERROR, "1 missing, 1 error")
    (row,) = rule(report("unchanged", "inconclusive", interrupted=True)).verdicts
    assert row.outcome is Outcome.INCONCLUSIVE


def test_skipped_cases_are_counted():
    skips = [Skip(Case(name, "s", name), "no GPU") for name in ("f.py::s0", "f.py::s1")]
    rows = report("unchanged", "unchanged").verdicts
    assert rule(complete(rows, skips)).because == "2 unchanged, 2 skipped"
    assert rule(complete([], skips)).because.startswith("no case was measured, 2 skipped: run with")
    few = rule(complete(rows[:1], skips)).because
    assert few.startswith("only 1 of 3 cases were compared (1 unchanged, 2 skipped); if")


@pytest.mark.parametrize(("compared", "gate"), [(1, Gate.INCOMPARABLE), (2, Gate.PASS)])
def test_half_of_the_cases_suffices_by_default(compared, gate):
    assert rule(report(*["unchanged"] * compared, *["new"] * (4 - compared))).gate is gate


def test_an_open_metric_other_than_time_does_not_fail_the_gate():
    good = report("unchanged")
    found = {
        metric: rule(
            replace(good, verdicts=(*good.verdicts, replace(row, metric=metric, outcome=Outcome.INCONCLUSIVE)))
        ).gate
        for row in good.verdicts
        for metric in ("graph_ops", "peak_host_memory")
    }
    assert found == {metric: Gate.INCONCLUSIVE if metric in DECISIVE else Gate.PASS for metric in found}


def test_an_expired_acceptance_is_named_beside_the_counts():
    decision = rule(report("unchanged"), Accepted(problems=("a", "b")))
    assert (decision.gate, decision.because) == (Gate.ERROR, "1 unchanged; 2 expired or unused acceptances")
    assert decision.accepted.problems == ("a", "b")
    assert rule(report("regressed"), Accepted(problems=("a",))).because == "1 regressed"


def test_an_acceptance_applies_to_its_case_and_metric_only():
    first, second = report("regressed", "unchanged"), report("regressed", "unchanged")
    entry = Entry("f.py::t0", "agreed", datetime.date(2027, 1, 31))
    accepted = Accepted(((first.verdicts[0], entry),))
    assert rule(second, accepted).gate is Gate.PASS  # an equal row of another object
    other_metric = replace(second.verdicts[0], metric="graph_ops")
    assert rule(replace(second, verdicts=(*second.verdicts, other_metric)), accepted).gate is Gate.REGRESSED


@pytest.mark.parametrize(
    ("suite", "outcomes", "gate"),
    [
        ("unchanged", ["unchanged"], Gate.PASS),
        ("improved", ["unchanged"], Gate.PASS),
        ("regressed", ["unchanged"], Gate.REGRESSED),
        ("regressed", ["error"], Gate.REGRESSED),
        ("inconclusive", ["unchanged"], Gate.INCONCLUSIVE),
        ("inconclusive", ["missing"], Gate.INCOMPARABLE),
        ("incomparable", ["inconclusive"], Gate.INCOMPARABLE),
        ("error", ["inconclusive"], Gate.ERROR),
        ("unchanged", ["regressed"], Gate.REGRESSED),
    ],
)
def test_the_verdict_on_the_mean_of_the_suite_counts_too(suite, outcomes, gate):
    verdict = SuiteVerdict(0.005, Outcome(suite), Reason("x", "the mean is so"), 3)
    decision = rule(report(*outcomes, suite=verdict))
    assert decision.gate is gate
    if outcomes == ["unchanged"] and gate is not Gate.PASS:
        assert decision.because == f"the suite is {suite}: the mean is so"
