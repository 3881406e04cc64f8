"""Render the page of a run: what matters first, then every case, with its rounds, metrics and profiles on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.model import TIME, Outcome, Rate, Report, VariantResult, Verdict
from tfbench.model.rounds import by_side
from tfbench.report.html.charts import LOG, RATIO, Chart, ChartAxis, DataGrid, Limit, Series, number
from tfbench.report.html.details import case_details
from tfbench.report.html.overview import overview
from tfbench.report.html.page import PageSection, case_section, chart_place, paragraph, render_page, table_place, text
from tfbench.report.html.roofline import roofline
from tfbench.report.summary import Summary, report_times, summarize

_COLOURS: Mapping[Outcome, str] = {
    Outcome.REGRESSED: "bad", Outcome.IMPROVED: "good", Outcome.INCONCLUSIVE: "open", Outcome.UNCHANGED: "first",
}  # fmt: skip
_QUIET = (Outcome.UNCHANGED, Outcome.NEW)


@dataclass(frozen=True, slots=True)
class VersionTimes:
    """Times of cases under several versions, or in several files, relative to the first."""

    labels: Sequence[str]
    ratios: Mapping[str, Sequence[float | None]]
    """Name of a case -> a ratio for each label; ``None`` without a time."""
    caption: str


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page shows beside its report."""

    title: str = "Performance report"
    false_alarms: Rate | None = None
    """Verdicts on unchanged code that were changes, as measured on this machine."""
    versions: VersionTimes | None = None
    notes: Sequence[str] = field(default=())
    shared: bool = False
    """Whether the report may be a stranger's, see `tfbench.report.reproduce.command_for`."""
    strict: bool = False
    """Whether the run was gated strictly, see `tfbench.ruling.rule`."""


def render(report: Report, context: PageContext | None = None) -> str:
    """Render the page of a report.

    Raises:
        UsageError: The chart library is not installed.
    """
    context = context or PageContext()
    summary = summarize(report, shared=context.shared, strict=context.strict)
    sections, data = content_of(report, summary, context)
    side = report.sides.get("baseline", {}).get("spec")
    subtitle = f"{summary.headline}{f'; against {side}' if side else ''}"
    return render_page(context.title, sections, data, scripts=("report.js",), subtitle=subtitle)


def content_of(
    report: Report, summary: Summary, context: PageContext
) -> tuple[list[PageSection], dict[str, Any]]:  # fmt: skip
    """Return the sections of the page of a report, and the data of their charts and tables."""
    data: dict[str, Any] = {}
    absent: list[str] = []
    sections = [overview(report, summary, context.false_alarms, context.notes)]
    sections += _ratios(report, summary, data, absent)
    sections += _one_case(report, summary, context.shared, data, absent)
    sections += _variants(report, data, absent)
    sections += _other_metrics(report, data)
    sections += _roofline(report.variant_results, data, absent)
    sections += _versions(context.versions, data, absent)
    sections.append(_all_cases(report, summary, data))
    if absent:
        items = "".join(f"<li>{text(one)}</li>" for one in absent)
        sections.append(PageSection("absent", "Not in this report", f"<ul>{items}</ul>"))
    return sections, data


def _ratios(report: Report, summary: Summary, data: dict[str, Any], absent: list[str]) -> list[PageSection]:
    rows = [one for one in report_times(report.verdicts) if one.ratio is not None and number(one.ratio.center)]
    if not rows:
        absent.append("Ratios: no case was compared with a baseline. Run with --against SPEC or --baseline NAME.")
        return []
    rows.sort(key=lambda one: one.ratio.center if one.ratio else 0.0)
    series = []
    for outcome in dict.fromkeys((*_COLOURS, *Outcome)):
        some = [(rank, one) for rank, one in enumerate(rows, 1) if one.outcome is outcome]
        if some:
            ratios = [one.ratio for _, one in some if one.ratio]
            series.append(
                Series(
                    str(outcome), [rank for rank, _ in some], [ratio.center for ratio in ratios],
                    colour=_COLOURS.get(outcome, "quiet"), low=[max(ratio.low, 1e-9) for ratio in ratios],
                    high=[ratio.high for ratio in ratios], labels=[one.case.short_name for _, one in some],
                )
            )  # fmt: skip
    limits = [
        Limit("faster below", summary.limits[0], colour="good"),
        Limit("slower above", summary.limits[1], colour="bad"),
    ]
    caption = (
        "The ratio of each case (new time / old time) with its interval, the fastest first. The dashed lines are the "
        "thresholds: a regression lies above the upper one with its whole interval."
    )
    axes = ChartAxis("case, by ratio"), ChartAxis("ratio", RATIO, LOG, bounds=_bounds(rows, summary.limits))
    data["ratios"] = Chart(caption, *axes, series, limits, height=380).as_json()
    return [PageSection("ratios", "Ratios", chart_place("ratios"))]


