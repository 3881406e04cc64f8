"""The page of a run."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tfbench.model import JSON, TIME, Outcome, Rate, Ratio, Report, StoredRounds, VariantResult, Verdict
from tfbench.model.measurement import by_side
from tfbench.model.words import duration, times
from tfbench.report.comment import code_of_side, differences
from tfbench.report.html.page import (
    LOG,
    RATIO,
    Chart,
    ChartAxis,
    DataGrid,
    Limit,
    PageSection,
    Series,
    case_section,
    chart_place,
    number,
    paragraph,
    render_page,
    roofline,
    table_place,
    text,
)
from tfbench.report.summary import (
    CaseFinding,
    Group,
    Summary,
    VersionTimes,
    command_for,
    explanation,
    position,
    report_times,
    summarize,
)
from tfbench.untrusted import plural, printable

# Collect everything about each case, which a page shows when a reader opens the case


_ROWS = 20
"""Rows of a profile's table that a page shows. The profile's folder has all."""


def case_details(report: Report, summary: Summary, shared: bool = False) -> tuple[list[str], list[JSON]]:
    """Return the names of all cases, and what a page shows of each.

    Args:
        shared: Whether the report may be a stranger's, see `command_for`.
    """
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for one in report.verdicts:
        rows[one.case.name].append(one)
    results = {one.case.name: one for one in report.variant_results}
    rounds = by_side(report.rounds)
    profiles: dict[str, list[JSON]] = defaultdict(list)
    for profile in report.profiles:
        profiles[profile["case"]].append(profile)
    causes = {one.case.name: one.causes for found in summary.findings.values() for one in found}
    names = list(dict.fromkeys((*rows, *results, *rounds)))
    made = [
        {
            "case": name,
            "verdicts": [_verdict(one) for one in rows.get(name, ())],
            "causes": [printable(cause) for cause in causes.get(name, ())],
            "command": command_for(report, rows[name][0], shared=shared) if name in rows else "",
            "rounds": {side: _rounds(one) for side, one in rounds.get(name, {}).items()},
            "facts": _facts(results[name].facts) if name in results else {},
            "profiles": [_profile(one) for one in profiles.get(name, ())],
        }
        for name in names
    ]
    return names, made


def _verdict(one: Verdict) -> JSON:
    before, now = one.values or (None, None)
    ratio = one.ratio and [number(one.ratio.low), number(one.ratio.center), number(one.ratio.high)]
    return {
        "metric": printable(one.metric), "outcome": str(one.outcome), "why": printable(explanation(one)),
        "ratio": ratio, "launches": one.launches, "rounds": one.rounds, "seconds": one.wall_seconds,
        "old": number(before), "new": number(now), "unit": printable(one.unit), "time": one.metric == TIME,
    }  # fmt: skip


def _rounds(one: StoredRounds) -> JSON:
    return {"median": one.median_seconds, "launches": list(one.launches), "every": one.every, "steps": one.steps}


def _facts(facts: JSON) -> JSON:
    """Return the facts that are numbers or short texts."""
    usable = {key: value for key, value in facts.items() if isinstance(value, (int, float, str)) and value != ""}
    return {
        printable(key): printable(value[:200]) if isinstance(value, str) else number(value)
        for key, value in usable.items()
    }


def _profile(profile: JSON) -> JSON:
    """Return what a page shows of a profile. The tables of another version of tfbench may have any form."""
    sections = []
    for section in profile.get("sections", []):
        if isinstance(section, dict):
            tables = [found for one in section.get("sheets") or [] if (found := _sheet(one)) is not None]
            notes = [printable(str(note)) for note in section.get("notes") or []]
            sections.append({"title": printable(str(section.get("title", ""))), "notes": notes, "tables": tables})
    side, why = str(profile.get("side", "")), [printable(str(line)) for line in profile.get("why", [])]
    return {
        "side": printable(side),
        "why": why,
        "folder": printable(str(profile.get("folder", ""))),
        "sections": sections,
    }


def _sheet(sheet: Any) -> JSON | None:
    try:
        columns = [(printable(str(one["name"])), printable(str(one["unit"]))) for one in sheet["columns"]]
        rows = [[_cell(value) for value in row][: len(columns)] for row in sheet["rows"][:_ROWS]]
        return {"title": printable(str(sheet["title"])), "columns": columns, "rows": rows}
    except (KeyError, TypeError):
        return None


def _cell(value: Any) -> str | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None if value is None else printable(str(value))[:200]
    return printable(value)[:200] if isinstance(value, str) else number(float(value))


# Render the first section of a run's page: counts, significant changes, what is inconclusive, how sides differ


_MOST = 100
"""Cases per table of the first page. The table of all cases has the rest."""
_SKIPS = 20
_HEADINGS: Mapping[Group, str] = {
    Group.ERRORS: "Errors and missing cases",
    Group.REGRESSIONS: "Regressions",
    Group.INCONCLUSIVE: "Inconclusive",
    Group.IMPROVEMENTS: "Improvements",
}
_ORDER = (Group.ERRORS, Group.REGRESSIONS, Group.IMPROVEMENTS, Group.INCONCLUSIVE)
_WIDTH, _HEIGHT = 100, 14
"""Size of an interval's drawing."""


