"""Merging of shards and refusal of incomplete ones."""

from dataclasses import replace

import pytest

from tests.fakes.report import CODE, complete, row, variant
from tfbench.errors import ReportError
from tfbench.model import Outcome, Skip
from tfbench.report.merge import merge
from tfbench.suite.shards import Shard, digest, part

NAMES = [f"b/test_x.py::test_{letter}" for letter in "abcdef"]
SIDE = {
    "spec": "working tree", **CODE, "python": "3.12.1", "packages": {"numpy": "2"}, "settings": {},
    "machine": {"system": "Linux", "architecture": "x86_64", "processor": "one"},
}  # fmt: skip
SIDES = {"contender": SIDE}


def shard(index, of=2, names=None, **changes):
    mine = NAMES[index - 1 :: of] if names is None else names
    rows = changes.pop("verdicts", tuple(map(row, mine)))
    costs = {"seconds_by_phase": {"rounds": index / 4, "other": 0.5}, "seconds_by_case": dict.fromkeys(mine, index / 8)}
    given = {"sides": SIDES, "wall_seconds": float(index), "shard": part(Shard(index, of), NAMES, mine), **costs}
    return f"{index}.json", complete(rows, **{**given, **changes})


def test_shards_merge_into_one_report():
    whole = merge([shard(2), shard(1)])
    assert {verdict.case.name for verdict in whole.verdicts} == set(NAMES)
    assert (whole.shard, whole.wall_seconds, whole.interrupted) == (None, 2.0, False)
    assert whole.seconds_by_phase == {"rounds": 0.75, "other": 1.0}
    assert whole.seconds_by_case == {name: 0.125 * (1 + at % 2) for at, name in enumerate(NAMES)}
    assert merge([shard(1), shard(2, interrupted=True)]).interrupted
    assert merge([shard(1, 1)]).verdicts == shard(1, 1)[1].verdicts


@pytest.mark.parametrize(
    ("change", "text"),
    [({"spec": "y"}, "sides differ"), ({"slowdown": 1}, "sides differ"), ({"tree": "4" * 40}, "sides differ")],
)
def test_a_shard_without_cases_was_to_race_the_same_sides(change, text):
    empty = shard(2, names=[], shard=part(Shard(2, 2), NAMES, []), sides={"contender": {**SIDE, **change}})
    with pytest.raises(ReportError, match=text):
        merge([shard(1, names=NAMES), empty])


def test_a_shard_whose_cases_are_all_skipped_has_started_no_side():
    sides = {"contender": {"spec": "working tree", **CODE, "root": "/x"}}
    mine, others = NAMES[:2], NAMES[2:]
    skips = tuple(Skip.about(row(name).case, reason="no GPU") for name in mine)
    for at, other in ((1, 2), (2, 1)):
        skipping = shard(at, 2, mine, verdicts=(), skips=skips, sides=sides)
        whole = merge(sorted([skipping, shard(other, 2, others)], key=lambda one: one[0]))
        assert (whole.sides, len(whole.skips), len(whole.verdicts)) == (SIDES, 2, 4)
    measured = shard(1, 2, mine, verdicts=tuple(row(name, launches=3) for name in mine), sides=sides)
    with pytest.raises(ReportError, match="their sides differ"):
        merge([measured, shard(2, 2, others)])


def test_a_shard_without_cases_merges():
    """It has started no side, and knows no more than their specifications."""
    sides = {"contender": {"spec": "working tree", **CODE, "root": "/x", "import_seconds": None}}
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


