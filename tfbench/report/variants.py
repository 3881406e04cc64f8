"""Tables of the variants of each workload, relative to the reference variant, for the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import Case, Outcome, VariantResult
from tfbench.report.style import add_columns, add_row, table
from tfbench.report.summary import consistent
from tfbench.report.units import duration, joules, percent, rate, size, times
from tfbench.stats.throughput import UNITS

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
_ESTIMATED = "~"
_ESTIMATE = (
    f"{_ESTIMATED} the median of the reference times the ratio: noise between the launches moved one of the two medians, "
    "and the ratio compares turns of the same moment"
)
_RATIO_COLOURS: dict[Outcome | None, str] = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green"}
_WORK = [(fact, UNITS[fact]) for fact in ("flops", "items", "bytes")]
"""Work of a call and the unit of its rate, the most telling first."""


def variant_tables(results: Sequence[VariantResult], width: int) -> list[RenderableType]:
    """Return a table for each workload. Wider terminals get more columns."""
    extra = [column for column, least in _EXTRA if width >= least]
    groups: dict[str, list[VariantResult]] = defaultdict(list)
    for one in results:
        groups[one.case.group].append(one)
    return [_variant_results(group, rows, extra) for group, rows in groups.items()]


def _case_table(group: str, case: Case) -> Table:
    """Create a table with the column of levels, which has the axes as its heading."""
    made = table(group.rpartition("::")[2])
    add_columns(made, ", ".join(case.levels) or "variant", fold=True)
    return made


def _levels(case: Case) -> str:
    others = (case.group if case.variant else case.name).partition("[")[2].removesuffix("]")
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
        facts = result.facts
        _, median, replaced = consistent(references.get(result.reference), result.median_seconds, result.ratio)
        seconds = result.median_seconds if median is None else median
        estimated |= replaced
        shown = f"{_ESTIMATED * replaced}{duration(seconds)}"
        cells: list[str | Text] = [_levels(result.case), shown, _ratio_cell(result), str(result.launches)]
        cells += [words(facts[fact]) if fact in facts else "" for fact, _, words in extra]
        if work:
            cells.append(rate(facts[work[0]] / seconds, work[1]) if facts.get(work[0]) else "")
        add_row(made, *cells)
    return Group(made, Text(_ESTIMATE, "dim")) if estimated else made


def _ratio_cell(result: VariantResult) -> Text:
    if result.ratio is None:
        return Text("reference" if result.case.variant else "-", "dim")
    return Text(times(result.ratio), _RATIO_COLOURS.get(result.outcome, ""))