def overview(report: Report, summary: Summary, false_alarms: Rate | None, notes: Sequence[str]) -> PageSection:
    """Render the section.

    Args:
        false_alarms: Verdicts on unchanged code that were changes, as ``tfbench calibrate`` measured on this machine.
        notes: Remarks on the source of the data.
    """
    parts = [f'<p class="headline">{text(summary.headline)}</p>']
    parts += [paragraph(warning, "warning") for warning in _warnings(report, summary)]
    parts += [paragraph(note) for note in notes]
    parts += [_tiles(summary.counts), _overview_facts(report, summary, false_alarms), _environment(report.sides)]
    for group in _ORDER:
        if findings := summary.findings[group]:
            parts.append(_table(group, findings, summary))
    if same := summary.counts.get(str(Outcome.UNCHANGED)):
        parts.append(paragraph(f"{same} unchanged cases are in the table of all cases.", "dim"))
    parts.append(_skipped(report))
    return PageSection("overview", "Overview", "".join(parts))


def _warnings(report: Report, summary: Summary) -> Iterable[str]:
    if summary.reason:
        yield f"{summary.reason}."
    if report.shard is not None:
        yield f"This is shard {report.shard['index']} of {report.shard['of']} of a suite: combine them with tfbench merge."
    if float(report.sides.get("contender", {}).get("slowdown") or 0) > 0:
        yield f"The contender did {report.sides['contender']['slowdown']:.0%} extra work on purpose (--inject-slowdown)."


def _tiles(counts: Mapping[str, int]) -> str:
    tiles = "".join(f'<li><b class="{text(word)}">{number:,}</b>{text(word)}</li>' for word, number in counts.items())
    return f'<ul class="tiles">{tiles}</ul>' if tiles else ""


def _overview_facts(report: Report, summary: Summary, false_alarms: Rate | None) -> str:
    rows: list[tuple[str, str]] = []
    if report.suite is not None:
        asked = f"find {report.suite.limit:.2%} (--gate-suite)"
        rows.append((asked, f"{report.suite.outcome}: {report.suite.reason.message}"))
    if summary.mean is not None:
        rows.append(("mean ratio", f"{times(summary.mean)}, 95% interval of {summary.compared} cases"))
    rows += [(f"mean ratio of {name}", times(mean)) for name, mean in summary.families.items()]
    if summary.could_hide > 0:
        share = f"up to {summary.could_hide:.1%}" if summary.could_hide < math.inf else "of any size"
        rows.append(("inconclusive cases could hide", f"a slowdown {share}"))
    alarms = "not measured: run tfbench calibrate on it"
    if false_alarms is not None:
        rate = f"{false_alarms.hits} of {false_alarms.trials} verdicts on unchanged code"
        alarms = f"{rate}, at most {false_alarms.high:.2%} (95% confidence)"
    rows.append(("false alarms of this machine", alarms))
    threshold = f"{summary.limits[1] - 1:.1%} (policy {report.policy.get('name') or 'unknown'})"
    rows.append(("threshold", threshold))
    rows += [(name, _side(side)) for name, side in sorted(report.sides.items())]
    if phases := {name: seconds for name, seconds in report.seconds_by_phase.items() if seconds >= 0.5}:
        spent = ", ".join(
            f"{name} {seconds:.0f} s" for name, seconds in sorted(phases.items(), key=lambda one: -one[1])
        )
        rows.append(("time", f"{report.wall_seconds:.0f} s: {spent}"))
    elif report.wall_seconds:
        rows.append(("time", f"{report.wall_seconds:.0f} s"))
    return f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in rows)}</dl>"


def _side(side: JSON) -> str:
    packages = side.get("packages") or {}
    versions = [
        f"{name} {packages[name]}" for name in sorted(packages) if name.startswith(("tensorflow", "keras", "tf"))
    ]
    machine = side.get("machine") or {}
    known = [
        side.get("spec"),
        side.get("tree") and code_of_side(side),
        side.get("python") and f"Python {side['python']}",
        *versions[:4],
    ]
    known += [machine.get("gpus") or machine.get("processor")]
    return ", ".join(str(one) for one in known if one) or "unknown"


def _environment(sides: Mapping[str, JSON]) -> str:
    if lines := differences(sides):
        items = "".join(f"<li>{text(line)}</li>" for line in lines)
        return f"<h3>The sides also differ in</h3><ul>{items}</ul>"
    if all("packages" in sides.get(name, {}) for name in ("baseline", "contender")):
        return paragraph("The environments of both sides are the same, apart from what is compared.", "dim")
    return ""


# Tables


