"""The page of a run: what matters first, then every case, with its rounds, metrics and profiles on demand."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tfbench.model import JSON, TIME, Outcome, Rate, Ratio, Report, Verdict
from tfbench.model.measurement import by_side
from tfbench.model.words import duration, times
from tfbench.report import page
from tfbench.report import summary as summaries
from tfbench.untrusted import command, plural

_MOST = 100
"""Cases per table of the first page. The table of all cases has the rest."""
_SKIPS = 20
_COLOURS: Mapping[Outcome, str] = {
    Outcome.REGRESSED: "bad", Outcome.IMPROVED: "good", Outcome.INCONCLUSIVE: "open", Outcome.UNCHANGED: "first",
}  # fmt: skip
_QUIET = (Outcome.UNCHANGED, Outcome.NEW)
_AS_VARIANT = {Outcome.REGRESSED: "slower", Outcome.IMPROVED: "faster", Outcome.UNCHANGED: "same", None: "reference"}


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page shows beside its report."""

    false_alarms: Rate | None = None
    """Verdicts on unchanged code that were changes, as ``tfbench calibrate`` measured on this machine."""
    versions: summaries.CaseTable | None = None
    notes: Sequence[str] = field(default=())
    """Remarks on the source of the data."""
    shared: bool = False
    """Whether the report may be a stranger's, see `tfbench.report.summary.command_words`."""
    strict: bool = False
    """Whether the run was gated strictly, see `tfbench.ruling.rule`."""


def render(report: Report, context: PageContext | None = None) -> str:
    """Render the page of a report. Raises `UsageError` if the chart library is not installed."""
    context = context or PageContext()
    summary = summaries.summarize(report, shared=context.shared, strict=context.strict)
    others = [verdict for verdict in report.verdicts if verdict.metric != TIME]
    changed = [verdict for verdict in others if verdict.outcome not in _QUIET]
    names, cases = _case_details(report, summary, context.shared)
    shown = [finding.case.name for group in summary.findings.values() for finding in group]
    raced = {row.case for row in report.rounds}
    first = next((name for name in (*shown, *names) if name in raced), names[0] if names else "")
    # Section -> its title, and its data. A section without data is left out.
    parts: dict[str, tuple[str, object]] = {
        "overview": ("Overview", True),
        "ratios": ("Ratios", _ratios(report, summary)),
        "case": ("One case", names),
        "variants": ("Variants", _variants(report)),
        "metrics": ("Other metrics", others and _metrics("Changes of other metrics, and of the graphs.", changed, named=True)),
        "versions": ("Side by side", _versions(context.versions)),
        "cases": ("All cases", _all_cases(report, summary, Counter(verdict.case.name for verdict in changed))),
    }  # fmt: skip
    sections = {name: title for name, (title, content) in parts.items() if content}
    data = {name: content for name, (_, content) in parts.items() if isinstance(content, (dict, page.DataGrid))}
    against = report.sides.get("baseline", {}).get("spec")
    known = all("packages" in report.sides.get(name, {}) for name in ("baseline", "contender"))

    return page.render_page(
        "report.html", sections, data | page.case_data(names, cases, first),
        scripts=("report.js",), title="Performance report", subtitle=f"{summary.headline}{f'; against {against}' if against else ''}",
        summary=summary, most=_MOST, times=times, duration=duration,
        warnings=list(_warnings(report, summary)), notes=context.notes, facts=list(_facts(report, summary, context.false_alarms)),
        differences=summaries.differences(report.sides), yardstick=summaries.yardstick_lines(report), heading=summaries.YARDSTICK, compared=known, skipped=summaries.skip_lines(report, _SKIPS),
        report=report, others=len(others), changed=len(changed),
    )  # fmt: skip


# The first section: counts, significant changes, what is inconclusive, how sides differ


def _warnings(report: Report, summary: summaries.Summary) -> Iterator[str]:
    if summary.reason:
        yield f"{summary.reason}."
    if report.shard is not None:
        yield f"This is shard {report.shard['index']} of {report.shard['of']} of a suite: combine them with tfbench report or gate."
    if float(report.sides.get("contender", {}).get("slowdown") or 0) > 0:
        yield f"The contender did {report.sides['contender']['slowdown']:.0%} extra work on purpose (--inject-slowdown)."


