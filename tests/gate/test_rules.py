"""The gate: what is known counts, and nothing passes because something was missing."""

import pytest

from tfbench.gate.rules import Gate, rule
from tfbench.model import Case, Outcome, Reason, Report, Verdict


def report(*outcomes, interrupted=False):
    verdicts = tuple(
        Verdict(Case(f"f.py::t{number}", "t", "t"), Outcome(outcome), Reason("x", "why"))
        for number, outcome in enumerate(outcomes)
    )
    return Report({"name": "standard"}, {}, verdicts, interrupted=interrupted)


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
def test_the_gravest_counts(outcomes, gate):
    assert rule(report(*outcomes)).gate is gate


def test_the_exit_codes_are_those_that_are_promised():
    assert [int(gate) for gate in Gate] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("outcomes", [["unchanged"], [], ["inconclusive"]])
def test_an_interrupted_run_does_not_pass(outcomes):
    assert rule(report(*outcomes, interrupted=True)).gate is Gate.ERROR


def test_what_an_interrupted_run_found_is_told():
    assert rule(report("regressed", interrupted=True)).gate is Gate.REGRESSED


def test_it_says_what_and_which():
    decision = rule(report("unchanged", "inconclusive", "regressed"))
    assert decision.because == "1 regressed, 1 inconclusive"
    assert [verdict.outcome.value for verdict in decision.verdicts] == ["regressed", "inconclusive"]
    assert "--baseline NAME" in rule(report("new")).because
    assert "nothing was measured" in rule(report()).because
