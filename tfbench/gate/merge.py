"""Combine reports: the shards of a suite, and a second run that confirms a first."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfbench.errors import ReportError
from tfbench.model import JSON, Outcome, Reason, ReasonCode, Report, Verdict
from tfbench.suite.shards import digest

Named = tuple[str, Report]
"""The name of a report in error messages, and the report."""
KIND = ("system", "architecture", "gpus", "driver")
"""Facts that must be equal on the machines of all shards. Their speeds may differ, because each races both sides."""


def merge(reports: Sequence[Named]) -> Report:
    """Merge the reports of all shards into the report of the whole suite.

    Raises:
        ReportError: The reports are not the shards of one suite, a shard or a case is missing or occurs twice, a shard
            did not come to its end, or the policies, sides or kinds of machines differ.
    """
    if not reports:
        raise ReportError("no report to merge: no shard has reported")
    shards = [(name, _shard(name, report), report) for name, report in reports]
    # A shard without cases has started no side. It knows what they should be, and not what they are.
    shards.sort(key=lambda one: not one[1]["cases"])
    first_name, first, report = shards[0]
    for name, shard, other in shards[1:]:
        for what, mine, theirs in (
            ("number of shards", first["of"], shard["of"]),
            ("suite of cases", first["suite"], shard["suite"]),
            ("policy", report.policy, other.policy),
            ("sides", *(_sides(one, known=bool(shard["cases"])) for one in (report, other))),
        ):
            if mine != theirs:
                values = " and ".join(textwrap.shorten(str(one), 60, placeholder="…") for one in (mine, theirs))
                raise ReportError(f"{first_name} and {name} are not of one run: their {what} differ, {values}")
    _one_each(first["of"], [(name, shard["index"]) for name, shard, _ in shards])
    _complete(shards)
    return replace(
        report,
        verdicts=tuple(verdict for _, one in reports for verdict in one.verdicts),
        variant_results=tuple(variant_result for _, one in reports for variant_result in one.variant_results),
        skips=tuple(skip for _, one in reports for skip in one.skips),
        profiles=tuple(profile for _, one in reports for profile in one.profiles),
        rounds=tuple(rounds for _, one in reports for rounds in one.rounds),
        wall_seconds=max(one.wall_seconds for _, one in reports),
        seconds_by_phase=_summed([one.seconds_by_phase for _, one in reports]),
        seconds_by_case=_summed([one.seconds_by_case for _, one in reports]),
        interrupted=any(one.interrupted for _, one in reports),
        due=tuple(name for _, one in reports for name in one.due),
        shard=None,
    )


def _summed(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for row in rows:
        for name, seconds in row.items():
            total[name] += seconds
    return dict(total)


def _shard(name: str, report: Report) -> JSON:
    if report.shard is None:
        raise ReportError(f"{name} is not a shard's report: it was measured without --shard")
    if report.gap:
        raise ReportError(f"{name} cannot be merged: {report.gap}")
    return report.shard


def _sides(report: Report, *, known: bool = True) -> JSON:
    """Select the facts of the sides that must be equal in all shards: what they are if ``known``, or should be."""
    if not known:
        return {name: {key: side.get(key) for key in ("spec", "slowdown")} for name, side in report.sides.items()}
    kept = ("spec", "slowdown", "python", "packages", "settings")
    return {
        name: {key: side.get(key) for key in kept}
        | {"machine": {key: side.get("machine", {}).get(key) for key in KIND}}
        for name, side in report.sides.items()
    }


def _one_each(of: int, indices: Sequence[tuple[str, int]]) -> None:
    seen: dict[int, str] = {}
    for name, index in indices:
        if index in seen:
            raise ReportError(f"{seen[index]} and {name} are both shard {index}/{of}")
        seen[index] = name
    if missing := [index for index in range(1, of + 1) if index not in seen]:
        which = ", ".join(f"{index}/{of}" for index in missing)
        raise ReportError(f"shard {which} never reported: its job failed, or its report was not uploaded")


def _complete(shards: Sequence[tuple[str, JSON, Report]]) -> None:
    owner: dict[str, str] = {}
    for name, shard, report in shards:
        for case in shard["cases"]:
            if case in owner:
                raise ReportError(f"{case} is in {owner[case]} and in {name}")
            owner[case] = name
        if silent := sorted(set(shard["cases"]) - set(report.due)):
            raise ReportError(f"{name} has no row for its case {silent[0]}{_more(silent)}")
        collected = {name for name in report.due if "::" in name}  # the others stand for files that are broken
        if strange := sorted(collected - set(shard["cases"])):
            raise ReportError(f"{name} has a verdict on {strange[0]}{_more(strange)}, a case of another shard")
    suite, count = shards[0][1]["suite"], shards[0][1]["suite_cases"]
    if len(owner) != count or digest(owner) != suite:
        raise ReportError(f"the shards have {len(owner)} cases together, the suite has {count}")


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


# Confirming


def confirm(first: Report, second: Report) -> Report:
    """Return the first report with its regressions confirmed by an independent second run in fresh processes.

    A regression becomes inconclusive if the second run compared the case again and did not find it. Whatever the
    second run could not compare stays regressed, because missing data never counts as a pass.

    Raises:
        ReportError: The second run did not come to its end, or had another policy or other sides than the first.
    """
    if second.gap:
        raise ReportError(f"the second run confirms nothing: {second.gap}")
    for what, mine, theirs in (("policy", first.policy, second.policy), ("sides", _sides(first), _sides(second))):
        if mine != theirs:
            raise ReportError(f"the second run confirms nothing: its {what} differ from those of the first")
    again = {(verdict.case.name, verdict.metric): verdict for verdict in second.verdicts}
    verdicts = tuple(_confirmed(verdict, again) for verdict in first.verdicts)
    return replace(first, verdicts=verdicts, profiles=(*first.profiles, *second.profiles))


def _confirmed(verdict: Verdict, again: Mapping[tuple[str, str], Verdict]) -> Verdict:
    if verdict.outcome is not Outcome.REGRESSED:
        return verdict
    other = again.get((verdict.case.name, verdict.metric))
    first = verdict.reason.message
    if other is None:
        return replace(verdict, reason=Reason(verdict.reason.code, f"{first}; a second job has no row for it"))
    compared = other.ratio is not None or (other.values is not None and None not in other.values)
    cleared = other.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED)
    if not cleared and not (compared and other.outcome is Outcome.INCONCLUSIVE):
        what = "confirms it" if other.outcome is Outcome.REGRESSED else f"could not compare it, {other.outcome}"
        return replace(
            verdict, reason=Reason(verdict.reason.code, f"{first}; a second job {what}: {other.reason.message}")
        )
    text = f"first job: {first}; a second job did not confirm it: {other.outcome}, {other.reason.message}"
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=Reason(ReasonCode.NOT_CONFIRMED, text))
