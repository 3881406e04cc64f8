"""Render the first section of a run's page: counts, significant changes, what is inconclusive, how sides differ."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from tfbench.model import JSON, TIME, Outcome, Rate, Ratio, Report
from tfbench.report.differences import code_of_side, differences
from tfbench.report.html.page import PageSection, paragraph, text
from tfbench.report.summary import CaseFinding, Group, Summary
from tfbench.report.units import duration, position, times

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
    parts += [_tiles(summary.counts), _facts(report, summary, false_alarms), _environment(report.sides)]
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


def _facts(report: Report, summary: Summary, false_alarms: Rate | None) -> str:
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
        f'<td class="n" data-label="old">{old}</td><td class="n" data-label="new">{"~" * one.estimated}{new}</td>'
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
        f"<li>{text(reason)}: {len(names)} case{'s' * (len(names) > 1)}, such as {text(names[0])}</li>"
        for reason, names in list(reasons.items())[:_SKIPS]
    )
    more = len(reasons) - _SKIPS
    rest = f"<li>and {more} other reasons</li>" if more > 0 else ""
    return f"<details><summary>{len(report.skips):,} skipped cases</summary><ul>{items}{rest}</ul></details>"