OTHER_MACHINE = {"contender": {**SIDE, "machine": {"system": "Linux", "architecture": "x86_64", "gpus": "T4"}}}
WRONG = {
    "no report to merge: no shard has reported": [],
    "shard 2/2 never reported: its job failed, or its report was not uploaded": [shard(1)],
    "shard 1/2 never reported: its job failed, or its report was not uploaded": [shard(2)],
    "shard 2/4, 3/4, 4/4 never reported: its job failed, or its report was not uploaded": [shard(1, 4)],
    "1.json and again.json are both shard 1/2": [shard(1), ("again.json", shard(1)[1])],
    "1.json and 2.json are not of one run: their numbers of shards differ: 2 and 3": [shard(1), shard(2, 3)],
    "1.json and 2.json are not of one run: their policies differ: name quick and strict": [
        shard(1), shard(2, policy={"name": "strict"}),
    ],
    "1.json and 2.json are not of one run: their sides differ: contender.machine.gpus None and T4": [
        shard(1), shard(2, sides=OTHER_MACHINE),
    ],
    "2.json is not a shard's report: it was measured without --shard": [shard(1), shard(2, shard=None)],
    f"{NAMES[0]} is in 1.json and in 2.json": [shard(1), shard(2, names=NAMES[:4])],
    "1.json: the shards have 5 cases together, the suite has 6": [shard(1), shard(2, names=NAMES[1:5:2])],
    "2.json has no row for its case b/test_x.py::test_b and 2 more": [shard(1), shard(2, verdicts=())],
    "2.json has no row for its case b/test_x.py::test_b": [shard(1), shard(2, verdicts=tuple(map(row, NAMES[3::2])))],
    "2.json cannot be merged: the run did not come to its end": [shard(1), shard(2, complete=False)],
    "2.json cannot be merged: b/test_x.py::test_z was due and has no results": [
        shard(1), shard(2, due=(*NAMES[1::2], f"{NAMES[0][:-1]}z")),
    ],
    "2.json has a verdict on b/test_x.py::test_a and 2 more, a case of another shard": [
        shard(1), shard(2, verdicts=tuple(map(row, NAMES))),
    ],
    "1.json and 2.json are not of one run: their suites of cases differ: "
    f"{digest(NAMES)[:28]} … {digest(NAMES)[-29:]} and {digest(NAMES[:5])[:28]} … {digest(NAMES[:5])[-29:]}": [
        shard(1), shard(2, shard=part(Shard(2, 2), NAMES[:5], NAMES[1::2])),
    ],
    "1.json: the shards have 6 cases together, the suite has 6": [
        (name, replace(one, shard={**one.shard, "suite": "0" * 64})) for name, one in (shard(1), shard(2))
    ],
}  # fmt: skip


@pytest.mark.parametrize("reported", WRONG)
def test_incomplete_or_unlike_shards_are_refused(reported):
    with pytest.raises(ReportError) as caught:
        merge(WRONG[reported])
    assert str(caught.value) == reported


def with_rows(found, *rows):
    """A shard's report with further rows, each of which was due."""
    name, report = found
    skips = [row for row in rows if isinstance(row, Skip)]
    verdicts = [row for row in rows if row not in skips]
    due = (*report.due, *(row.case.name for row in rows))
    return name, replace(report, verdicts=(*report.verdicts, *verdicts), skips=(*report.skips, *skips), due=due)


BROKEN_FILE, BROKEN_ITEM = "b/test_y.py", "b/test_x.py::test_typo"


@pytest.mark.parametrize("name", [BROKEN_FILE, BROKEN_ITEM, "b/test_x.py::TestClass"])
def test_equal_rows_of_every_shard_merge_into_one(name):
    broken, skip = row(name, Outcome.ERROR), Skip.about(row(name).case, reason="needs a GPU")
    whole = merge([with_rows(shard(1), broken), with_rows(shard(2), broken)])
    assert [one for one in whole.verdicts if one.case.name == name] == [broken]
    assert (whole.due.count(name), whole.gap) == (1, "")
    whole = merge([with_rows(shard(1), skip), with_rows(shard(2), skip)])
    assert (whole.skips, whole.due.count(name), whole.gap) == ((skip,), 1, "")