def _facts(report: Report, summary: summaries.Summary, false_alarms: Rate | None) -> Iterator[tuple[str, str]]:
    yield from summaries.mean_lines(report, summary)
    alarms = "not measured: run tfbench calibrate on it"
    if false_alarms is not None:
        rate = f"{false_alarms.hits} of {false_alarms.trials} verdicts on unchanged code"
        alarms = f"{rate}, at most {false_alarms.high:.2%} (95% confidence)"
    if not report.is_saved:
        yield "false alarms of this machine", alarms
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


def _case_details(report: Report, summary: summaries.Summary, shared: bool) -> tuple[list[str], list[JSON]]:
    """Return the names of all cases, and what the page shows of each."""
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in report.verdicts:
        rows[verdict.case.name].append(verdict)
    results = {result.case.name for result in report.variant_results}
    rounds = by_side(report.rounds)
    profiles: dict[str, list[JSON]] = defaultdict(list)
    for profile in report.profiles:
        profiles[profile["case"]].append(_profile(profile))
    causes = {finding.case.name: finding.causes for findings in summary.findings.values() for finding in findings}
    names = list(dict.fromkeys((*rows, *results, *rounds)))
    cases = []
    for name in names:
        stored = rounds.get(name, {})
        facts = list(_timing(rows.get(name, ())))
        facts += [(f"median, {side}", duration(numbers.median_seconds), "") for side, numbers in stored.items()]
        facts += [("cause", cause, "") for cause in causes.get(name, ())]
        if name in rows and (again := command(*summaries.command_words(report, rows[name][0], shared=shared))):
            facts.append(("race it again", again, "command"))
        needed = ("median_seconds", "launches", "every", "steps")
        sides = {side: {what: getattr(numbers, what) for what in needed} for side, numbers in stored.items()}
        metrics = [verdict for verdict in rows.get(name, ()) if verdict.metric != TIME]
        grids = [_metrics("Metrics other than time, with the differences of the graphs.", metrics)] if metrics else []
        cases.append({"facts": facts, "rounds": sides, "grids": grids, "profiles": profiles.get(name, ())})
    return names, cases


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
    """Return what a page shows of a profile: causes, the time of each category, and the longest kinds of work."""
    spent = [("category", "text"), ("time per step", "seconds")]
    works = [("what", "text"), ("where", "text"), ("time per step", "seconds"), ("calls", "number")]
    rows = [[part["kind"], part["category"], part["seconds"], part["calls"]] for part in profile.get("parts", ())]
    parts: list[tuple[str, object]] = [("text", line) for line in profile["why"]]
    parts.append(("grid", page.DataGrid("Time", spent, [[*pair] for pair in profile.get("time", {}).items()])))
    parts.append(("grid", page.DataGrid("Longest work", works, rows)))
    parts.append(("text", f"all of it: {command('xprof', profile['folder'])}"))
    return {"title": f"Profile of the {profile['side']}", "parts": parts}


# The other sections


def _ratios(report: Report, summary: summaries.Summary) -> JSON | None:
    """Return the chart of all ratios, as the script of the page draws it."""
    rows = summaries.report_times(report.verdicts)
    usable = [(row, row.ratio) for row in rows if row.ratio and 0 < row.ratio.center < math.inf]
    if not usable:
        return None
    ranked = list(enumerate(sorted(usable, key=lambda item: item[1].center), 1))
    ranked.sort(key=lambda item: list(Outcome).index(item[1][0].outcome))
    series = []
    for outcome, group in groupby(ranked, lambda item: item[1][0].outcome):
        ranks, pairs = zip(*group, strict=True)
        labels, ratios = [finding.case.short_name for finding, _ in pairs], [ratio for _, ratio in pairs]
        series.append({
            "name": str(outcome), "x": ranks, "y": [ratio.center for ratio in ratios], "style": "points", "colour": _COLOURS.get(outcome, "quiet"),
            "low": [max(ratio.low, 1e-9) for ratio in ratios], "high": [ratio.high for ratio in ratios], "labels": labels,
        })  # fmt: skip
    caption = (
        "The ratio of each case (new time / old time) with its interval, the fastest first. The dashed lines are the "
        "thresholds: a regression lies above the upper one with its whole interval."
    )
    bounds, names = _bounds([ratio for _, ratio in usable], summary.limits), ("faster below", "slower above")
    limits = zip(names, summary.limits, ("good", "bad"), strict=True)
    return {
        "caption": caption, "series": series, "height": 380, "x": {"label": "case, by ratio", "unit": "", "scale": "linear", "bounds": None},
        "y": {"label": "ratio", "unit": "ratio", "scale": "log", "bounds": bounds},
        "limits": [{"name": name, "value": value, "axis": "y", "colour": colour} for name, value, colour in limits],
    }  # fmt: skip


