"""The input pipeline analyzer: how long steps wait for input, and the host's work for the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfbench.profiles.op_stats import merged
from tfbench.profiles.overview import Overview
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table, column, table_of
from tfbench.profiles.xprof import INPUT, Answers, number, row_of, with_column

PARTS = {
    "reading on demand": "demanded_file_read_us",
    "reading in advance": "advanced_file_read_us",
    "preprocessing": "preprocessing_us",
    "enqueuing": "enqueue_us",
    "not classified": "unclassified_nonequeue_us",
}
"""The host's work for the input -> xprof's name of it."""


@dataclass(frozen=True, slots=True)
class InputOp:
    """One op of the input, over the whole profile."""

    name: str = field(metadata=column("op", NAME, "opName"))
    category: str = field(metadata=column("category", source="category"))
    calls: int = field(metadata=column("calls", COUNT, "count"))
    total: float = field(metadata=column("total", SECONDS, "timeInMs", 1e3))
    """Seconds, including the ops that it calls."""
    own: float = field(metadata=column("self", SECONDS, "selfTimeInMs", 1e3))
    """Seconds, excluding the ops that it calls."""


def input_pipeline(answers: Answers, seen: Overview) -> tuple[Sequence[InputOp], Section]:
    """Read xprof's input pipeline analyzer: the ops, the longest first.

    Args:
        seen: The overview of the same profile, which has the waiting time of the steps.

    Raises:
        ProfileError: xprof gave no answer.
    """
    grids = answers.grids(INPUT)
    found = with_column(grids, "opName")
    ops = [row_of(InputOp, row) for row in merged(found, ("opName",), ("count", "timeInMs", "selfTimeInMs"))]
    ops.sort(key=lambda op: -op.own)
    host = {part: number(found.notes.get(name)) / 1e6 for part, name in PARTS.items()}
    whole = sum(host.values()) or 1.0
    tables = (
        Table(
            "input_host", "The host's work for the input",
            (Column("part"), Column("time", SECONDS), Column("share", SHARE)),
            tuple((part, seconds, seconds / whole) for part, seconds in host.items()),
        ),
        table_of("input_ops", "Ops of the input", InputOp, ops),
    )  # fmt: skip
    notes = (
        f"{seen.parts['input'] / (seen.seconds or math.inf):.1%} of step time is spent waiting for input",
        next(filter(None, (grid.notes.get("input_conclusion") for grid in grids)), ""),
    )
    return ops, Section("input", tables, tuple(filter(None, notes)))
