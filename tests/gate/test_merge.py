"""Merging of shards, refusal of incomplete ones, and confirmation by a second run."""

from dataclasses import replace

import pytest

from tfbench.errors import ReportError
from tfbench.gate.merge import confirm, merge
from tfbench.model import Case, Outcome, Reason, Report, Skip, Verdict
from tfbench.suite.shards import Shard, part

NAMES = [f"b/test_x.py::test_{letter}" for letter in "abcdef"]
SIDES = {"contender": {"spec": "working tree", "python": "3.12.1", "packages": {"numpy": "2"}, "settings": {},
                       "machine": {"system": "Linux", "architecture": "x86_64", "processor": "one"}}}  # fmt: skip


def row(name, outcome=Outcome.UNCHANGED, metric="time", text="the same"):
    return Verdict(Case(name, "w", name), outcome, Reason("code", text), metric)


def shard(index, of=2, names=None, **changes):
    mine = NAMES[index - 1 :: of] if names is None else names
    report = Report({"name": "quick"}, SIDES, tuple(map(row, mine)), wall_seconds=float(index))
    return f"{index}.json", replace(report, **{"shard": part(Shard(index, of), NAMES, mine), **changes})


def test_shards_merge_into_one_report():
    whole = merge([shard(2), shard(1)])
    assert {verdict.case.name for verdict in whole.verdicts} == set(NAMES)
    assert (whole.shard, whole.wall_seconds, whole.interrupted) == (None, 2.0, False)
    assert merge([shard(1), shard(2, interrupted=True)]).interrupted


def test_a_skipped_case_counts_as_reported():
    name, report = shard(1)
    first, *rest = report.verdicts
    merge([(name, replace(report, verdicts=tuple(rest), skips=(Skip(first.case, "no GPU"),))), shard(2)])


OTHER_MACHINE = {
    "contender": {**SIDES["contender"], "machine": {"system": "Linux", "architecture": "x86_64", "gpus": "T4"}}
}
WRONG = {
    "no shard has reported": list,
    "shard 2/2 never reported": lambda: [shard(1)],
    "shard 2/4, 3/4, 4/4 never reported": lambda: [shard(1, 4)],
    "are both shard 1/2": lambda: [shard(1), ("again.json", shard(1)[1])],
    "number of shards differ": lambda: [shard(1), shard(2, 3)],
    "policy differ": lambda: [shard(1), shard(2, policy={"name": "strict"})],
    "sides differ": lambda: [shard(1), shard(2, sides=OTHER_MACHINE)],
    "is not a shard's report": lambda: [shard(1), shard(2, shard=None)],
    "is in 1.json and in 2.json": lambda: [shard(1), shard(2, names=NAMES[:4])],
    "have 5 cases together, the suite has 6": lambda: [shard(1), shard(2, names=NAMES[1:5:2])],
    "has no row for its case b/test_x.py::test_b and 2 more": lambda: [shard(1), shard(2, verdicts=())],
    "a case of another shard": lambda: [shard(1), shard(2, verdicts=tuple(map(row, NAMES)))],
    "suite of cases differ": lambda: [shard(1), shard(2, shard=part(Shard(2, 2), NAMES[:5], NAMES[1::2]))],
}


@pytest.mark.parametrize("reported", WRONG)
def test_incomplete_or_unlike_shards_are_refused(reported):
    with pytest.raises(ReportError, match=reported):
        merge(WRONG[reported]())


def test_any_shard_may_report_a_missing_case():
    name, report = shard(1)
    gone = row("b/test_x.py::test_gone", Outcome.MISSING)
    assert gone in merge([(name, replace(report, verdicts=(*report.verdicts, gone))), shard(2)]).verdicts


@pytest.mark.parametrize(
    ("second", "becomes", "reported"),
    [
        (Outcome.REGRESSED, Outcome.REGRESSED, "a second job confirms it"),
        (Outcome.UNCHANGED, Outcome.INCONCLUSIVE, "did not confirm it: unchanged"),
        (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, "did not confirm it"),
        (Outcome.ERROR, Outcome.REGRESSED, "a second job broke"),
        (None, Outcome.REGRESSED, "a second job has no row for it"),
    ],
)
def test_a_regression_is_confirmed_or_becomes_inconclusive(second, becomes, reported):
    first = Report({"name": "quick"}, SIDES, (row(NAMES[0], Outcome.REGRESSED, text="9% slower"), row(NAMES[1])))
    again = Report({"name": "quick"}, SIDES, (row(NAMES[0], second, text="so"),) if second else ())
    one, other = confirm(first, again).verdicts
    assert one.outcome is becomes
    assert "9% slower" in one.reason.message
    assert reported in one.reason.message
    assert other == first.verdicts[1]
