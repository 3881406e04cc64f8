"""The overview of a profile: step time by category, the longest ops, the hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from tfbench.errors import ProfileError
from tfbench.profiles.op_stats import IDLE, OpRow
from tfbench.profiles.tables import NAME, SECONDS, SHARE, Column, Section, Table, column, table_of
from tfbench.profiles.xplane import NO_MARKER
from tfbench.profiles.xprof import OVERVIEW, Answers, number, row_of, with_column

PARTS = {
    "compilation": "compileTimeMs",
    "input": "infeedTimeMs",
    "output": "outfeedTimeMs",
    "kernel launch": "kernelLaunchTimeMs",
    "host compute": "hostComputeTimeMs",
    "device to device": "deviceToDeviceTimeMs",
    "device collectives": "deviceCollectivesTimeMs",
    "device compute": "deviceComputeTimeMs",
    "other": "otherTimeMs",
}
"""Category of step time -> xprof's column."""
_TITLES = {
    "input_pipeline_analyzer": "input pipeline analyzer",
    "framework_op_stats": "TensorFlow stats",
    "trace_viewer": "the trace",
    "gpu_kernel_stats": "kernel stats",
    "kernel_stats": "kernel stats",
    "memory_profile": "memory profile",
    "tf_data_bottleneck_analysis": "tf.data bottleneck analysis",
}
"""xprof's tool -> title of the section in tfbench's report."""
_HARDWARE = {"device": "device_type", "devices": "device_core_count", "hosts": "host_count"}
"""Fact of the environment -> xprof's name of it."""
TOP = 10
"""Ops in the table of the longest ops."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step."""

    name: str
    seconds: float
    parts: Mapping[str, float]
    """Seconds of each of `PARTS`."""


@dataclass(frozen=True, slots=True)
class TopOp:
    """One of the longest ops."""

    name: str = field(metadata=column("op", NAME, "operation"))
    kind: str = field(metadata=column("type", source="category"))
    where: str = field(metadata=column("where"))
    """``device`` or ``host``."""
    share: float = field(metadata=column("share", SHARE, "selfTimePercent"))
    """Fraction of the time of all ops of the device, or of the host."""


@dataclass(frozen=True)
class Overview:
    """The content of xprof's overview page."""

    steps: Sequence[StepTimes]
    sixteen_bit: float | None
    """Share of device time in 16 bit. ``None`` without a device."""
    thirty_two_bit: float
    top: Sequence[TopOp]
    environment: Mapping[str, str]
    """Kind and number of devices, number of hosts."""
    conclusion: str
    """xprof's statement on the input."""
    advice: Sequence[str]
    """Sections that xprof suggests to read next."""

    @property
    def seconds(self) -> float:
        """Mean seconds per step."""
        return mean(step.seconds for step in self.steps)

    @property
    def parts(self) -> dict[str, float]:
        """Mean seconds per step in each of `PARTS`."""
        return {part: mean(step.parts[part] for step in self.steps) for part in PARTS}

    def section(self) -> Section:
        parts, whole = self.parts, self.seconds
        breakdown = Table(
            "breakdown", f"Mean of {len(self.steps)} steps",
            (Column("part"), Column("time", SECONDS), Column("share", SHARE)),
            (*((part, seconds, seconds / whole if whole else 0.0) for part, seconds in parts.items()),
             ("step", whole, 1.0)),
        )  # fmt: skip
        steps = Table(
            "steps", "Each step",
            (Column("step"), *(Column(part, SECONDS) for part in PARTS), Column("all", SECONDS)),
            tuple((step.name, *(step.parts[part] for part in PARTS), step.seconds) for step in self.steps),
        )  # fmt: skip
        notes = (
            self.conclusion,
            f"device time: {self.sixteen_bit:.1%} in 16 bit, {self.thirty_two_bit:.1%} in 32 bit"
            if self.sixteen_bit is not None
            else "",
            f"hardware: {', '.join(f'{name}: {value}' for name, value in self.environment.items())}",
            f"read next: {', '.join(self.advice)}" if self.advice else "",
        )
        top = table_of("top_ops", f"The {len(self.top)} longest ops", TopOp, self.top)
        return Section("overview", (breakdown, top, steps), tuple(filter(None, notes)))


def overview(answers: Answers, ops: Sequence[OpRow]) -> Overview:
    """Read xprof's overview page.

    Args:
        ops: Ops of the host, for the table of the longest ops of a profile without a device.

    Raises:
        ProfileError: xprof gave no answer, or the profile has no step marker.
    """
    grids = answers.grids(OVERVIEW)
    times = with_column(grids, "stepTimeMs")
    if not times.rows:
        raise ProfileError(NO_MARKER)
    longest, hardware = with_column(grids, "selfTimePercent"), with_column(grids, "host_id").notes
    top = [row_of(TopOp, row, where="device") for row in longest.rows if row["operation"] != IDLE]
    whole = sum(op.own for op in ops) or 1.0
    sixteen, thirty_two = (longest.notes.get(f"device_compute_{bits}bit_percent", "") for bits in (16, 32))
    tips = with_column(grids, "tip_type").rows
    links = [str(row["link"]) for row in tips if row["tip_type"] in ("host", "device")]
    return Overview(
        steps=[_step(row) for row in times.rows],
        sixteen_bit=number(sixteen.removesuffix("%")) / 100 if sixteen else None,
        thirty_two_bit=number(thirty_two.removesuffix("%")) / 100,
        top=(top or [TopOp(op.name, op.kind, op.where, op.own / whole) for op in ops])[:TOP],
        environment={name: hardware.get(key, "") for name, key in _HARDWARE.items()},
        conclusion=times.notes.get("input_conclusion", ""),
        advice=list(dict.fromkeys(_TITLES.get(link.partition(" ")[0], link) for link in links)),
    )


def _step(row: Mapping[str, object]) -> StepTimes:
    name = str(row["stepnum"]).removeprefix("step ")
    parts = {part: number(row.get(column)) * 1e-3 for part, column in PARTS.items()}
    return StepTimes(name, number(row["stepTimeMs"]) * 1e-3, parts)
