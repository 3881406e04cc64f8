"""What stands at the end of a run on the terminal: tables as text."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import TIME, Case, Outcome, Report, VariantResult, Verdict
from tfbench.report.differences import differences
from tfbench.report.style import COLOURS, table
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
"""Facts of a case that its table shows if it has them, and characters that the terminal must have for it."""
_MOVED = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.MISSING, Outcome.ERROR)
"""Outcomes that are worth a line each; of the others there are many."""
_MEASURED = {"no-baseline": "measured", "contract-held": "contracts held"}
"""Reasons that say more than their outcomes."""
_WORK = (("flops", "FLOP/s"), ("items", "items/s"), ("bytes", "B/s"))


def render(report: Report, *, width: int, colour: bool) -> str:
    """The tables of a report: variants of each workload, then verdicts, then what was skipped."""
    parts: list[RenderableType] = [Text(f"differs: {line}", "dim") for line in differences(report.sides)]
    extra = [column for column, least in _EXTRA if width >= least]
    parts += [_variant_results(group, rows, extra) for group, rows in _grouped(report.variant_results, str).items()]
    judged = [verdict for verdict in report.verdicts if verdict.reason.code != "no-baseline"]
    timed = [verdict for verdict in judged if verdict.metric == TIME]
    parts += [_verdicts(group, rows) for group, rows in _grouped(timed, _function).items()]
    moved = [verdict for verdict in judged if verdict.metric != TIME and verdict.outcome in _MOVED]
    for case in dict.fromkeys(verdict.case.name for verdict in moved):
        parts.append(_other_metrics(case, [verdict for verdict in moved if verdict.case.name == case]))
    parts += [Text(f"skipped {skip.case.name}: {skip.reason}", "yellow") for skip in report.skips]
    if line := other_metrics(report):
        parts.append(Text(line))
    parts.append(Text(summary(report), "bold"))
    return _text(parts, width, colour)


def summary(report: Report) -> str:
    """One line: how many of what, and how long it took."""
    words = _counts([verdict for verdict in report.verdicts if verdict.metric == TIME])
    if report.skips:
        words.append(f"{len(report.skips)} skipped")
    interrupted = "interrupted: " if report.interrupted else ""
    return (
        f"{interrupted}{', '.join(words) or 'no case'} in {report.wall_seconds:.0f} s (policy {report.policy['name']})"
    )


def other_metrics(report: Report) -> str:
    """One line on the metrics other than time and the contracts, empty without any."""
    others = [verdict for verdict in report.verdicts if verdict.metric != TIME]
    return f"other metrics: {', '.join(_counts(others))}" if others else ""


def _counts(verdicts: Iterable[Verdict]) -> list[str]:
    counts: dict[str, int] = {}
    for verdict in verdicts:
        word = _MEASURED.get(verdict.reason.code, str(verdict.outcome))
        counts[word] = counts.get(word, 0) + 1
    order = [*map(str, Outcome), *_MEASURED.values()]
    return [f"{counts[word]} {word}" for word in order if word in counts]


def _grouped(rows: Iterable[Row], name: Callable[[str], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name(row.case.group), []).append(row)
    return groups


def _function(group: str) -> str:
    return group.partition("[")[0]


def _variant_column(table: Table, case: Case) -> None:
    """The axes are named once, above the levels."""
    table.add_column(", ".join(case.levels) or "variant", overflow="fold")


def _levels(case: Case) -> Text:
    others = case.group.partition("[")[2].removesuffix("]")
    return Text(", ".join(filter(None, (*case.levels.values(), others))) or "-")


def _variant_results(group: str, variant_results: list[VariantResult], columns: Iterable[Column]) -> Table:
    made = table(group.rpartition("::")[2])
    _variant_column(made, variant_results[0].case)
    made.add_column("median", justify="right", no_wrap=True)
    made.add_column("ratio to reference", justify="right", no_wrap=True)
    made.add_column("launches", justify="right")
    extra = [column for column in columns if any(column[0] in s.facts for s in variant_results)]
    for _, heading, _ in extra:
        made.add_column(heading, justify="right", no_wrap=True)
    work = next(((fact, unit) for fact, unit in _WORK if any(fact in s.facts for s in variant_results)), None)
    if work:
        made.add_column("rate", justify="right", no_wrap=True)
    for variant_result in sorted(variant_results, key=lambda s: s.case.name != s.reference):
        cells = [
            _levels(variant_result.case),
            Text(duration(variant_result.median_seconds)),
            _ratio_cell(variant_result),
            Text(str(variant_result.launches)),
            *(
                Text(words(variant_result.facts[fact]) if fact in variant_result.facts else "")
                for fact, _, words in extra
            ),
        ]
        if work:
            amount = variant_result.facts.get(work[0])
            cells.append(Text(rate(amount / variant_result.median_seconds, work[1]) if amount else ""))
        made.add_row(*cells)
    return made


def _ratio_cell(variant_result: VariantResult) -> Text:
    if variant_result.ratio is None:
        return Text("reference" if variant_result.case.variant else "-", "dim")
    style = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green"}.get(variant_result.outcome or Outcome.NEW, "")
    return Text(times(variant_result.ratio), style)


def _verdicts(group: str, verdicts: list[Verdict]) -> Table:
    made = table(group.rpartition("::")[2])
    _variant_column(made, verdicts[0].case)
    made.add_column("verdict", no_wrap=True)
    made.add_column("ratio to baseline", justify="right", no_wrap=True)
    made.add_column("launches", justify="right")
    made.add_column("time", justify="right", no_wrap=True)
    for verdict in verdicts:
        made.add_row(
            _levels(verdict.case),
            Text(str(verdict.outcome), COLOURS[verdict.outcome]),
            Text(times(verdict.ratio) if verdict.ratio else "-"),
            Text(str(verdict.launches)),
            Text(f"{verdict.wall_seconds:.1f} s"),
        )
    return made


def _other_metrics(case: str, verdicts: list[Verdict]) -> Table:
    made = table(f"{case.rpartition('::')[2]}, other metrics")
    made.add_column("metric", no_wrap=True)
    made.add_column("verdict", no_wrap=True)
    made.add_column("what", overflow="fold")
    for verdict in verdicts:
        made.add_row(
            Text(verdict.metric), Text(str(verdict.outcome), COLOURS[verdict.outcome]), Text(verdict.reason.message)
        )
    return made


def _text(parts: Iterable[RenderableType], width: int, colour: bool) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour,
        color_system="standard" if colour else None, highlight=False, legacy_windows=False,
    )  # fmt: skip
    for part in parts:
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
