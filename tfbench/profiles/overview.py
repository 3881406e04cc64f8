"""The overview of a profile: step time by category, the longest ops, the hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from tfbench.errors import ProfileError
from tfbench.profiles.op_stats import OpRow
from tfbench.profiles.steps import NO_MARKER
from tfbench.profiles.tables import NAME, SECONDS, SHARE, Column, Section, Table, column, table_of
from tfbench.profiles.xprof import OVERVIEW, Answers, number, share_of, with_column

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

    name: str = field(metadata=column("op", NAME))
    kind: str = field(metadata=column("type"))
    where: str = field(metadata=column("where"))
    """``device`` or ``host``."""
    share: float = field(metadata=column("share", SHARE))
    """Fraction of the time of all ops of the device, or of the host."""


@dataclass(frozen=True)
class Overview:
    """The content of xprof's overview page."""

    steps: Sequence[StepTimes]
    sixteen_bit: float | None
    """Share of device time in 16 bit. ``None`` without a device."""
    thirty_two_bit: float | None
    top: Sequence[TopOp]
    environment: Mapping[str, str]
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
        notes = [self.conclusion] if self.conclusion else []
        if self.sixteen_bit is not None and self.thirty_two_bit is not None:
            notes.append(f"device time: {self.sixteen_bit:.1%} in 16 bit, {self.thirty_two_bit:.1%} in 32 bit")
        notes.append(f"hardware: {', '.join(f'{name}: {value}' for name, value in self.environment.items())}")
        if self.advice:
            notes.append(f"read next: {', '.join(self.advice)}")
        top = table_of("top_ops", f"The {len(self.top)} longest ops", TopOp, self.top)
        return Section("overview", "Overview", (breakdown, top, steps), tuple(notes))


def overview(answers: Answers, ops: Sequence[OpRow]) -> Overview:
    """Read xprof's overview page.

    Args:
        ops: Ops of the host, for the table of the longest ops of a profile without a device.

    Raises:
        ProfileError: xprof gave no answer, or the profile has no step marker.
    """
    grids = answers.grids(OVERVIEW)
    times = with_column(grids, "stepTimeMs")
    if times is None or not times.rows:
        raise ProfileError(NO_MARKER)
    longest = with_column(grids, "selfTimePercent")
    reported = longest.notes if longest else {}
    top = [
        TopOp(str(row["operation"]), str(row["category"]), "device", number(row["selfTimePercent"]))
        for row in (longest.rows if longest else [])
        if row["operation"] != "IDLE"
    ]
    whole = sum(op.own for op in ops) or 1.0
    environment = with_column(grids, "host_id")
    hardware = environment.notes if environment else {}
    tips = with_column(grids, "tip_type")
    links = [str(row["link"]) for row in (tips.rows if tips else []) if row["tip_type"] in ("host", "device")]
    has_device = "device_compute_16bit_percent" in reported
    return Overview(
        steps=[_step(row) for row in times.rows],
        sixteen_bit=share_of(reported["device_compute_16bit_percent"]) if has_device else None,
        thirty_two_bit=share_of(reported.get("device_compute_32bit_percent", "")) if has_device else None,
        top=(top or [TopOp(op.name, op.kind, op.where, op.own / whole) for op in ops])[:TOP],
        environment={
            "device": hardware.get("device_type", ""),
            "devices": hardware.get("device_core_count", ""),
            "hosts": hardware.get("host_count", ""),
        },
        conclusion=times.notes.get("input_conclusion", ""),
        advice=list(dict.fromkeys(_TITLES.get(link.partition(" ")[0], link) for link in links)),
    )


def _step(row: Mapping[str, object]) -> StepTimes:
    name = str(row["stepnum"]).removeprefix("step ")
    parts = {part: number(row.get(column)) * 1e-3 for part, column in PARTS.items()}
    return StepTimes(name, number(row["stepTimeMs"]) * 1e-3, parts)
