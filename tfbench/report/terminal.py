"""Render a report for the terminal, at the end of a run."""

from __future__ import annotations

import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import TIME, Case, Outcome, ReasonCode, Report, VariantResult, Verdict
from tfbench.report.differences import differences
from tfbench.report.screen import Screen
from tfbench.report.style import COLOURS, add_columns, add_row, table
from tfbench.report.units import duration, joules, percent, rate, size, times

Row = TypeVar("Row", VariantResult, Verdict)
Column = tuple[str, str, Callable[[float], str]]
_EXTRA: tuple[tuple[Column, int], ...] = (
    (("first_call", "first call", duration), 100),
    (("peak_host_memory", "memory", size), 100),
    (("accuracy", "accuracy", "{:.1%}".format), 120),
    (("artifact_bytes", "size", size), 120),
    (("artifact_gzipped_bytes", "gzipped", size), 120),
    (("p90", "p90", duration), 130),
    (("dispatch_time", "dispatch", duration), 110),
    (("device_share", "on device", percent), 110),
    (("energy", "energy", joules), 120),
    (("share", "% of roofline", percent), 115),
)
"""Optional columns of the table of variants: fact, heading and format, and the minimum width of the terminal."""
_MOVED = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.MISSING, Outcome.ERROR)
"""Outcomes that are worth a line each; of the others there are many."""
_SAID = (Outcome.UNCHANGED, Outcome.NEW, Outcome.REGRESSED, Outcome.ERROR)
"""Outcomes without a line for their reason: it is of no interest, or the failed test has printed it."""
_REASONS = 10
"""Maximum lines of reasons."""
_MEASURED: dict[str, str] = {ReasonCode.NO_BASELINE: "measured", ReasonCode.CONTRACT_HELD: "contracts held"}
"""Reasons that say more than their outcomes."""
_LEAST_SHARE = 0.005
"""Share of the wall time that a phase must have to be printed."""
_LONG_SECONDS = 60.0
"""Wall time of a run whose most expensive cases are printed."""
_COSTLY_CASES = 3
"""Maximum number of these cases."""
_ESTIMATED = "~"
_ESTIMATE = (
    f"{_ESTIMATED} the median of the reference times the ratio: noise between the launches moved one of the two medians, "
    "and the ratio compares turns of the same moment"
)
_RATIO_COLOURS: dict[Outcome | None, str] = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green"}
_WORK = (("flops", "FLOP/s"), ("items", "items/s"), ("bytes", "B/s"))


def render(report: Report, *, width: int, colour: bool) -> str:
    """Render the variants of each workload, then the verdicts, the skipped cases and the costs.

    Args:
        width: Characters per line.
    """
    parts: list[RenderableType] = [Text(f"differs: {line}", "dim") for line in differences(report.sides)]
    extra = [column for column, least in _EXTRA if width >= least]
    variants = _grouped(report.variant_results, lambda case: case.group)
    parts += [_variant_results(group, rows, extra) for group, rows in variants.items()]
    judged = [verdict for verdict in report.verdicts if verdict.reason.code != ReasonCode.NO_BASELINE]
    timed = _grouped((one for one in judged if one.metric == TIME), lambda case: case.group.partition("[")[0])
    parts += [_verdicts(group, rows) for group, rows in timed.items()]
    moved = (verdict for verdict in judged if verdict.metric != TIME and verdict.outcome in _MOVED)
    parts += [_other_metrics(rows) for rows in _grouped(moved, lambda case: case.name).values()]
    parts += _reasons(verdict for verdict in judged if verdict.metric == TIME or verdict.outcome not in _MOVED)
    parts += [Text(f"skipped {skip.case.name}: {skip.reason}", "yellow") for skip in report.skips]
    if others := _counts(verdict for verdict in report.verdicts if verdict.metric != TIME):
        parts.append(Text(f"other metrics: {', '.join(others)}"))
    parts += map(Text, _costs(report))
    parts.append(Text(_summary(report), "bold"))
    text = io.StringIO()
    Screen(
        file=text, width=width, force_terminal=colour, no_color=not colour,
        color_system="standard" if colour else None, legacy_windows=False,
    ).print(Group(*parts))  # fmt: skip
    return text.getvalue()


def _reasons(verdicts: Iterable[Verdict]) -> list[Text]:
    """Print why verdicts are open, missing or better, a line each."""
    found = [verdict for verdict in verdicts if verdict.outcome not in _SAID]
    lines = [
        Text.assemble(
            _outcome_cell(one), f" {one.metric} of " * (one.metric != TIME) or " ", f"{one.case.short_name}: "
        )
        + Text(one.reason.message.partition("\n")[0])
        for one in found[:_REASONS]
    ]
    more = len(found) - _REASONS
    return lines + [Text(f"and {more} more: --report-json has them all")] * (more > 0)


def _summary(report: Report) -> str:
    words = _counts(verdict for verdict in report.verdicts if verdict.metric == TIME)
    if report.skips:
        words.append(f"{len(report.skips)} skipped")
    interrupted = "interrupted: " if report.interrupted else ""
    counts = ", ".join(words) or "no cases"
    return f"{interrupted}{counts} in {report.wall_seconds:.0f} s (policy {report.policy['name']})"


