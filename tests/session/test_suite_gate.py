"""The verdict on the mean of all cases, with scripted races."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.fakes.report import judged as of_time
from tfbench.errors import SideError
from tfbench.model import Case, Outcome, Ratio, Reason, ReasonCode, Run, Sample
from tfbench.policy import Policy
from tfbench.session.request import CaseResult
from tfbench.session.session import SuiteGate

CASES = [Case(f"t.py::test_{number}", f"test_{number}", f"t.py::test_{number}") for number in range(12)]


def ratio(center):
    return Ratio(center, center * 0.996, center * 1.004, 0.99)


def result(case, ratio, raced=True):
    verdict = of_time(case, Outcome.UNCHANGED, Reason(ReasonCode.WITHIN_TOLERANCE, ""), ratio=ratio)
    return CaseResult(
        case, verdict, sample=Sample(case, (Run((1e-3,), 1),)), baseline=Sample(case, ()) if raced else None
    )


def centers(mean):
    return [mean * (1.0005 if number % 2 else 0.9995) for number in range(len(CASES))]


def scattered(mean, by):
    return [mean + (by if number % 2 else -by) for number in range(len(CASES))]


def judged(first, second=None, again=None, more=None, limit=0.005, policy=None):
    """Returns the verdict and the cases that were raced again.

    Args:
        first: Centers of the cases' ratios.
        second: Centers in the races that confirm a slower mean.
        more: Centers in the races that continue the first ones.
        again: Function that returns the ratio of a case instead of these two.
    """
    raced = []

    def once_more(case, entrant, confirms):
        raced.append(case)
        return again(case) if again else ratio((second if confirms else more)[CASES.index(case)])

    races = SimpleNamespace(again=once_more)
    strategy = SimpleNamespace(baseline_entrant=lambda case: "entrant", is_gated=lambda case: not case.ungated)
    gate = SuiteGate(limit, policy or Policy(), races, strategy)
    return gate.judge([result(case, ratio(center)) for case, center in zip(CASES, first, strict=True)]), raced


OPEN = scattered(1.0035, 0.006)


@pytest.mark.parametrize(
    ("given", "outcome", "code", "raced", "said"),
    [
        ({"first": centers(1.0)}, "unchanged", None, 0, "the mean of 12 cases is"),
        ({"first": centers(1.006), "second": centers(1.006)}, "regressed", "SLOWER", 1, "found twice"),
        ({"first": centers(1.006), "second": centers(1.0)}, "inconclusive", "NOT_CONFIRMED", 1, ""),
        ({"first": centers(1.006), "second": OPEN}, "inconclusive", "NOT_CONFIRMED", Policy().suite_passes, ""),
        ({"first": scattered(1.003, 0.003), "more": centers(1.0)}, "unchanged", None, 1,
         "the mean of 12 cases, raced again 1 time, is +0.15%"),
        ({"first": OPEN, "more": OPEN}, "inconclusive", "NOT_DECIDED", Policy().suite_passes, ""),
        ({"first": OPEN, "again": lambda case: None}, "inconclusive", "NOT_DECIDED", 1, ""),
        ({"first": centers(1.006), "again": lambda case: None}, "inconclusive", "NOT_CONFIRMED", 1, ""),
        ({"first": centers(1.006), "policy": Policy(confirm=False)}, "regressed", None, 0, ""),
        ({"first": OPEN, "policy": Policy(confirm=False)}, "inconclusive", None, 0, ""),
        ({"first": centers(0.99)}, "improved", None, 0, ""),
    ],
)  # fmt: skip
def test_the_mean_is_raced_again_until_it_is_decided_and_before_a_slower_one_fails(given, outcome, code, raced, said):
    verdict, again = judged(**given)
    assert (verdict.outcome, verdict.cases, again) == (Outcome(outcome), 12, CASES * raced)
    assert code is None or verdict.reason.code == ReasonCode[code]
    assert said in verdict.reason.message


def test_a_side_that_breaks_is_an_error_and_ctrl_c_is_passed_on():
    def broken(case):
        raise error

    error = SideError("the side does not start")
    verdict, _ = judged(centers(1.006), again=broken)
    assert (verdict.outcome, verdict.reason.message) == (Outcome.ERROR, "the side does not start")
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        judged(centers(1.006), again=broken)


def test_without_two_raced_cases_there_is_no_mean():
    gate = SuiteGate(0.005, Policy(), SimpleNamespace(), SimpleNamespace(is_gated=lambda case: not case.ungated))
    shown = replace(CASES[3], ungated="a prototype")
    verdict = gate.judge(
        [result(CASES[0], ratio(1.0)), result(CASES[1], ratio(1.0), raced=False), CaseResult(CASES[2], skip="no"),
         result(shown, ratio(9.0))]
    )  # fmt: skip
    assert (verdict.outcome, verdict.reason.code) == (Outcome.INCOMPARABLE, ReasonCode.FEW_CASES)
    assert verdict.cases == 1
