"""The input pipeline analyzer: how long steps wait for input, and the host's work for the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfbench.profiles.overview import Overview
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table, column, table_of
from tfbench.profiles.tfdata_calls import without_numbers
from tfbench.profiles.xprof import INPUT, Answers, integer, number, with_column

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

    name: str = field(metadata=column("op", NAME))
    category: str = field(metadata=column("category"))
    calls: int = field(metadata=column("calls", COUNT))
    total: float = field(metadata=column("total", SECONDS))
    """Seconds, including the ops that it calls."""
    own: float = field(metadata=column("self", SECONDS))
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
        return Section("input", "Input pipeline analyzer", tables, tuple(filter(None, notes)))


def input_pipeline(answers: Answers, seen: Overview) -> InputPipeline:
    """Read xprof's input pipeline analyzer.

    Args:
        seen: The overview of the same profile, which has the waiting time of the steps.

    Raises:
        ProfileError: xprof gave no answer.
    """
    grids = answers.grids(INPUT)
    found = with_column(grids, "opName")
    ops: dict[str, InputOp] = {}
    for row in found.rows if found else ():
        name = without_numbers(str(row["opName"]))
        had = ops.get(name, InputOp(name, str(row["category"]), 0, 0.0, 0.0))
        ops[name] = replace(
            had,
            calls=had.calls + integer(row["count"]),
            total=had.total + number(row["timeInMs"]) * 1e-3,
            own=had.own + number(row["selfTimeInMs"]) * 1e-3,
        )
    return InputPipeline(
        waiting=seen.parts["input"] / seen.seconds if seen.seconds else 0.0,
        host={part: number(found.notes.get(name)) * 1e-6 if found else 0.0 for part, name in PARTS.items()},
        ops=sorted(ops.values(), key=lambda op: -op.own),
        conclusion=next(filter(None, (grid.notes.get("input_conclusion", "") for grid in grids)), ""),
    )