def _costs(report: Report) -> list[str]:
    """Say what the wall time was spent on, and in a long run which cases cost most."""
    total = sum(report.seconds_by_phase.values())
    if not report.seconds_by_case or not total:
        return []
    shares = {phase: seconds / total for phase, seconds in report.seconds_by_phase.items()}
    words = [f"{shares[phase]:.0%} {phase}" for phase in _dearest(shares) if shares[phase] >= _LEAST_SHARE]
    lines = [f"time: {', '.join(words)}"]
    if total > _LONG_SECONDS and len(report.seconds_by_case) > 1:
        cases = _dearest(report.seconds_by_case)[:_COSTLY_CASES]
        costs = [f"{name.rpartition('::')[2]} {report.seconds_by_case[name]:.0f} s" for name in cases]
        lines.append(f"most expensive cases: {', '.join(costs)}")
    return lines


def _dearest(costs: Mapping[str, float]) -> list[str]:
    return sorted(costs, key=lambda name: -costs[name])


def _counts(verdicts: Iterable[Verdict]) -> list[str]:
    counts = Counter(_MEASURED.get(verdict.reason.code, str(verdict.outcome)) for verdict in verdicts)
    order = [*map(str, Outcome), *_MEASURED.values()]
    return [f"{counts[word]} {word}" for word in order if word in counts]


def _grouped(rows: Iterable[Row], name: Callable[[Case], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[name(row.case)].append(row)
    return groups


def _case_table(group: str, case: Case) -> Table:
    """Create a table with the column of levels, which has the axes as its heading."""
    made = table(group.rpartition("::")[2])
    add_columns(made, ", ".join(case.levels) or "variant", fold=True)
    return made


def _levels(case: Case) -> str:
    others = case.group.partition("[")[2].removesuffix("]")
    return ", ".join(filter(None, (*case.levels.values(), others))) or "-"


def _variant_results(group: str, results: list[VariantResult], columns: Iterable[Column]) -> RenderableType:
    made = _case_table(group, results[0].case)
    add_columns(made, "median", "ratio to reference", "launches", right=True)
    extra = [column for column in columns if any(column[0] in result.facts for result in results)]
    add_columns(made, *(heading for _, heading, _ in extra), right=True)
    work = next((one for one in _WORK if any(one[0] in result.facts for result in results)), None)
    if work:
        add_columns(made, "rate", right=True)
    references = {result.case.name: result.median_seconds for result in results}
    estimated = False
    for result in sorted(results, key=lambda result: result.case.name != result.reference):
        facts, seconds = result.facts, result.median_seconds
        if replaced := _contradicted(result, references.get(result.reference)):
            seconds, estimated = replaced, True
        shown = f"{_ESTIMATED}{duration(seconds)}" if replaced else duration(seconds)
        cells: list[str | Text] = [_levels(result.case), shown, _ratio_cell(result), str(result.launches)]
        cells += [words(facts[fact]) if fact in facts else "" for fact, _, words in extra]
        if work:
            cells.append(rate(facts[work[0]] / seconds, work[1]) if facts.get(work[0]) else "")
        add_row(made, *cells)
    return Group(made, Text(_ESTIMATE, "dim")) if estimated else made


def _contradicted(result: VariantResult, reference: float | None) -> float | None:
    """Return the reference's median times the ratio if the two medians contradict the interval of the ratio.

    Medians of different launches are not paired: noise that lasts longer than a launch moves one of them.
    """
    ratio = result.ratio
    if reference is None or ratio is None or not 0 < ratio.center < math.inf:
        return None
    return None if ratio.low <= result.median_seconds / reference <= ratio.high else reference * ratio.center


def _ratio_cell(result: VariantResult) -> Text:
    if result.ratio is None:
        return Text("reference" if result.case.variant else "-", "dim")
    return Text(times(result.ratio), _RATIO_COLOURS.get(result.outcome, ""))


def _outcome_cell(verdict: Verdict) -> Text:
    return Text(str(verdict.outcome), COLOURS[verdict.outcome])


def _verdicts(group: str, verdicts: list[Verdict]) -> Table:
    made = _case_table(group, verdicts[0].case)
    add_columns(made, "verdict")
    add_columns(made, "ratio to baseline", "launches", "time", right=True)
    for verdict in verdicts:
        ratio = times(verdict.ratio) if verdict.ratio else "-"
        cost = (str(verdict.launches), f"{verdict.wall_seconds:.1f} s")
        add_row(made, _levels(verdict.case), _outcome_cell(verdict), ratio, *cost)
    return made


def _other_metrics(verdicts: list[Verdict]) -> Table:
    made = table(f"{verdicts[0].case.short_name}, other metrics")
    add_columns(made, "metric", "verdict")
    add_columns(made, "what", fold=True)
    for verdict in verdicts:
        add_row(made, verdict.metric, _outcome_cell(verdict), verdict.reason.message)
    return made
