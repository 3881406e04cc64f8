"""The overview of a profile: where the time of its steps went, its longest ops, what it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from tfbench.errors import ProfileError
from tfbench.profiles.op_stats import OpRow
from tfbench.profiles.steps import NO_MARKER
from tfbench.profiles.tables import NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.xprof import OVERVIEW, Answers, Grid, number, share_of

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
"""What a step is made of, and xprof's column of it."""
_CALLED = {
    "input_pipeline_analyzer": "input pipeline analyzer",
    "framework_op_stats": "TensorFlow stats",
    "trace_viewer": "the trace",
    "gpu_kernel_stats": "kernel stats",
    "kernel_stats": "kernel stats",
    "memory_profile": "memory profile",
    "tf_data_bottleneck_analysis": "tf.data bottleneck analysis",
}
"""xprof's tools, as sections are called here."""
TOP = 10
"""Ops that are shown."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step."""

    name: str
    seconds: float
    parts: Mapping[str, float]
    """Seconds of each of `PARTS`."""


@dataclass(frozen=True, slots=True)
class TopOp:
    """One of the ops that take longest."""

    name: str
    kind: str
    share: float
    """Of the time of all ops there."""
    where: str
    """``device`` or ``host``."""


@dataclass(frozen=True)
class Overview:
    """What the overview page shows."""

    steps: Sequence[StepTimes]
    sixteen_bit: float | None
    """Share of the device's time in 16 bit, ``None`` without a device."""
    thirty_two_bit: float | None
    top: Sequence[TopOp]
    environment: Mapping[str, str]
    conclusion: str
    """What xprof says of the input."""
    advice: Sequence[str]
    """Tools in which xprof would look next."""

    @property
    def seconds(self) -> float:
        """Of a step, the mean."""
        return mean(step.seconds for step in self.steps)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of a step by what it is made of, the mean."""
        return {part: mean(step.parts[part] for step in self.steps) for part in PARTS}

    def section(self) -> Section:
        parts, whole = self.parts, self.seconds
        breakdown = Table(
            "breakdown", f"A step, the mean of {len(self.steps)}",
            (Column("part"), Column("time", SECONDS), Column("share", SHARE)),
            (*((part, seconds, seconds / whole if whole else 0.0) for part, seconds in parts.items()),
             ("step", whole, 1.0)),
        )  # fmt: skip
        steps = Table(
            "steps", "Each step",
            (Column("step"), *(Column(part, SECONDS) for part in PARTS), Column("all", SECONDS)),
            tuple((step.name, *(step.parts[part] for part in PARTS), step.seconds) for step in self.steps),
        )  # fmt: skip
        top = Table(
            "top_ops", f"The {len(self.top)} longest ops",
            (Column("op", NAME), Column("type"), Column("where"), Column("share", SHARE)),
            tuple((op.name, op.kind, op.where, op.share) for op in self.top),
        )  # fmt: skip
        notes = [self.conclusion] if self.conclusion else []
        if self.sixteen_bit is not None and self.thirty_two_bit is not None:
            notes.append(f"device time: {self.sixteen_bit:.1%} in 16 bit, {self.thirty_two_bit:.1%} in 32 bit")
        notes.append(f"ran on {', '.join(f'{name}: {value}' for name, value in self.environment.items())}")
        if self.advice:
            notes.append(f"look next at: {', '.join(self.advice)}")
        return Section("overview", "Overview", (breakdown, top, steps), tuple(notes))


def overview(answers: Answers, ops: Sequence[OpRow]) -> Overview:
    """From xprof's overview page.

    Args:
        ops: Of the host, for a profile without a device.

    Raises:
        ProfileError: xprof gave none, or the profile has no step marker.
    """
    grids = answers.grids(OVERVIEW)
    times = _with(grids, "stepTimeMs")
    if times is None or not times.rows:
        raise ProfileError(NO_MARKER)
    longest, environment = _with(grids, "selfTimePercent"), _with(grids, "host_id")
    tips = _with(grids, "tip_type")
    reported = longest.notes if longest else {}
    has_device = "device_compute_16bit_percent" in reported
    top = [
        TopOp(str(row["operation"]), str(row["category"]), number(row["selfTimePercent"]), "device")
        for row in (longest.rows if longest else [])
        if row["operation"] != "IDLE"
    ]
    whole = sum(op.own for op in ops) or 1.0
    top = top or [TopOp(op.name, op.kind, op.own / whole, op.where) for op in ops]
    where = environment.notes if environment else {}
    return Overview(
        steps=[_step(row) for row in times.rows],
        sixteen_bit=share_of(reported["device_compute_16bit_percent"]) if has_device else None,
        thirty_two_bit=share_of(reported.get("device_compute_32bit_percent", "")) if has_device else None,
        top=top[:TOP],
        environment={
            "device": where.get("device_type", ""),
            "devices": where.get("device_core_count", ""),
            "hosts": where.get("host_count", ""),
        },
        conclusion=times.notes.get("input_conclusion", ""),
        advice=list(
            dict.fromkeys(
                _CALLED.get(str(row["link"]).partition(" ")[0], str(row["link"]))
                for row in (tips.rows if tips else [])
                if row["tip_type"] in ("host", "device")
            )
        ),
    )


def _with(grids: Sequence[Grid], column: str) -> Grid | None:
    return next((grid for grid in grids if column in grid.columns), None)


def _step(row: Mapping[str, object]) -> StepTimes:
    name = str(row["stepnum"]).removeprefix("step ")
    parts = {part: number(row.get(column)) * 1e-3 for part, column in PARTS.items()}
    return StepTimes(name, number(row["stepTimeMs"]) * 1e-3, parts)
