"""TensorFlow stats: time and occurrences of each op, on the host and on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tfbench.profiles.tables import COUNT, NAME, SECONDS, Section, Table, column, table_of
from tfbench.profiles.tfdata_calls import without_numbers
from tfbench.profiles.xprof import OPS, Answers, Grid, integer, number

IDLE = "IDLE"


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the program, over the whole profile."""

    name: str = field(metadata=column("op", NAME))
    kind: str = field(metadata=column("type"))
    where: str = field(metadata=column("where"))
    """``host`` or ``device``."""
    occurrences: int = field(metadata=column("occurrences", COUNT))
    total: float = field(metadata=column("total", SECONDS))
    """Seconds, including the ops that it calls."""
    own: float = field(metadata=column("self", SECONDS))
    """Seconds, excluding the ops that it calls."""


@dataclass(frozen=True)
class OpStats:
    """The ops of a profile, the longest first."""

    with_idle: Sequence[OpRow]
    """Includes a row for idle time."""
    without_idle: Sequence[OpRow]

    def section(self) -> Section:
        tables = (_table("ops", "Ops", self.without_idle), _table("ops_with_idle", "Ops and idle time", self.with_idle))
        return Section("ops", "TensorFlow stats", tables)


def _table(name: str, title: str, rows: Sequence[OpRow]) -> Table:
    """A share is a fraction of the time on the same device, or on the host."""
    whole = {where: sum(row.own for row in rows if row.where == where) or 1.0 for where in ("host", "device")}
    return table_of(name, title, OpRow, rows, lambda row: row.own / whole[row.where])


def op_stats(answers: Answers) -> OpStats:
    """Read xprof's framework op stats.

    Raises:
        ProfileError: xprof gave no answer.
    """
    first, *others = [_rows(grid) for grid in answers.grids(OPS)]
    second = others[0] if others else [row for row in first if row.kind != IDLE]
    return OpStats(first, second)


def _rows(grid: Grid) -> list[OpRow]:
    """Merge rows of one op, which differ only in the numbers of iterators."""
    rows: dict[tuple[str, str, str], OpRow] = {}
    for cells in grid.rows:
        row = OpRow(
            name=without_numbers(str(cells["operation"])),
            kind=str(cells["type"]),
            where=str(cells["host_or_device"]).lower(),
            occurrences=integer(cells["occurrences"]),
            total=number(cells["total_time"]) * 1e-6,
            own=number(cells["total_self_time"]) * 1e-6,
        )
        key = (row.where, row.kind, row.name)
        if (had := rows.get(key)) is not None:
            occurrences = had.occurrences + row.occurrences
            row = replace(row, occurrences=occurrences, total=had.total + row.total, own=had.own + row.own)
        rows[key] = row
    return sorted(rows.values(), key=lambda row: -row.own)