def _bounds(ratios: Sequence[Ratio], limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the axis of ratios: an interval that is far wider than the others would flatten them all."""
    low, high = min(ratio.center for ratio in ratios), max(ratio.center for ratio in ratios)
    margin = max(limits[1] ** 2, (high / low) ** 0.5)
    ends = [end for ratio in ratios for end in (ratio.low, ratio.high) if low / margin <= end <= high * margin]
    return min(low, limits[0], *ends) / limits[1] ** 0.5, max(high, limits[1], *ends) * limits[1] ** 0.5


def _variants(report: Report) -> page.DataGrid | None:
    """Return the times of all variants, those of a workload together and its reference first."""
    results = report.variant_results
    if not results:
        return None
    compared = any(result.ratio for result in results)
    columns = [("workload", "choice"), ("variant", "case"), ("time", "share"), ("median", "seconds")]
    columns += [("ratio to reference", "interval"), ("verdict", "outcome")] if compared else []
    longest: dict[str, float] = defaultdict(float)
    for result in results:
        longest[result.case.group] = max(longest[result.case.group], result.median_seconds)
    rows = []
    for result in sorted(results, key=lambda result: (result.case.group, result.case.name != result.reference)):
        group, median = result.case.group, result.median_seconds
        ratio = (_ends(result.ratio), _AS_VARIANT.get(result.outcome, str(result.outcome))) if compared else ()
        rows.append([group.rpartition("::")[2], result.case.name, median / longest[group], median, *ratio])
    return page.DataGrid("All variants. The bars of a workload have the same scale.", columns, rows)


def _ends(ratio: Ratio | None) -> tuple[float, float, float] | None:
    return None if ratio is None else (ratio.low, ratio.center, ratio.high)


def _metrics(caption: str, rows: Sequence[Verdict], *, named: bool = False) -> page.DataGrid:
    """Return verdicts as a table, with the names of their cases where they are of several."""
    columns = (("case", "case"), ("metric", "text"), ("verdict", "outcome"), ("old", "number"), ("new", "number"), ("unit", "unit"), ("why", "text"))  # fmt: skip
    cells = [
        (row.case.name, row.metric, row.outcome, *(row.values or (None, None)), row.unit, summaries.explanation(row))
        for row in rows
    ]
    first = 0 if named else 1
    return page.DataGrid(caption, columns[first:], [row[first:] for row in cells])


def _versions(cases: summaries.CaseTable | None) -> page.DataGrid | None:
    if cases is None:
        return None
    columns = [("case", "text"), *((label, "heat") for label in cases.labels)]
    return page.DataGrid(cases.caption, columns, [[name, *ratios] for name, ratios in cases.ratios.items()])


def _all_cases(report: Report, summary: summaries.Summary, changes: Counter[str]) -> page.DataGrid:
    medians: dict[str, dict[str, float]] = defaultdict(dict)
    for row in report.rounds:
        medians[row.case][row.side] = row.median_seconds
    for result in report.variant_results:
        medians[result.case.name].setdefault("contender", result.median_seconds)
    columns = (
        ("case", "case"), ("verdict", "outcome"), ("old", "seconds"), ("new", "seconds"), ("ratio", "interval"),
        ("launches", "number"), ("cost", "seconds"), ("changed metrics", "number"),
    )  # fmt: skip
    rows: list[Sequence[object]] = [
        [
            row.case.name, row.outcome, *(medians[row.case.name].get(side) for side in ("baseline", "contender")),
            _ends(row.ratio), row.launches, row.wall_seconds, changes[row.case.name],
        ]
        for row in summaries.report_times(report.verdicts)
    ]  # fmt: skip
    rows += [[skip.case.name, "skipped", None, None, None, None, None, None] for skip in report.skips]
    caption = "All cases. A heading sorts, and the filter takes parts of names."
    return page.DataGrid(caption, columns, rows, limits=summary.limits)
