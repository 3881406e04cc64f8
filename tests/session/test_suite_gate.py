"""The verdict on the mean of all cases, with scripted races."""

from types import SimpleNamespace

import pytest

from tfbench.errors import SideError
from tfbench.model import Case, Outcome, Ratio, Reason, ReasonCode, Sample, Verdict
from tfbench.policy import Policy
from tfbench.session.request import CaseResult
from tfbench.session.suite_gate import SuiteGate

CASES = [Case(f"t.py::test_{number}", f"test_{number}", f"t.py::test_{number}") for number in range(12)]


def ratio(center):
    return Ratio(center, center * 0.996, center * 1.004, 0.99)


def result(case, center, raced=True):
    verdict = Verdict(case, Outcome.UNCHANGED, Reason(ReasonCode.WITHIN_TOLERANCE, ""), ratio=ratio(center))
    return CaseResult(case, verdict, rival=Sample(case, ()) if raced else None)


def centers(mean):
    return [mean * (1.0005 if number % 2 else 0.9995) for number in range(len(CASES))]


def judged(first, second=None, again=None, limit=0.005, policy=None):
    raced = []

    def once_more(case, entrant):
        raced.append(case)
        return again(case) if again else ratio(second[CASES.index(case)])

    races = SimpleNamespace(again=once_more)
    strategy = SimpleNamespace(rival_entrant=lambda case: "entrant")
    gate = SuiteGate(limit, policy or Policy(), races, strategy)
    return gate.verdict([result(case, center) for case, center in zip(CASES, first, strict=True)]), raced


def test_an_unchanged_suite_is_not_raced_again():
    verdict, raced = judged(centers(1.0))
    assert (verdict.outcome, verdict.cases, raced) == (Outcome.UNCHANGED, 12, [])
    assert "the mean of 12 cases is" in verdict.reason.message


def test_a_slowdown_that_no_case_shows_is_found_and_confirmed():
    verdict, raced = judged(centers(1.006), centers(1.006))
    assert (verdict.outcome, raced) == (Outcome.REGRESSED, CASES)
    assert verdict.reason.code == ReasonCode.SLOWER
    assert "found twice" in verdict.reason.message


def test_a_slowdown_that_fresh_launches_do_not_confirm_is_inconclusive():
    verdict, _ = judged(centers(1.006), centers(1.0))
    assert (verdict.outcome, verdict.reason.code) == (Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED)


def test_all_cases_are_raced_again_until_their_mean_decides():
    scattered = [1.004 + (0.002 if number % 2 else -0.002) for number in range(len(CASES))]
    verdict, raced = judged(centers(1.006), scattered)
    assert verdict.outcome is Outcome.REGRESSED
    passes, rest = divmod(len(raced), len(CASES))
    assert (2 <= passes < Policy().suite_passes, rest) == (True, 0)
    assert f"the mean of 12 cases, raced again {passes} times, is +0.40%" in verdict.reason.message


def test_passes_that_decide_nothing_end():
    scattered = [1.0035 + (0.006 if number % 2 else -0.006) for number in range(len(CASES))]
    verdict, raced = judged(centers(1.006), scattered)
    assert (verdict.outcome, verdict.reason.code) == (Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED)
    assert len(raced) == Policy().suite_passes * len(CASES)


def test_a_policy_without_confirmation_takes_the_first_answer():
    verdict, raced = judged(centers(1.006), policy=Policy(confirm=False))
    assert (verdict.outcome, raced) == (Outcome.REGRESSED, [])


def test_an_improvement_needs_no_second_race():
    verdict, raced = judged(centers(0.99))
    assert (verdict.outcome, raced) == (Outcome.IMPROVED, [])


def test_cases_that_cannot_be_raced_again_confirm_nothing():
    verdict, _ = judged(centers(1.006), again=lambda case: None)
    assert (verdict.outcome, verdict.reason.code) == (Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED)


def test_a_side_that_breaks_is_an_error():
    def broken(case):
        raise SideError("the side does not start")

    verdict, _ = judged(centers(1.006), again=broken)
    assert (verdict.outcome, verdict.reason.message) == (Outcome.ERROR, "the side does not start")


def test_ctrl_c_is_passed_on():
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(centers(1.006), again=interrupted)


def test_without_two_raced_cases_there_is_no_mean():
    gate = SuiteGate(0.005, Policy(), SimpleNamespace(), SimpleNamespace())
    verdict = gate.verdict([result(CASES[0], 1.0), result(CASES[1], 1.0, raced=False), CaseResult(CASES[2], skip="no")])
    assert (verdict.outcome, verdict.reason.code) == (Outcome.INCOMPARABLE, ReasonCode.FEW_CASES)
