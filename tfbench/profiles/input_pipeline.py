"""The input pipeline analyzer: how long steps wait for input, and the host's work for the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class InputPipeline:
    """The results of the analyzer."""

    waiting: float
    """Share of step time spent waiting for input."""
    host: Mapping[str, float]
    """Seconds of each of `PARTS`, over all threads of the host."""
    ops: Sequence[InputOp]
    """The longest first."""
    conclusion: str

    def section(self) -> Section:
        whole = sum(self.host.values()) or 1.0
        host = Table(
            "input_host", "The host's work for the input",
            (Column("part"), Column("time", SECONDS), Column("share", SHARE)),
            tuple((part, seconds, seconds / whole) for part, seconds in self.host.items()),
        )  # fmt: skip
        notes = (f"{self.waiting:.1%} of step time is spent waiting for input", self.conclusion)
        tables = (host, table_of("input_ops", "Ops of the input", InputOp, self.ops))
        return Section("input", tables, tuple(filter(None, notes)))


def input_pipeline(answers: Answers, seen: Overview) -> InputPipeline:
    """Read xprof's input pipeline analyzer.

    Args:
        seen: The overview of the same profile, which has the waiting time of the steps.

    Raises:
        ProfileError: xprof gave no answer.
    """
    grids = answers.grids(INPUT)
    found = with_column(grids, "opName")
    ops = [row_of(InputOp, row) for row in merged(found, ("opName",), ("count", "timeInMs", "selfTimeInMs"))]
    return InputPipeline(
        waiting=seen.parts["input"] / seen.seconds if seen.seconds else 0.0,
        host={part: number(found.notes.get(name)) / 1e6 for part, name in PARTS.items()},
        ops=sorted(ops, key=lambda op: -op.own),
        conclusion=next(filter(None, (grid.notes.get("input_conclusion", "") for grid in grids)), ""),
    )
