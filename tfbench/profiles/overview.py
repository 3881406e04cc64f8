"""Step time by category: the overview, with the longest ops and the hardware, and the pod view of each worker."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, mode
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.op_stats import IDLE, OpRow
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table, column, parts_table, table_of
from tfbench.profiles.xplane import NO_MARKER
from tfbench.profiles.xprof import OVERVIEW, PODS, Answers, number, row_of, with_column

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

    seconds: float
    """Mean per step."""
    parts: Mapping[str, float]
    """Mean seconds per step in each of `PARTS`."""
    sixteen_bit: float | None
    """Share of device time in 16 bit. ``None`` without a device."""
    thirty_two_bit: float
    top: Sequence[TopOp]
    environment: Mapping[str, str]
    """Kind and number of devices, number of hosts."""

    @property
    def waiting(self) -> float:
        """Share of step time spent waiting for input."""
        return self.parts["input"] / (self.seconds or math.inf)


def overview(answers: Answers, ops: Sequence[OpRow]) -> tuple[Overview, Section]:
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
    sources = (*PARTS.values(), "stepTimeMs")
    steps = [[number(row.get(source)) * 1e-3 for source in sources] for row in times.rows]
    *parts, seconds = map(mean, zip(*steps, strict=True))
    longest, hardware = with_column(grids, "selfTimePercent"), with_column(grids, "host_id").notes
    top = [row_of(TopOp, row, where="device") for row in longest.rows if row["operation"] != IDLE]
    whole = sum(op.own for op in ops) or 1.0
    sixteen, thirty_two = (longest.notes.get(f"device_compute_{bits}bit_percent", "") for bits in (16, 32))
    seen = Overview(
        seconds=seconds,
        parts=dict(zip(PARTS, parts, strict=True)),
        sixteen_bit=number(sixteen.removesuffix("%")) / 100 if sixteen else None,
        thirty_two_bit=number(thirty_two.removesuffix("%")) / 100,
        top=(top or [TopOp(op.name, op.kind, op.where, op.own / whole) for op in ops])[:TOP],
        environment={name: hardware.get(key, "") for name, key in _HARDWARE.items()},
    )
    tables = (
        parts_table("breakdown", f"Mean of {len(steps)} steps", {**seen.parts, "step": seconds}, seconds),
        table_of("top_ops", f"The {len(seen.top)} longest ops", TopOp, seen.top),
        Table(
            "steps", "Each step",
            (Column("step"), *(Column(part, SECONDS) for part in PARTS), Column("all", SECONDS)),
            tuple(
                (str(row["stepnum"]).removeprefix("step "), *step) for row, step in zip(times.rows, steps, strict=True)
            ),
        ),
    )  # fmt: skip
    notes = [times.notes.get("input_conclusion", "")]
    if seen.sixteen_bit is not None:
        notes.append(f"device time: {seen.sixteen_bit:.1%} in 16 bit, {seen.thirty_two_bit:.1%} in 32 bit")
    notes.append(f"hardware: {', '.join(f'{name}: {value}' for name, value in seen.environment.items())}")
    tips = with_column(grids, "tip_type").rows
    links = (str(row["link"]) for row in tips if row["tip_type"] in ("host", "device"))
    if next_ones := dict.fromkeys(_TITLES.get(link.partition(" ")[0], link) for link in links):
        notes.append(f"read next: {', '.join(next_ones)}")
    return seen, Section("overview", tables, tuple(filter(None, notes)))


@dataclass(frozen=True)
class Worker:
    """One core of one host, or of one sampled process."""

    host: str
    core: str
    steps: int
    seconds: float
    """Mean per step."""
    parts: Mapping[str, float]
    """Mean seconds per step in each category."""
    bottleneck: str
    """What bounds most of its steps."""


def pods(answers: Answers) -> tuple[Sequence[Worker], Section]:
    """Read xprof's pod viewer: the workers, the slowest first.

    Raises:
        ProfileError: xprof gave no answer, or the profile has no step marker.
    """
    workers = [worker for name, content in answers.content(PODS).items() for worker in _workers(name, content)]
    if not workers:
        raise ProfileError(NO_MARKER)
    workers.sort(key=lambda worker: -worker.seconds)
    parts = list(dict.fromkeys(part for worker in workers for part in worker.parts))
    table = Table(
        "workers", "Mean step of each worker",
        (Column("host"), Column("core"), Column("steps", COUNT), Column("step", SECONDS),
         *(Column(part.lower(), SECONDS) for part in parts), Column("bound by")),
        tuple(
            (one.host, one.core, one.steps, one.seconds, *(one.parts.get(part, 0.0) for part in parts), one.bottleneck)
            for one in workers
        ),
    )  # fmt: skip
    notes = []
    slowest, fastest = workers[0], workers[-1]
    if slowest is not fastest and fastest.seconds > 0:
        notes.append(
            f"the slowest worker, {slowest.host}, takes {slowest.seconds / fastest.seconds:.2f} times as long per step "
            f"as the fastest, {fastest.host}"
        )
    return workers, Section("pods", (table,), tuple(notes))


def _workers(host: str, content: Mapping[str, Any]) -> Iterator[Worker]:
    """Read one file, whose name is the host or the sampled address."""
    names = {str(event["id"]): str(event["name"]) for event in content.get("stepBreakdownEvents", [])}
    cores: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for step in content.get("podStatsSequence", {}).get("podStatsMap", []):
        for core, one in step.get("podStatsPerCore", {}).items():
            cores[str(core)].append(one)
    for core, steps in cores.items():
        parts: dict[str, float] = defaultdict(float)
        for step in steps:
            for part, microseconds in step["stepBreakdownUs"].items():
                parts[names.get(str(part), str(part))] += number(microseconds) * 1e-6 / len(steps)
        seconds = mean(number(step["totalDurationUs"]) * 1e-6 for step in steps)
        yield Worker(host, core, len(steps), seconds, parts, mode(str(step.get("bottleneck", "")) for step in steps))