def test_an_error_of_one_shard_counts_more_than_a_skip_of_another():
    broken, gone = row(BROKEN_FILE, Outcome.ERROR), row(BROKEN_FILE, Outcome.MISSING)
    skip = Skip.about(broken.case, reason="needs a GPU")
    for first, second, kept in ((broken, skip, broken), (gone, skip, gone), (gone, broken, broken)):
        for one, other in ((first, second), (second, first)):
            whole = merge([with_rows(shard(1), one), with_rows(shard(2), other)])
            assert [row for row in whole.verdicts if row.case.name == BROKEN_FILE] == [kept]
            assert (whole.skips, whole.gap) == ((), "")


@pytest.mark.parametrize("row", [row("b/test_x.py::test_gone", Outcome.MISSING), row(BROKEN_FILE, Outcome.ERROR)])
def test_any_shard_may_report_a_missing_case_or_a_broken_file(row):
    whole = merge([with_rows(shard(1), row), shard(2)])
    assert row in whole.verdicts
    assert row.case.name in whole.due
    assert whole.gap == ""


def test_a_row_on_a_case_of_another_shard_is_refused():
    theirs = row(NAMES[1], Outcome.ERROR)
    with pytest.raises(ReportError, match=r"1\.json has a row on b/test_x\.py::test_b, a case of 2\.json"):
        merge([with_rows(shard(1), theirs), shard(2)])


def test_a_merged_report_has_everything_of_its_shards():
    both = []
    for n, name in enumerate(NAMES[:2]):
        case = row(name).case
        more = {"skips": (Skip.about(case, reason="no GPU"),), "profiles": ({"case": name, "why": []},)}
        more |= {"variant_results": (variant(case, name, 1.0, None, None, 1, 1),)}
        both.append(shard(n + 1, verdicts=tuple(map(row, NAMES[n + 2 :: 2])), **more))
    whole = merge(both)
    for field in ("verdicts", "skips", "variant_results", "profiles", "due"):
        assert getattr(whole, field) == tuple(one for _, report in both for one in getattr(report, field))
    assert (whole.complete, whole.shard, whole.gap) == (True, None, "")


@pytest.mark.parametrize("fact", ["spec", "slowdown", "python", "packages", "settings"])
@pytest.mark.parametrize("of_machine", ["system", "architecture", "gpus", "driver"])
def test_the_sides_and_the_kinds_of_machines_of_all_shards_are_the_same(fact, of_machine):
    for changed in ({fact: "other"}, {"machine": {**SIDE["machine"], of_machine: "other"}}):
        with pytest.raises(ReportError, match="their sides differ"):
            merge([shard(1), shard(2, sides={"contender": {**SIDE, **changed}})])


def test_the_machines_of_all_shards_may_have_other_speeds():
    contender = {**SIDE, "machine": {**SIDE["machine"], "processor": "two"}}
    assert merge([shard(1), shard(2, sides={"contender": contender})]).complete
    bare = {"contender": {"spec": "x", **CODE}}
    assert merge([shard(1, sides=bare), shard(2, sides=bare)]).complete


# Which code was raced

RACED = {"contender": SIDE, "baseline": {**SIDE, "spec": "git:main"}}


@pytest.mark.parametrize("side", ["baseline", "contender"])
@pytest.mark.parametrize("change", [{"commit": "3" * 40}, {"tree": "4" * 40}, {"tree": "session:2026-a", "commit": ""}])
def test_only_the_same_code_is_merged(side, change):
    moved = {**RACED, side: {**RACED[side], **change}}
    with pytest.raises(ReportError, match=rf"are not of one run: their sides differ: {side}\.(commit|tree) "):
        merge([shard(1, sides=RACED), shard(2, sides=moved)])


@pytest.mark.parametrize("sides", [{}, {"contender": {"spec": "working tree"}}])
def test_reports_that_do_not_tell_their_code_are_not_merged(sides):
    with pytest.raises(
        ReportError, match=r"1\.json does not tell which code it raced; measure again with this version"
    ):
        merge([shard(1, sides=sides), shard(2, sides=sides)])
