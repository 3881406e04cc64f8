"""TensorFlow stats: time and occurrences of each op, on the host and on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.profiles.tables import COUNT, NAME, SECONDS, Section, Table, column, table_of
from tfbench.profiles.tfdata_events import without_numbers
from tfbench.profiles.xprof import OPS, Answers, Grid, number, row_of

IDLE = "IDLE"


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the program, over the whole profile."""

    name: str = field(metadata=column("op", NAME, "operation"))
    kind: str = field(metadata=column("type", source="type"))
    where: str = field(metadata=column("where"))
    """``host`` or ``device``."""
    occurrences: int = field(metadata=column("occurrences", COUNT, "occurrences"))
    total: float = field(metadata=column("total", SECONDS, "total_time", 1e6))
    """Seconds, including the ops that it calls."""
    own: float = field(metadata=column("self", SECONDS, "total_self_time", 1e6))
    """Seconds, excluding the ops that it calls."""


def op_stats(answers: Answers) -> tuple[Sequence[OpRow], Section]:
    """Read xprof's framework op stats: the ops without idle time, the longest first.

    Raises:
        ProfileError: xprof gave no answer.
    """
    with_idle, *others = [_rows(grid) for grid in answers.grids(OPS)]
    ops = others[0] if others else [row for row in with_idle if row.kind != IDLE]
    return ops, Section("ops", (_table("ops", "Ops", ops), _table("ops_with_idle", "Ops and idle time", with_idle)))


def _table(name: str, title: str, rows: Sequence[OpRow]) -> Table:
    """A share is a fraction of the time on the same device, or on the host."""
    whole = {where: sum(row.own for row in rows if row.where == where) or 1.0 for where in ("host", "device")}
    return table_of(name, title, OpRow, rows, lambda row: row.own / whole[row.where])


def _rows(grid: Grid) -> list[OpRow]:
    keys, sums = ("host_or_device", "type", "operation"), ("occurrences", "total_time", "total_self_time")
    cells = merged(grid, keys, sums)
    rows = (row_of(OpRow, one, where=str(one["host_or_device"]).lower()) for one in cells)
    return sorted(rows, key=lambda row: -row.own)


def merged(grid: Grid, keys: Sequence[str], sums: Sequence[str]) -> list[dict[str, Any]]:
    """Merge the rows of one op, whose names differ only in the numbers of iterators.

    Args:
        keys: Columns that identify an op. The last one is its name.
        sums: Columns to add up.
    """
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in grid.rows:
        named = {**row, keys[-1]: without_numbers(str(row[keys[-1]]))}
        into = found.setdefault(tuple(named[key] for key in keys), {**named, **dict.fromkeys(sums, 0.0)})
        for name in sums:
            into[name] += number(row[name])
    return list(found.values())
