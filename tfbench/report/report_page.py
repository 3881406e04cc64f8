"""The page of a run: what matters first, then every case, with its rounds, metrics and profiles on demand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tfbench.model import JSON, TIME, Outcome, Ratio, Report, Verdict
from tfbench.model.measurement import by_side
from tfbench.model.words import duration, times
from tfbench.report import page
from tfbench.report import summary as summaries
from tfbench.untrusted import command, plural

_MOST = 100
"""Cases per table of the first page. The table of all cases has the rest."""
_QUIET = (Outcome.UNCHANGED, Outcome.NEW)


def render(
    report: Report, versions: summaries.CaseTable | None = None, notes: Sequence[str] = (), *, strict: bool = False
) -> str:
    """Render the page of a report. Raises `UsageError` if the chart library is not installed.

    Args:
        versions: Times of several files, of which the report is the last one.
        notes: Remarks on the source of the data.
        strict: Whether the run was gated strictly, see `tfbench.ruling.rule`.
    """
    summary = summaries.summarize(report, strict=strict)
    names, cases = _case_details(report, summary)
    shown = [finding.case.name for group in summary.findings.values() for finding in group]
    data = {"cases": _all_cases(report, summary), **page.case_data(names, cases, next(iter((*shown, *names)), ""))}
    sections = {"overview": "Overview", "case": "One case", "versions": "Side by side", "cases": "All cases"}
    if not names:
        del sections["case"]
    if versions is None:
        del sections["versions"]
    else:
        columns = [("case", "text"), *((label, "heat") for label in versions.labels)]
        rows = [[name, *ratios] for name, ratios in versions.ratios.items()]
        data["versions"] = page.DataGrid(versions.caption, columns, rows)
    against = report.sides.get("baseline", {}).get("spec")

    return page.render_page(
        "report.html", sections, data,
        scripts=("report.js",), title="Performance report", subtitle=f"{summary.headline}{f'; against {against}' if against else ''}",
        summary=summary, most=_MOST, times=times,
        warnings=list(_warnings(report, summary)), notes=notes, facts=list(_facts(report, summary)),
        differences=summaries.differences(report.sides), yardstick=summaries.yardstick_lines(report), heading=summaries.YARDSTICK, skipped=summaries.skip_lines(report),
        report=report,
    )  # fmt: skip


# The first section: counts, significant changes, what is inconclusive, how sides differ


def _warnings(report: Report, summary: summaries.Summary) -> Iterator[str]:
    if summary.reason:
        yield f"{summary.reason}."
    if float(report.sides.get("contender", {}).get("slowdown") or 0) > 0:
        yield f"The contender did {report.sides['contender']['slowdown']:.0%} extra work on purpose (--inject-slowdown)."


def _facts(report: Report, summary: summaries.Summary) -> Iterator[tuple[str, str]]:
    yield from summaries.mean_lines(report, summary)
    if not report.is_saved:
        yield "threshold", f"{summary.limits[1] - 1:.1%} (policy {report.policy.get('name') or 'unknown'})"
    for name, side in sorted(report.sides.items()):
        yield name, _side(side)
    if report.wall_seconds or report.seconds_by_phase:
        spent = summaries.time_spent(report)
        yield "time", f"{report.wall_seconds:.0f} s{f': {spent}' if spent else ''}"


def _side(side: JSON) -> str:
    packages = side.get("packages") or {}
    compared = [name for name in sorted(packages) if name.startswith(("tensorflow", "keras", "tf"))]
    machine = side.get("machine") or {}
    known = [
        side.get("spec"),
        side.get("tree") and summaries.code_of_side(side),
        side.get("python") and f"Python {side['python']}",
        *(f"{name} {packages[name]}" for name in compared[:4]),
        machine.get("gpus") or machine.get("processor"),
    ]
    return ", ".join(str(text) for text in known if text) or "unknown"


# One case: facts, rounds, tables of other metrics, profiles


def _case_details(report: Report, summary: summaries.Summary) -> tuple[list[str], list[JSON]]:
    """Return the names of all cases, and what the page shows of each."""
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in report.verdicts:
        rows[verdict.case.name].append(verdict)
    rounds = by_side(report.rounds)
    profiles: dict[str, list[JSON]] = defaultdict(list)
    for profile in report.profiles:
        profiles[profile["case"]].append(_profile(profile))
    cases = []
    for name, own in rows.items():
        stored = rounds.get(name, {})
        facts = list(_timing(own))
        facts += [(f"median, {side}", duration(numbers.median_seconds), "") for side, numbers in stored.items()]
        needed = ("median_seconds", "launches", "every", "steps")
        sides = {side: {what: getattr(numbers, what) for what in needed} for side, numbers in stored.items()}
        metrics = [verdict for verdict in own if verdict.metric != TIME]
        grids = [_metrics(metrics)] if metrics else []
        cases.append({"facts": facts, "rounds": sides, "grids": grids, "profiles": profiles.get(name, ())})
    return list(rows), cases


def _timing(rows: Sequence[Verdict]) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and style of the facts on the time of a case."""
    for verdict in summaries.report_times(rows)[:1]:
        yield "verdict", str(verdict.outcome), f"outcome {verdict.outcome}"
        yield "reason", summaries.explanation(verdict), ""
        if verdict.ratio:
            yield "ratio", times(verdict.ratio), ""
        if verdict.launches:
            size = plural(verdict.launches, "launch"), plural(verdict.rounds, "round"), duration(verdict.wall_seconds)
            yield "evidence", ", ".join(size), ""


