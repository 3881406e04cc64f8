"""Accepted regressions: what an entry covers, when it expires, and which entries fail the gate."""

import datetime

import pytest

from tests.fakes.report import complete
from tfbench.errors import UsageError
from tfbench.gate.accepted import accept, entries
from tfbench.gate.rules import Gate, rule
from tfbench.model import Case, Outcome, Ratio, Reason, Verdict

TODAY = datetime.date(2026, 11, 21)
ENTRY = {"case": "b/test_x.py::test_x", "reason": "agreed", "until": TODAY, "up_to": 1.1}


def row(outcome=Outcome.REGRESSED, ratio=1.05, name=ENTRY["case"], **more):
    comparison = Ratio(ratio, ratio - 0.01, ratio + 0.01, 0.99) if ratio else None
    return Verdict(Case(name, "w", name), outcome, Reason("slower", "slower"), ratio=comparison, **more)


def decided(verdicts, *rows, today=TODAY):
    report = complete(verdicts)
    return rule(report, accept(report, entries({"accept": list(rows)}, "a.toml"), today))


OTHER = row(Outcome.UNCHANGED, 1.0, "b/test_x.py::test_y")


def test_an_accepted_regression_passes_until_its_last_day():
    assert decided([row(), OTHER]).gate is Gate.REGRESSED
    decision = decided([row(), OTHER], ENTRY)
    assert decision.gate is Gate.PASS
    assert [entry.reason for _, entry in decision.accepted.verdicts] == ["agreed"]
    ended = decided([row(), OTHER], ENTRY, today=TODAY + datetime.timedelta(1))
    assert ended.gate is Gate.REGRESSED
    assert "expired on 2026-11-21" in ended.accepted.problems[0]


def test_a_larger_regression_than_the_accepted_one_fails():
    decision = decided([row(ratio=1.2), OTHER], ENTRY)
    assert decision.gate is Gate.REGRESSED
    assert "worse than the accepted 1.1" in decision.accepted.problems[0]


@pytest.mark.parametrize(
    "verdicts", [[row(Outcome.UNCHANGED, 1.0), OTHER], [OTHER], [row(Outcome.IMPROVED, 0.9), OTHER]]
)
def test_an_unused_entry_fails(verdicts):
    decision = decided(verdicts, ENTRY)
    assert decision.gate is Gate.ERROR
    assert "remove the entry" in decision.accepted.problems[0]


def test_other_metrics_and_deleted_cases_are_accepted_by_name():
    exact = row(ratio=None, metric="graph_ops", values=(3, 4))
    entry = {**ENTRY, "metric": "graph_ops", "up_to": 4}
    assert decided([row(Outcome.UNCHANGED), exact, OTHER], entry).gate is Gate.PASS
    assert decided([exact, OTHER], {**entry, "up_to": 3}).gate is Gate.REGRESSED
    assert decided([exact, row(), OTHER], entry).gate is Gate.REGRESSED  # its time is not accepted
    del entry["up_to"]
    assert decided([row(Outcome.UNCHANGED), exact, OTHER], entry).gate is Gate.PASS
    gone = {key: ENTRY[key] for key in ("case", "reason", "until")} | {"gone": True}
    assert decided([row(Outcome.MISSING, None), OTHER], gone).gate is Gate.PASS
    assert decided([row(), OTHER], gone).gate is Gate.REGRESSED


def test_an_error_cannot_be_accepted():
    assert decided([row(Outcome.ERROR, None), OTHER], ENTRY).gate is Gate.ERROR


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ({"accepted": []}, r"only \[\[accept\]\] tables are allowed"),
        ({"accept": {}}, r"only \[\[accept\]\] tables are allowed"),
        ({"accept": [1]}, "entry 1 is not a table"),
        ({"accept": [{**ENTRY, "why": "x"}]}, "unknown key 'why'; valid keys: case, metric"),
        ({"accept": [{**ENTRY, "until": "2027-01-31"}]}, "write the last valid day"),
        ({"accept": [{**ENTRY, "until": datetime.datetime(2027, 1, 1)}]}, "write the last valid day"),
        ({"accept": [{**ENTRY, "reason": ""}]}, "lacks 'reason'; state why"),
        ({"accept": [{**ENTRY, "up_to": True}]}, "up_to = True is invalid"),
        ({"accept": [{key: ENTRY[key] for key in ("case", "reason", "until")}]}, "lacks 'up_to'"),
        ({"accept": [{**ENTRY, "gone": True}]}, "gone excludes metric and up_to"),
        ({"accept": [ENTRY, ENTRY]}, "has b/test_x.py::test_x twice"),
    ],
)
def test_an_invalid_file_is_refused(content, reported):
    with pytest.raises(UsageError, match=reported):
        entries(content, "a.toml")
