"""Accepted regressions: what an entry covers, when it expires, and which entries fail the gate."""

import datetime
import math

import pytest

from tests.fakes.report import complete, judged
from tfbench import ruling
from tfbench.errors import UsageError
from tfbench.model import Case, Outcome, Ratio, Reason
from tfbench.ruling import Result, acceptances

TODAY = datetime.date(2026, 11, 21)
ENTRY = {"case": "b/test_x.py::test_x", "reason": "agreed", "until": TODAY, "up_to": 1.1}


def row(outcome=Outcome.REGRESSED, ratio=1.05, name=ENTRY["case"], **more):
    comparison = Ratio(ratio, ratio - 0.01, ratio + 0.01, 0.99) if ratio else None
    return judged(Case(name, "w", name), outcome, Reason("slower", "slower"), ratio=comparison, **more)


def decided(verdicts, *rows, today=TODAY):
    return ruling.decided(complete(verdicts), acceptances({"accept": list(rows)}, "a.toml").accept, today)


OTHER = row(Outcome.UNCHANGED, 1.0, "b/test_x.py::test_y")
REQUIRED = {key: ENTRY[key] for key in ("case", "reason", "until")}
GONE, INCOMPARABLE = {**REQUIRED, "gone": True}, {**REQUIRED, "incomparable": True}


def test_an_accepted_regression_passes_until_its_last_day():
    assert decided([row(), OTHER]).ruling.result is Result.REGRESSED
    decision = decided([row(), OTHER], ENTRY)
    assert decision.ruling.result is Result.PASS
    assert [entry.reason for _, entry in decision.accepted] == ["agreed"]
    ended = decided([row(), OTHER], ENTRY, today=TODAY + datetime.timedelta(1))
    assert ended.ruling.result is Result.REGRESSED
    assert "expired on 2026-11-21" in ended.problems[0]


def test_a_larger_regression_than_the_accepted_one_fails():
    assert decided([row(ratio=1.105), OTHER], ENTRY).ruling.result is Result.REGRESSED
    decision = decided([row(ratio=1.2), OTHER], ENTRY)
    assert decision.ruling.result is Result.REGRESSED
    assert "worse than the accepted 1.1" in decision.problems[0]


def test_other_metrics_and_deleted_cases_are_accepted_by_name():
    exact = row(ratio=None, metric="graph_ops", values=(3, 4))
    entry = {**ENTRY, "metric": "graph_ops", "up_to": 4}
    assert decided([row(Outcome.UNCHANGED), exact, OTHER], entry).ruling.result is Result.PASS
    assert decided([exact, OTHER], {**entry, "up_to": 3}).ruling.result is Result.REGRESSED
    assert decided([exact, row(), OTHER], entry).ruling.result is Result.REGRESSED  # its time is not accepted
    del entry["up_to"]
    assert decided([row(Outcome.UNCHANGED), exact, OTHER], entry).ruling.result is Result.PASS
    assert decided([exact, row(), OTHER], entry).ruling.result is Result.REGRESSED
    assert decided([row(Outcome.MISSING, None), OTHER], GONE).ruling.result is Result.PASS
    assert decided([row(), OTHER], GONE).ruling.result is Result.REGRESSED


@pytest.mark.parametrize(("value", "result"), [(0.91, Result.PASS), (0.9, Result.PASS), (0.5, Result.REGRESSED)])
def test_of_a_metric_where_fewer_is_worse_the_smallest_accepted_value_is_stated(value, result):
    worse = row(ratio=None, metric="accuracy", values=(0.95, value))
    entry = {**ENTRY, "metric": "accuracy", "up_to": 0.9}
    assert decided([row(Outcome.UNCHANGED), worse, OTHER], entry).ruling.result is result


@pytest.mark.parametrize(
    ("verdicts", "entry", "problem"),
    [
        ([row()], {**ENTRY, "until": datetime.date(2026, 11, 20)},
         "{case}: the acceptance expired on 2026-11-20 (agreed); fix the regression, or renew the entry"),
        ([row(ratio=1.2, tail=Ratio(1.2, 1.1, 1.3, 0.99))], ENTRY,
         "{case}: the acceptance is unused, because the case is worse than the accepted 1.1: slower; remove the entry"),
        ([row(Outcome.UNCHANGED)], ENTRY,
         "{case}: the acceptance is unused, because the case is unchanged; remove the entry"),
        ([row(Outcome.IMPROVED, 0.9)], ENTRY,
         "{case}: the acceptance is unused, because the case is improved; remove the entry"),
        ([row()], GONE, "{case}: the acceptance is unused, because the case is regressed; remove the entry"),
        ([row(), OTHER], {**ENTRY, "metric": "flops"},
         "{case} (flops): the acceptance is unused, because the report has no such case or metric; remove the entry"),
        ([row(name="b/test_z.py::test_z")], ENTRY,
         "{case}: the acceptance is unused, because the report has no such case or metric; remove the entry"),
    ],
)  # fmt: skip
def test_an_entry_without_effect_is_named_with_its_reason_and_fix(verdicts, entry, problem):
    decision = decided(verdicts, entry)
    assert decision.problems == (problem.format(case=ENTRY["case"]),)
    assert decision.ruling.result is (Result.REGRESSED if verdicts[0].outcome is Outcome.REGRESSED else Result.ERROR)


