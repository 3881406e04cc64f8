"""The input pipeline analyzer: how long steps wait for input, and what the host does for it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.profiles.overview import Overview
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.tfdata_calls import without_numbers
from tfbench.profiles.xprof import INPUT, Answers, number

PARTS = {
    "reading on demand": "demanded_file_read_us",
    "reading in advance": "advanced_file_read_us",
    "preprocessing": "preprocessing_us",
    "enqueuing": "enqueue_us",
    "not classified": "unclassified_nonequeue_us",
}
"""What the host does for the input, and xprof's name of it."""


@dataclass(frozen=True, slots=True)
class InputOp:
    """One op of the input, in all of the profile."""

    name: str
    category: str
    calls: int
    total: float
    """Seconds."""
    own: float
    """The same without the ops that it calls."""


@dataclass(frozen=True)
class InputPipeline:
    """What the analyzer shows."""

    waiting: float
    """Share of the steps' time that is spent waiting for input."""
    host: Mapping[str, float]
    """Seconds of the host for each of `PARTS`, on all of its threads."""
    ops: Sequence[InputOp]
    """The longest first."""
    conclusion: str

    def section(self) -> Section:
        whole = sum(self.host.values()) or 1.0
        host = Table(
            "input_host", "What the host did for the input",
            (Column("part"), Column("time", SECONDS), Column("share", SHARE)),
            tuple((part, seconds, seconds / whole) for part, seconds in self.host.items()),
        )  # fmt: skip
        ops = Table(
            "input_ops", "Ops of the input",
            (Column("op", NAME), Column("category"), Column("calls", COUNT), Column("total", SECONDS), Column("self", SECONDS)),
            tuple((op.name, op.category, op.calls, op.total, op.own) for op in self.ops),
        )  # fmt: skip
        said = [self.conclusion] if self.conclusion else []
        return Section(
            "input", "Input pipeline analyzer", (host, ops),
            (f"{self.waiting:.1%} of the steps' time is spent waiting for input", *said),
        )  # fmt: skip


def input_pipeline(answers: Answers, seen: Overview) -> InputPipeline:
    """From xprof's analyzer.

    Args:
        seen: The overview of the same profile, whose steps tell how long they waited.

    Raises:
        ProfileError: xprof gave none.
    """
    grids = answers.grids(INPUT)
    found = next((grid for grid in grids if "opName" in grid.columns), None)
    conclusion = next((grid.notes["input_conclusion"] for grid in grids if "input_conclusion" in grid.notes), "")
    each = [
        InputOp(
            name=without_numbers(str(row["opName"])),
            category=str(row["category"]),
            calls=int(number(row["count"])),
            total=number(row["timeInMs"]) * 1e-3,
            own=number(row["selfTimeInMs"]) * 1e-3,
        )
        for row in (found.rows if found else [])
    ]
    ops: dict[str, InputOp] = {}
    for op in each:
        had = ops.get(op.name, replace(op, calls=0, total=0.0, own=0.0))
        ops[op.name] = replace(had, calls=had.calls + op.calls, total=had.total + op.total, own=had.own + op.own)
    return InputPipeline(
        waiting=seen.parts["input"] / seen.seconds if seen.seconds else 0.0,
        host={part: number(found.notes.get(name)) * 1e-6 if found else 0.0 for part, name in PARTS.items()},
        ops=sorted(ops.values(), key=lambda op: -op.own),
        conclusion=conclusion,
    )