def _bounds(rows: Sequence[Verdict], limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the axis of ratios: an interval that is far wider than the others would flatten them all."""
    ratios = [one.ratio for one in rows if one.ratio]
    low, high = min(one.center for one in ratios), max(one.center for one in ratios)
    margin = max(limits[1] ** 2, (high / low) ** 0.5)
    ends = [end for one in ratios for end in (one.low, one.high) if low / margin <= end <= high * margin]
    return min(low, limits[0], *ends) / limits[1] ** 0.5, max(high, limits[1], *ends) * limits[1] ** 0.5


def _one_case(
    report: Report, summary: Summary, shared: bool, data: dict[str, Any], absent: list[str]
) -> list[PageSection]:
    names, cases = case_details(report, summary, shared)
    if not names:
        return []
    raced = {one.case for one in report.rounds}
    found = [one.case.name for group in summary.findings.values() for one in group]
    first = next((name for name in (*found, *names) if name in raced), names[0])
    if not report.rounds:
        absent.append("Rounds and distributions: the source has no raw times.")
    return [case_section(names, cases, first, data)]


def _variants(report: Report, data: dict[str, Any], absent: list[str]) -> list[PageSection]:
    families: dict[str, list[VariantResult]] = {}
    for one in report.variant_results or _contenders(report):
        families.setdefault(one.case.group, []).append(one)
    if not families:
        absent.append("Variants: their times are measured in a run without --against and --baseline.")
        return []
    data["variants"] = [
        {
            "family": name.rpartition("::")[2],
            "rows": [
                [
                    one.case.name,
                    one.case.label if one.case.variant else one.case.short_name,
                    one.median_seconds,
                    *_interval(one),
                ]
                for one in sorted(some, key=lambda one: one.case.name != one.reference)
            ],
        }
        for name, some in families.items()
    ]
    ratios = "The ratio is relative to its reference variant."
    if not report.variant_results:
        ratios = "There are no ratios, because the sides raced in this run, and not the variants."
    place = (
        '<div class="controls"><label for="family">Family</label><select id="family"></select></div>'
        '<div id="variant-bars"></div>'
    )
    words = paragraph(f"Median time of each variant of a workload. {ratios}")
    return [PageSection("variants", "Variants", words + place)]


def _contenders(report: Report) -> list[VariantResult]:
    """Return the contender's times of the variants in a run against another side."""
    rounds = by_side(report.rounds)
    return [
        VariantResult(
            one.case, "", rounds[one.case.name]["contender"].median_seconds, None, None, one.launches, one.rounds
        )
        for one in report_times(report.verdicts)
        if one.case.variant and "contender" in rounds.get(one.case.name, {})
    ]


def _interval(one: VariantResult) -> tuple[list[float | None] | None, str]:
    if one.ratio is None:
        return None, "reference" if one.case.name == one.reference and one.case.variant else ""
    return [number(one.ratio.low), number(one.ratio.center), number(one.ratio.high)], str(one.outcome or "")


def _other_metrics(report: Report, data: dict[str, Any]) -> list[PageSection]:
    rows = [one for one in report.verdicts if one.metric != TIME]
    if not rows:
        return []
    changed = [one for one in rows if one.outcome not in _QUIET]
    said = paragraph(f"{len(rows):,} verdicts on other metrics, {len(changed):,} of them are not unchanged or new.")
    if not changed:
        return [PageSection("metrics", "Other metrics", said)]
    columns = (
        ("case", "case"),
        ("metric", "text"),
        ("verdict", "outcome"),
        ("old", "number"),
        ("new", "number"),
        ("why", "text"),
    )
    cells = [
        [one.case.name, one.metric, str(one.outcome), *(one.values or (None, None)), one.reason.message]
        for one in changed
    ]
    data["metrics"] = DataGrid("Changes of other metrics, and of the graphs.", columns, cells).as_json()
    return [PageSection("metrics", "Other metrics", said + table_place("metrics"))]


def _roofline(results: Sequence[VariantResult], data: dict[str, Any], absent: list[str]) -> list[PageSection]:
    chart = roofline(results)
    if chart is None:
        absent.append("Roofline: needs cases with flops and bytes, and the ceilings of the machine (test_ceilings).")
        return []
    data["roofline"] = chart.as_json()
    return [PageSection("roofline", "Roofline", chart_place("roofline"))]


def _versions(versions: VersionTimes | None, data: dict[str, Any], absent: list[str]) -> list[PageSection]:
    if versions is None:
        absent.append("Versions: add a file of tfbench versions --report-json to tfbench report.")
        return []
    columns = [("case", "text"), *((label, "heat") for label in versions.labels)]
    rows = [[name, *ratios] for name, ratios in versions.ratios.items()]
    data["versions"] = DataGrid(versions.caption, columns, rows).as_json()
    return [PageSection("versions", "Versions", table_place("versions"))]


def _all_cases(report: Report, summary: Summary, data: dict[str, Any]) -> PageSection:
    medians: dict[str, dict[str, float]] = {}
    for one in report.rounds:
        medians.setdefault(one.case, {})[one.side] = one.median_seconds
    for result in report.variant_results:
        medians.setdefault(result.case.name, {}).setdefault("contender", result.median_seconds)
    others: dict[str, int] = {}
    for row in report.verdicts:
        if row.metric != TIME and row.outcome not in _QUIET:
            others[row.case.name] = others.get(row.case.name, 0) + 1
    columns = (
        ("case", "case"), ("verdict", "outcome"), ("old", "seconds"), ("new", "seconds"), ("ratio", "interval"),
        ("launches", "number"), ("cost", "seconds"), ("changed metrics", "number"),
    )  # fmt: skip
    rows = [_case_row(one, medians.get(one.case.name, {}), others) for one in report_times(report.verdicts)]
    rows += [[skip.case.name, "skipped", None, None, None, None, None, None] for skip in report.skips]
    caption = "All cases. A heading sorts, and the filter takes parts of names."
    data["cases"] = DataGrid(caption, columns, rows, limits=summary.limits).as_json()
    return PageSection("cases", "All cases", table_place("cases") if rows else paragraph("No case was measured."))


def _case_row(one: Verdict, medians: Mapping[str, float], others: Mapping[str, int]) -> list[object]:
    ratio = one.ratio and [number(one.ratio.low), number(one.ratio.center), number(one.ratio.high)]
    return [
        one.case.name, str(one.outcome), medians.get("baseline"), medians.get("contender"), ratio, one.launches,
        one.wall_seconds, others.get(one.case.name, 0),
    ]  # fmt: skip