def test_a_regression_of_exactly_the_accepted_ratio_is_accepted():
    assert decided([row(ratio=1.1), OTHER], ENTRY).ruling.result is Result.PASS
    assert decided([row(ratio=1.0, tail=Ratio(1.1, 1.0, 1.2, 0.99)), OTHER], ENTRY).ruling.result is Result.PASS
    unknown = row(ratio=None, metric="first_call")  # not known to be within
    assert decided([unknown, OTHER], {**ENTRY, "metric": "first_call"}).ruling.result is Result.REGRESSED


def test_one_problem_does_not_hide_the_other_entries():
    unused, second = ({**ENTRY, "case": f"b/test_x.py::test_{name}"} for name in ("gone", "z"))
    decision = decided([row(), row(name=second["case"]), OTHER], unused, ENTRY, second)
    assert (len(decision.problems), len(decision.accepted)) == (1, 2)


def test_slow_calls_are_not_accepted_with_the_median():
    tail = Ratio(1.19, 1.0, 1.4, 0.99)
    decision = decided([row(ratio=1.06, tail=tail), OTHER], ENTRY)
    assert decision.ruling.result is Result.REGRESSED
    assert "slow calls raise the mean of the case to 1.19 times the old one" in decision.problems[0]
    assert decided([row(ratio=1.06, tail=tail), OTHER], {**ENTRY, "up_to": 1.2}).ruling.result is Result.PASS
    assert decided([row(ratio=1.09, tail=Ratio(1.12, 1.0, 1.3, 0.99)), OTHER], ENTRY).ruling.result is Result.PASS


def test_a_case_that_cannot_be_compared_is_accepted_by_name():
    rows = [row(Outcome.INCOMPARABLE, None), row(Outcome.INCOMPARABLE, None, metric="graph_ops", values=(3, 4)), OTHER]
    assert decided(rows).ruling.result is Result.INCOMPARABLE
    assert decided(rows, INCOMPARABLE).ruling.result is Result.PASS
    assert decided([row(), OTHER], INCOMPARABLE).ruling.result is Result.REGRESSED
    for entry in (ENTRY, INCOMPARABLE):
        assert decided([row(Outcome.ERROR, None), OTHER], entry).ruling.result is Result.ERROR
    assert decided(rows[:2], INCOMPARABLE).ruling.result is Result.INCOMPARABLE  # nothing was compared
    assert not decided(rows, GONE).accepted


FIX = "write case, reason, until = 2027-01-31 (the last day), and up_to = 1.08, metric, gone = true or incomparable = true"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ({"accepted": []}, "a.toml: only [[accept]] tables are allowed"),
        ({"accept": {}}, "a.toml: only [[accept]] tables are allowed"),
        ({"accept": [ENTRY, 1]}, f"a.toml, entry 2: Expected `object`, got `int`; {FIX}"),
        ({"accept": [ENTRY, ENTRY]}, "a.toml: b/test_x.py::test_x is there twice; keep one of the two"),
    ],
)
def test_an_invalid_file_is_refused(content, reported):
    with pytest.raises(UsageError) as caught:
        acceptances(content, "a.toml")
    assert str(caught.value) == reported


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ({**ENTRY, "why": "x"}, "Object contains unknown field `why`"),
        ({**ENTRY, "until": "31.1."}, "at until, Invalid RFC3339 encoded date"),
        ({**ENTRY, "until": datetime.datetime(2027, 1, 1)}, "at until, Expected `date`, got `datetime`"),
        ({**ENTRY, "reason": " "}, r"at reason, Expected `str` matching regex '\\S'"),
        ({**ENTRY, "case": ""}, "at case, Expected `str` of length >= 1"),
        ({"case": "c", "reason": "r"}, "Object missing required field `until`"),
        ({**ENTRY, "up_to": -0.1}, "at up_to, Expected `float` >= 0.0"),
        ({**ENTRY, "up_to": math.inf}, "at up_to, Expected `float` <= 1e+18"),
        ({**ENTRY, "up_to": math.nan}, "at up_to, Expected `float` >= 0.0"),
        ({**ENTRY, "gone": 1}, "at gone, Expected `bool`, got `int`"),
        (REQUIRED, "up_to, the largest accepted ratio, is missing"),
        ({**ENTRY, "gone": True}, "gone excludes metric, up_to and incomparable"),
        ({**GONE, "incomparable": True}, "gone excludes metric, up_to and incomparable"),
        ({**ENTRY, "incomparable": True}, "incomparable excludes metric, up_to and gone"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_number_and_the_fix(entry, reported):
    with pytest.raises(UsageError) as caught:
        acceptances({"accept": [entry]}, "a.toml")
    assert str(caught.value) == f"a.toml, entry 1: {reported}; {FIX}"


def test_a_case_may_have_entries_for_several_metrics_and_for_its_deletion():
    rows = [ENTRY, {**REQUIRED, "metric": "flops"}, {**REQUIRED, "gone": True}]
    found = [(one.metric, one.gone) for one in acceptances({"accept": rows}, "a.toml").accept]
    assert found == [("time", False), ("flops", False), ("time", True)]
    assert acceptances({}, "a.toml").accept == ()
