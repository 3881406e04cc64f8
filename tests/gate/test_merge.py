"""Merging of shards, refusal of incomplete ones, and confirmation by a second run."""

from dataclasses import replace

import pytest

from tests.fakes.report import complete, row
from tfbench.errors import ReportError
from tfbench.gate.merge import confirm, merge
from tfbench.model import Outcome, Ratio, Skip
from tfbench.suite.shards import Shard, part

NAMES = [f"b/test_x.py::test_{letter}" for letter in "abcdef"]
SIDES = {"contender": {"spec": "working tree", "python": "3.12.1", "packages": {"numpy": "2"}, "settings": {},
                       "machine": {"system": "Linux", "architecture": "x86_64", "processor": "one"}}}  # fmt: skip


def shard(index, of=2, names=None, **changes):
    mine = NAMES[index - 1 :: of] if names is None else names
    rows = changes.pop("verdicts", tuple(map(row, mine)))
    given = {"sides": SIDES, "wall_seconds": float(index), "shard": part(Shard(index, of), NAMES, mine), **changes}
    return f"{index}.json", complete(rows, **given)


def test_shards_merge_into_one_report():
    whole = merge([shard(2), shard(1)])
    assert {verdict.case.name for verdict in whole.verdicts} == set(NAMES)
    assert (whole.shard, whole.wall_seconds, whole.interrupted) == (None, 2.0, False)
    assert merge([shard(1), shard(2, interrupted=True)]).interrupted


def test_a_skipped_case_counts_as_reported():
    name, report = shard(1)
    first, *rest = report.verdicts
    merge([(name, replace(report, verdicts=tuple(rest), skips=(Skip(first.case, "no GPU"),))), shard(2)])


def test_a_shard_without_cases_merges():
    """It has started no side, and knows no more than their specifications."""
    sides = {"contender": {"spec": "working tree", "root": "/x", "import_seconds": None}}
    for empty in (1, 2, 3):
        names = {index: NAMES[:3] if index == empty % 3 + 1 else NAMES[3:] for index in (1, 2, 3)} | {empty: []}
        given = [shard(i, 3, names[i], **({"sides": sides, "shard": part(Shard(i, 3), NAMES, [])} if i == empty else {}))
                 for i in (1, 2, 3)]  # fmt: skip
        whole = merge(given)
        assert {verdict.case.name for verdict in whole.verdicts} == set(NAMES)
        assert whole.sides == SIDES
    other = {"contender": {"spec": "git:main"}}
    with pytest.raises(ReportError, match="sides differ"):
        merge([shard(1, 2, NAMES), shard(2, 2, [], sides=other)])


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
    "cannot be merged: the run did not come to its end": lambda: [shard(1), shard(2, complete=False)],
    "cannot be merged: b/test_x.py::test_z was due": lambda: [
        shard(1),
        shard(2, due=(*NAMES[1::2], f"{NAMES[0][:-1]}z")),
    ],
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


COMPARED = Ratio(1.0, 0.9, 1.1, 0.99)


@pytest.mark.parametrize(
    ("second", "becomes", "reported"),
    [
        (row(NAMES[0], "regressed"), Outcome.REGRESSED, "a second job confirms it"),
        (row(NAMES[0], "unchanged"), Outcome.INCONCLUSIVE, "did not confirm it: unchanged"),
        (row(NAMES[0], "inconclusive", ratio=COMPARED), Outcome.INCONCLUSIVE, "did not confirm it"),
        (row(NAMES[0], "inconclusive"), Outcome.REGRESSED, "could not compare it, inconclusive"),
        (row(NAMES[0], "error"), Outcome.REGRESSED, "could not compare it, error"),
        (row(NAMES[0], "new"), Outcome.REGRESSED, "could not compare it, new"),
        (row(NAMES[0], "missing"), Outcome.REGRESSED, "could not compare it, missing"),
        (row(NAMES[0], "incomparable"), Outcome.REGRESSED, "could not compare it, incomparable"),
        (row(NAMES[2], "unchanged"), Outcome.REGRESSED, "a second job has no row for it"),
    ],
)
def test_only_a_comparison_clears_a_regression(second, becomes, reported):
    first = complete([row(NAMES[0], "regressed", text="9% slower"), row(NAMES[1])], sides=SIDES)
    one, other = confirm(first, complete([second], sides=SIDES)).verdicts
    assert one.outcome is becomes
    assert "9% slower" in one.reason.message
    assert reported in one.reason.message
    assert other == first.verdicts[1]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"complete": False}, "confirms nothing: the run did not come to its end"),
        ({"complete": None}, "confirms nothing: it does not tell which cases were due"),
        ({"policy": {"name": "strict"}}, "its policy differ from those of the first"),
        ({"sides": {"contender": {**SIDES["contender"], "packages": {"numpy": "1"}}}}, "its sides differ"),
    ],
)
def test_another_kind_of_run_confirms_nothing(change, reported):
    first = complete([row(NAMES[0], "regressed")], sides=SIDES)
    with pytest.raises(ReportError, match=reported):
        confirm(first, complete([row(NAMES[0])], **{"sides": SIDES, **change}))