def _profile(profile: JSON) -> JSON:
    """Return what a page shows of a profile: causes, and the time of each category."""
    spent = ", ".join(f"{name} {duration(seconds)}" for name, seconds in profile.get("time", {}).items())
    lines = [*profile["why"], f"time per step: {spent}", f"all of it: {command('xprof', profile['folder'])}"]
    return {"title": f"Profile of the {profile['side']}", "lines": lines}


# The other sections


def _ends(ratio: Ratio | None) -> tuple[float, float, float] | None:
    return None if ratio is None else (ratio.low, ratio.center, ratio.high)


def _metrics(rows: Sequence[Verdict]) -> page.DataGrid:
    columns = (("metric", "text"), ("verdict", "outcome"), ("old", "number"), ("new", "number"), ("unit", "unit"), ("why", "text"))  # fmt: skip
    cells = [
        (row.metric, row.outcome, *(row.values or (None, None)), row.unit, summaries.explanation(row)) for row in rows
    ]
    return page.DataGrid("Metrics other than time, with the differences of the graphs.", columns, cells)


def _all_cases(report: Report, summary: summaries.Summary) -> page.DataGrid:
    """Return the times of all cases, with their ratios to the baseline side, or to the reference variant without one."""
    changes = Counter(row.name for row in report.verdicts if row.metric != TIME and row.outcome not in _QUIET)
    to_reference = {result.case.name: result.ratio for result in report.variant_results}
    known = summaries.times_of(report)
    columns = (
        ("case", "case"), ("verdict", "outcome"), ("old", "seconds"), ("new", "seconds"), ("ratio", "interval"),
        ("launches", "number"), ("cost", "seconds"), ("changed metrics", "number"),
    )  # fmt: skip
    rows: list[Sequence[object]] = [
        [
            row.case.name, row.outcome, *known[row.name],
            _ends(row.ratio or to_reference.get(row.name)), row.launches, row.wall_seconds, changes[row.case.name],
        ]
        for row in summaries.report_times(report.verdicts)
    ]  # fmt: skip
    rows += [[skip.case.name, "skipped", None, None, None, None, None, None] for skip in report.skips]
    caption = "All cases, relative to the baseline side, or to the reference variant without one. A heading sorts, and the filter takes parts of names."
    return page.DataGrid(caption, columns, rows, limits=summary.limits)
