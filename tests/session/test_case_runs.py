"""The states of a case, and what is kept when something fails on the way."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.fakes.report import judged, variant
from tfbench.errors import SideError
from tfbench.model import Case, Outcome, Reason, Run, Sample, Verdict
from tfbench.session.request import CaseResult, RunProgress
from tfbench.session.session import CaseRuns

A, B = (Case(f"w.py::w[a={level}]", "w", "w.py::w", (("a", level),), level == "x") for level in "xy")
OTHER = Case("w.py::other", "other", "w.py::other")
CASES = (A, OTHER, B)


def verdict(case, outcome=Outcome.UNCHANGED, metric="time"):
    return judged(case, outcome, Reason("code", "text"), metric)


def raced(case, outcome=Outcome.UNCHANGED):
    variant_result = variant(case, A.name, 1e-3, None, None, 1, 1)
    sample = Sample(case, (Run((1e-3,), 1),))
    return CaseResult(case, verdict(case, outcome), sample=sample, variant_result=variant_result)


class Strategy:
    """Settles all cases of a group at once, unless its answers say something else."""

    def __init__(self, races=None):
        self.races = races or {}
        self.asked = []

    def skipped(self, case, reason, mark=False):
        return CaseResult(case, skip=reason)

    def group_of(self, case):
        return case.group

    def race(self, case, group):
        self.asked.append(case)
        answer = self.races.get(case.name, [raced(one) for one in group])
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Journal:
    """Collects the results that it has to keep."""

    def __init__(self, earlier=None):
        self.earlier = earlier or {}
        self.kept, self.notes = [], []

    def keep(self, result):
        self.kept.append(result)


def case_runs(strategy, steps=None, skips=None, earlier=None, cases=CASES, leave=lambda env: None, journal=None):
    reporter = RunProgress(lambda now: None, len(cases))
    launcher = SimpleNamespace(leave=leave, stopwatch=SimpleNamespace(seconds_of_cases=0.0))
    journal = journal or Journal(earlier)
    return CaseRuns(cases, skips or {}, strategy, steps or {}, reporter, journal, launcher)


def add_row(metric):
    def step(result, measured):
        return replace(result, metrics=(*result.metrics, verdict(result.case, metric=metric)))

    return step


def fail(error):
    def step(result, measured):
        raise error

    return step


def test_a_group_is_raced_when_its_first_case_is_asked_for_and_only_once():
    strategy = Strategy()
    runs = case_runs(strategy)
    assert strategy.asked == []
    assert [runs.result(case).verdict.outcome for case in (B, A, B)] == [Outcome.UNCHANGED] * 3
    assert strategy.asked == [B]


def test_cases_of_an_interrupted_run_are_final_if_their_whole_group_is():
    strategy = Strategy()
    earlier = {case.name: raced(case) for case in (A, OTHER)}
    runs = case_runs(strategy, journal=(journal := Journal(earlier)))
    assert [result.case for result in runs.final] == [OTHER]
    assert journal.notes == ["1 of 3 cases taken from the interrupted run"]
    assert runs.result(OTHER) is earlier[OTHER.name]
    assert strategy.asked == []
    runs.result(A)
    assert strategy.asked == [A]


def test_a_case_that_pytest_ends_or_skips_has_a_result_and_a_final_result_stays():
    runs = case_runs(Strategy())
    runs.fail(A, "Timeout >1.0s")
    error = Verdict.of(A, Outcome.ERROR, Reason("not-measured", "Timeout >1.0s"))
    assert runs.final == [CaseResult(A, error)]
    runs.skip(B, "not here")
    assert runs.final[1] == CaseResult(B, skip="not here")
    runs.result(OTHER)
    runs.fail(OTHER, "too late")
    runs.skip(OTHER, "too late")
    outcomes = [result.verdict and result.verdict.outcome for result in runs.all]
    assert outcomes == [Outcome.ERROR, None, Outcome.UNCHANGED]


def test_the_race_of_a_group_leaves_the_final_result_of_a_member_alone():
    strategy = Strategy()
    runs = case_runs(strategy)
    runs.skip(B, "not here")
    assert runs.result(A).sample is not None
    assert runs.result(B) == CaseResult(B, skip="not here")
    assert strategy.asked == [A]


@pytest.mark.parametrize("outcome", [Outcome.UNCHANGED, Outcome.INCONCLUSIVE, Outcome.NEW])
def test_only_a_decided_time_is_a_comparison(outcome):
    runs = case_runs(Strategy({OTHER.name: [raced(OTHER, outcome)]}))
    runs.skip(A, "not here")
    assert not runs.has_compared()
    runs.result(OTHER)
    assert runs.has_compared() is (outcome is Outcome.UNCHANGED)


def test_a_case_that_is_not_measured_is_an_error_in_its_place():
    runs = case_runs(Strategy())
    runs.result(OTHER)
    assert [result.case for result in runs.all] == [A, B, OTHER]
    assert {result.verdict.reason.code for result in runs.all[:2]} == {"not-measured"}
    assert runs.all[0].verdict.name == A.name


def test_a_strategy_may_refuse_the_skip_of_a_mark():
    strategy = Strategy({A.name: SideError("gone")})
    strategy.skipped = lambda case, reason, mark: strategy.race(case, [case])
    runs = case_runs(strategy)
    runs.skip(A, "not here")
    (result,) = runs.final
    assert (result.case, result.verdict.name, result.verdict.reason) == (A, A.name, Reason("side", "gone"))


def test_a_case_that_skips_itself_in_a_race_is_skipped_by_the_strategy():
    strategy = Strategy({A.name: [CaseResult(A, skip="no GPU"), raced(B)]})
    strategy.skipped = lambda case, reason: CaseResult(case, skip=f"{case.label}: {reason}")
    runs = case_runs(strategy)
    assert runs.result(A).skip == "a=x: no GPU"
    assert runs.result(B).verdict


def test_a_skipped_case_is_final_from_the_start_and_does_not_keep_its_group_from_an_earlier_run():
    earlier, strategy = {A.name: raced(A)}, Strategy()
    runs = case_runs(strategy, skips={B.name: "no GPU"}, earlier=earlier)
    assert [(result.case, result.skip) for result in runs.final] == [(A, ""), (B, "no GPU")]
    assert (runs.result(A), runs.result(B).skip) == (earlier[A.name], "no GPU")
    assert strategy.asked == []


def test_an_environment_is_left_with_its_last_case():
    plain, first, second, last = (
        Case(f"t.py::{name}", name, f"t.py::{name}", env=((("X", env),) if env else ()))
        for name, env in (("a", ""), ("b", "1"), ("c", "1"), ("d", "2"))
    )
    left = []
    runs = case_runs(Strategy(), skips={plain.name: "no GPU"}, cases=(plain, first, second, last), leave=left.append)
    runs.result(first)
    assert left == []
    runs.fail(second, "too slow")
    runs.fail(second, "too slow")
    assert left == [first.env]
    runs.result(last)
    assert left == [first.env, last.env]


@pytest.mark.parametrize(
    ("error", "code", "message", "output"),
    [
        (SideError("the side does not start\nlast words"), "side", "the side does not start", "last words"),
        (KeyError("gone"), "internal", "KeyError: 'gone'", "Traceback"),
    ],
)
def test_a_failed_race_is_an_error_of_every_case_in_the_group_and_the_run_goes_on(error, code, message, output):
    strategy = Strategy({A.name: error})
    runs = case_runs(strategy)
    for case in (A, B):
        result = runs.result(case)
        assert (result.verdict.outcome, result.verdict.reason.code) == (Outcome.ERROR, code)
        assert message in result.verdict.reason.message
        assert output in result.output
        assert result.failures == [result.verdict]
    assert runs.result(OTHER).verdict.outcome is Outcome.UNCHANGED
    assert strategy.asked == [A, OTHER]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (SideError("the side died\ndetails"), "side", "the side died"),
        (ValueError("bad"), "internal", "ValueError: bad"),
    ],
)
def test_a_failed_step_adds_an_error_row_and_keeps_what_is_known(error, code, message):
    steps = {"first": add_row("flops"), "second": fail(error), "third": add_row("never")}
    runs = case_runs(Strategy(), steps)
    result = runs.result(A)
    outcomes = {"time": Outcome.UNCHANGED, "flops": Outcome.UNCHANGED, "second": Outcome.ERROR}
    assert {row.metric: row.outcome for row in result.rows} == outcomes
    assert result.rows[-1].reason.code == code
    assert message in result.rows[-1].reason.message
    assert result.failures == [result.rows[-1]]
    assert runs.result(A) is result  # no second attempt


def test_a_step_learns_which_cases_of_the_group_were_measured():
    seen = []

    def step(result, measured):
        seen.append((result.case, measured))
        return result

    broken = CaseResult(A, verdict(A, Outcome.ERROR))
    runs = case_runs(Strategy({B.name: [broken, raced(B)]}), {"step": step})
    runs.result(B)
    assert seen == [(B, [B])]


def test_ctrl_c_in_a_race_keeps_the_partial_results():
    def interrupted():
        yield raced(A)
        raise KeyboardInterrupt

    runs = case_runs(Strategy({A.name: interrupted()}))
    with pytest.raises(KeyboardInterrupt):
        runs.result(A)
    assert [result.case for result in runs.final] == [A]


def test_ctrl_c_in_a_step_keeps_the_verdict_on_time():
    runs = case_runs(Strategy(), {"first": add_row("flops"), "second": fail(KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        runs.result(A)
    assert [row.metric for row in runs.final[0].rows] == ["time", "flops"]
