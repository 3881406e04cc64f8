"""TensorFlow stats: time and occurrences of each op, on the host and on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.tfdata_calls import without_numbers
from tfbench.profiles.xprof import OPS, Answers, Grid, number

IDLE = "IDLE"


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the program, in all of the profile."""

    where: str
    """``host`` or ``device``."""
    kind: str
    name: str
    occurrences: int
    total: float
    """Seconds, those of the ops that it calls included."""
    own: float
    """Seconds, without them."""


@dataclass(frozen=True)
class OpStats:
    """The ops of a profile, the longest first."""

    with_idle: Sequence[OpRow]
    """With a row for the time in which nothing ran."""
    without_idle: Sequence[OpRow]

    def section(self) -> Section:
        return Section(
            "ops", "TensorFlow stats",
            (_table("ops", "Ops", self.without_idle), _table("ops_with_idle", "Ops and idle time", self.with_idle)),
        )  # fmt: skip


def _table(name: str, title: str, rows: Sequence[OpRow]) -> Table:
    whole = {where: sum(row.own for row in rows if row.where == where) or 1.0 for where in ("host", "device")}
    return Table(
        name, title,
        (Column("op", NAME), Column("type"), Column("where"), Column("occurrences", COUNT), Column("total", SECONDS),
         Column("self", SECONDS), Column("share there", SHARE)),
        tuple(
            (row.name, row.kind, row.where, row.occurrences, row.total, row.own, row.own / whole[row.where])
            for row in rows
        ),
    )  # fmt: skip


def op_stats(answers: Answers) -> OpStats:
    """From xprof's framework op stats.

    Raises:
        ProfileError: xprof gave none.
    """
    first, *others = [_rows(grid) for grid in answers.grids(OPS)]
    second = others[0] if others else [row for row in first if row.kind != IDLE]
    return OpStats(first, second)


def _rows(grid: Grid) -> list[OpRow]:
    found = [
        OpRow(
            where=str(row["host_or_device"]).lower(),
            kind=str(row["type"]),
            name=without_numbers(str(row["operation"])),
            occurrences=int(number(row["occurrences"])),
            total=number(row["total_time"]) * 1e-6,
            own=number(row["total_self_time"]) * 1e-6,
        )
        for row in grid.rows
    ]
    rows: dict[tuple[str, str, str], OpRow] = {}
    for row in found:
        key = (row.where, row.kind, row.name)
        rows[key] = _together(rows[key], row) if key in rows else row
    return sorted(rows.values(), key=lambda row: -row.own)


def _together(one: OpRow, other: OpRow) -> OpRow:
    return replace(
        one,
        occurrences=one.occurrences + other.occurrences,
        total=one.total + other.total,
        own=one.own + other.own,
    )