def _table(group: Group, findings: Sequence[CaseFinding], summary: Summary) -> str:
    head = "".join(
        f'<th scope="col"{style}>{name}</th>'
        for name, style in (
            ("case", ""), ("verdict", ""), ("old", ' class="n"'), ("new", ' class="n"'), ("ratio", ' class="n"'),
            ("why" if group in (Group.ERRORS, Group.INCONCLUSIVE) else "cause", ""),
        )
    )  # fmt: skip
    rows = "".join(_row(one, summary.limits, summary.reach) for one in findings[:_MOST])
    more = len(findings) - _MOST
    rest = paragraph(f"And {more} more, in the table of all cases.", "dim") if more > 0 else ""
    name = _HEADINGS[group]
    return (
        f'<h3 id="{group.value}">{name} ({len(findings):,})</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{group.value}"><table class="cards">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{rest}"
    )


def _row(one: CaseFinding, limits: tuple[float, float], reach: float) -> str:
    verdict = one.verdict
    timed = one.timed
    ratio = f"{text(times(timed.ratio))}{drawing(timed.ratio, limits, reach)}" if timed.ratio else "–"
    old, new = (duration(value) if value else "–" for value in (one.old, one.new))
    metric = "" if verdict.metric == TIME else f" {text(verdict.metric)}"
    said = [text(cause) for cause in one.causes]
    said += [text(f"{row.outcome} {row.metric}") for row in one.unexplained]
    again = f'<details><summary>Race it again</summary><code class="command">{text(one.command)}</code></details>'
    return (
        f'<tr><td class="case">{case_link(one.case.name, one.case.short_name)}</td>'
        f'<td><span class="outcome {verdict.outcome}">{verdict.outcome}</span>{metric}</td>'
        f'<td class="n" data-label="old">{old}</td><td class="n" data-label="new">{"~" if one.estimated else ""}{new}</td>'
        f'<td class="n {timed.outcome}" data-label="ratio">{ratio}</td>'
        f'<td class="text">{"<br>".join(said) or "unknown"}{again if one.command else ""}</td></tr>'
    )


def case_link(name: str, shown: str = "") -> str:
    """Return a link that opens a case in the section of one case."""
    return f'<a href="#case={quote(name, safe="")}">{_breakable(shown or name)}</a>'


def _breakable(name: str) -> str:
    """Return a name whose lines break after its parts, and not within them."""
    return "<wbr>".join(text(part) for part in re.split(r"(?<=::|.[\[,/\]])", name) if part)


def drawing(ratio: Ratio, limits: tuple[float, float], reach: float) -> str:
    """Draw an interval with the thresholds as dashed lines. ``reach`` is the ratio at the right end."""

    def x(value: float) -> str:
        share = position(value, reach)
        return f"{_WIDTH * max(0.0, min(1.0, share)):.1f}" if not math.isnan(share) else "0"

    line = '<line x1="{0}" x2="{1}" y1="{2}" y2="{3}" stroke="currentColor" vector-effect="non-scaling-stroke"{4}/>'
    parts = [line.format(x(one), x(one), 1, _HEIGHT - 1, ' stroke-dasharray="2 2" opacity=".5"') for one in limits]
    parts.append(line.format(x(1.0), x(1.0), 0, _HEIGHT, ' opacity=".6"'))
    parts.append(line.format(x(ratio.low), x(ratio.high), _HEIGHT / 2, _HEIGHT / 2, ' stroke-width="3"'))
    if not math.isnan(ratio.center):
        parts.append(
            f'<rect x="{float(x(ratio.center)) - 1.2:.1f}" y="2.5" width="2.4" height="9" fill="currentColor"/>'
        )
    return (
        f'<svg class="interval" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _skipped(report: Report) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for skip in report.skips:
        reasons[skip.reason].append(skip.case.name)
    if not reasons:
        return ""
    items = "".join(
        f"<li>{text(reason)}: {plural(len(names), 'case')}, such as {text(names[0])}</li>"
        for reason, names in list(reasons.items())[:_SKIPS]
    )
    more = len(reasons) - _SKIPS
    rest = f"<li>and {more} other reasons</li>" if more > 0 else ""
    return f"<details><summary>{len(report.skips):,} skipped cases</summary><ul>{items}{rest}</ul></details>"


# Render the page of a run: what matters first, then every case, with its rounds, metrics and profiles on demand


_COLOURS: Mapping[Outcome, str] = {
    Outcome.REGRESSED: "bad", Outcome.IMPROVED: "good", Outcome.INCONCLUSIVE: "open", Outcome.UNCHANGED: "first",
}  # fmt: skip
_QUIET = (Outcome.UNCHANGED, Outcome.NEW)


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page shows beside its report."""

    title: str = "Performance report"
    false_alarms: Rate | None = None
    """Verdicts on unchanged code that were changes, as measured on this machine."""
    versions: VersionTimes | None = None
    notes: Sequence[str] = field(default=())
    shared: bool = False
    """Whether the report may be a stranger's, see `tfbench.report.summary.command_for`."""
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
