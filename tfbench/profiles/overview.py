"""Say what a profile shows: where a step spends its time, the bottleneck, advice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, mode
from typing import Any

from tfbench.errors import ProfileError
from tfbench.policy import Policy
from tfbench.profiles.step_breakdown import StepBreakdown, TimeCategory
from tfbench.profiles.tfdata import Input, Pipeline, TfDataStage
from tfbench.profiles.xplane import NO_MARKER, Span, length
from tfbench.profiles.xprof import (
    COUNT,
    IDLE,
    NAME,
    OVERVIEW,
    PODS,
    SECONDS,
    SHARE,
    Answers,
    Column,
    Kernel,
    OpRow,
    Section,
    Table,
    column,
    number,
    parts_table,
    row_of,
    table_of,
    with_column,
)

# tf.data bottleneck analysis: the stages, critical path and bottleneck of each pipeline, and the fix


_FIXES = (
    ("ParallelMap", "do less in its function, vectorise it by batching before the map, or cache its results"),
    ("MapAndBatch", "do less in its function, or cache its results"),
    ("Map", "run it in parallel and ahead: map(…, num_parallel_calls=tf.data.AUTOTUNE), then prefetch"),
    ("ParallelInterleave", "raise its cycle_length, or do less in its inner datasets"),
    ("Interleave", "read in parallel: interleave(…, num_parallel_calls=tf.data.AUTOTUNE)"),
    ("FlatMap", "use interleave(…, num_parallel_calls=tf.data.AUTOTUNE), which opens its inputs ahead"),
    ("ParallelBatch", "use smaller elements, or batch less often"),
    ("PaddedBatch", "group elements of similar length into buckets, to pad less"),
    ("Batch", "use batch(…, num_parallel_calls=tf.data.AUTOTUNE), then prefetch"),
    ("Shuffle", "use a smaller buffer_size, and shuffle small elements, such as file names, before reading them"),
    ("Filter", "filter batches instead of single elements, or filter before costly stages"),
    ("Generator", "avoid Python: use tf.io, TFRecord files or from_tensor_slices instead of from_generator"),
    ("TFRecord", "read several files in parallel: interleave(…, num_parallel_calls=tf.data.AUTOTUNE), then prefetch"),
    ("TextLine", "read several files in parallel, or store records in TFRecord files"),
    ("FixedLengthRecord", "read several files in parallel: interleave(…, num_parallel_calls=tf.data.AUTOTUNE)"),
    ("MemoryCache", "the first epoch fills it: profile a later one"),
    ("Cache", "cache in memory instead of in a file, if the data fits"),
    ("Snapshot", "use more shards, or a faster disk"),
    ("DataService", "use more workers, or let the workers build the batches"),
    ("Prefetch", "the stages before it are too slow to fill it: see their own times"),
    ("Scan", "do less in its function: it handles one element after the other"),
    ("Unbatch", "keep batches whole, or rebatch"),
    ("GroupBy", "do less in its functions, or group ahead of training"),
)
"""Prefix of a kind of stage, and the fix if it is the bottleneck. The first match counts."""
_DEFAULT_FIX = "do less in it, or put prefetch(tf.data.AUTOTUNE) after it, so that it runs ahead"


def is_overhead(stage: TfDataStage, slow: float) -> bool:
    """Whether a map has many calls of which none is slow: the calls cost more than their work."""
    return stage.kind.startswith(("Map", "ParallelMap")) and stage.calls > 0 and stage.own / stage.calls < slow


def fix(stage: TfDataStage, slow: float) -> str:
    """Return the fix for a stage that is the bottleneck.

    Args:
        slow: Seconds from which a call is slow.
    """
    if is_overhead(stage, slow):
        return (
            "batch before it, so that one call of its function handles many elements: "
            f"{stage.calls:,} calls take {stage.own / stage.calls * 1e6:.0f} µs each"
        )
    return next((words for kind, words in _FIXES if stage.kind.startswith(kind)), _DEFAULT_FIX)


@dataclass(frozen=True)
class Bottlenecks:
    """The pipelines that the program waited for."""

    pipelines: Sequence[Pipeline]
    """The pipeline with the longest wait comes first."""
    waiting: float
    """Share of step time in calls for input."""


def bottlenecks(data: Input, windows: Sequence[Span]) -> tuple[Bottlenecks, Section]:
    """Analyse the pipelines called within these windows: the marked steps, or the whole profile without any.

    Raises:
        ProfileError: No pipeline was called.
    """
    pipelines = data.pipelines(windows)
    if not pipelines:
        raise ProfileError("no step takes its input from tf.data")
    seconds = length(windows)
    found = Bottlenecks(pipelines, sum(pipeline.waited for pipeline in pipelines) / (seconds or math.inf))
    notes = (f"{found.waiting:.1%} of step time is spent in calls for input", *map(_note, pipelines))
    tables = (_table(number, pipeline, seconds or math.inf) for number, pipeline in enumerate(pipelines, 1))
    return found, Section("tf_data", tuple(tables), notes)


def _table(number: int, pipeline: Pipeline, seconds: float) -> Table:
    end, path = pipeline.bottleneck, pipeline.path
    return Table(
        f"stages_{number}", f"Stages of {_first(pipeline, 'a pipeline')}",
        (Column("stage", NAME), Column("calls", COUNT), Column("slow calls", COUNT), Column("total", SECONDS),
         Column("self", SECONDS), Column("waited for", SECONDS), Column("share", SHARE), Column("longest op"),
         Column("critical")),
        tuple(
            (stage.path, stage.calls, stage.slow, stage.total, stage.own, stage.critical, stage.critical / seconds,
             _longest_op(stage), "bottleneck" if stage is end else "path" if stage in path else "")
            for stage in pipeline.stages
        ),
    )  # fmt: skip


def _first(pipeline: Pipeline, default: str) -> str:
    return pipeline.stages[0].path if pipeline.stages else default


def _note(pipeline: Pipeline) -> str:
    if (end := pipeline.bottleneck) is None:
        return (
            f"{_first(pipeline, 'the pipeline')} keeps up: {pipeline.slow} of {pipeline.calls} calls took longer than "
            f"{pipeline.slowness * 1e6:g} µs; mean: {pipeline.waited / pipeline.calls * 1e6:.1f} µs"
        )
    mostly = f", mostly in {name}" if (name := _longest_op(end)) else ""
    return (
        f"bottleneck: {end.path} ({end.critical / pipeline.waited:.0%} of the waiting; {pipeline.slow} of "
        f"{pipeline.calls} calls were slow{mostly}): {fix(end, pipeline.slowness)}"
    )


def _longest_op(stage: TfDataStage) -> str:
    return max(stage.ops, key=lambda kind: stage.ops[kind], default="")


# Suggest fixes from a profile, each with its evidence and the benchmark of this suite that measures it


@dataclass(frozen=True, slots=True)
class Advice:
    """One suggestion."""

    finding: str = field(metadata=column("finding"))
    """In a word, such as ``input-bound``."""
    evidence: str = field(metadata=column("evidence"))
    fix: str = field(metadata=column("fix"))
    benchmark: str = field(metadata=column("measured by"))
    """The benchmark that measures the fix. ``pytest --benchmark FILE::FUNCTION`` runs it."""


@dataclass(frozen=True)
class Seen:
    """Results of the tools, ``None`` where a tool failed."""

    breakdown: StepBreakdown | None = None
    data: Bottlenecks | None = None
    overview: Overview | None = None
    kernels: Sequence[Kernel] = ()


def advice(seen: Seen, policy: Policy) -> tuple[Sequence[Advice], Section]:
    """Apply all rules, in their order."""
    rules = (_input_bound, _launch_bound, _precision, _transposes)
    found = [one for rule in rules for one in rule(seen, policy)]
    if not found:
        return (), Section("advice", notes=("no rule applies: input, launches, precision and layout look fine",))
    return found, Section("advice", (table_of("advice", "Suggestions", Advice, found),))


def _input_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if seen.data is None or seen.data.waiting < policy.input_bound:
        return
    if (end := next(filter(None, (pipeline.bottleneck for pipeline in seen.data.pipelines)), None)) is not None:
        small = is_overhead(end, policy.slow_call_seconds)
        yield Advice(
            "input-bound",
            f"{seen.data.waiting:.0%} of step time is spent waiting for input, most of it for {end.path}",
            fix(end, policy.slow_call_seconds),
            _SMALL if small else _BY_STAGE.get(end.kind, "benchmarks/test_pipelines.py::test_fed_training"),
        )


_SMALL = "benchmarks/test_pipelines.py::test_pipeline_small_records"
_BY_STAGE = {
    "Map": "benchmarks/test_pipelines.py::test_pipeline_waiting",
    "ParallelMapV2": _SMALL,
    **dict.fromkeys(
        ("InterleaveV2", "Interleave", "FlatMap", "TFRecord"), "benchmarks/test_pipelines.py::test_reading"
    ),
    **dict.fromkeys(("Shuffle", "ShuffleAndRepeat"), "benchmarks/test_pipelines.py::test_shuffle"),
}
"""Kind of stage that is the bottleneck -> the benchmark that measures its fix."""


def _launch_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    share = (steps.spent(TimeCategory.LAUNCH) + steps.spent(TimeCategory.OTHER)) / steps.seconds
    if share >= policy.launch_bound:
        computing = (TimeCategory.HOST, TimeCategory.DEVICE)
        ops = sum(part.calls for key, part in steps.parts.items() if key.category in computing)
        yield Advice(
            "launch-bound",
            f"{share:.0%} of a step is neither an op nor waiting, but Python and the dispatch of {ops:.0f} ops",
            "use tf.function with jit_compile=True, a larger batch, or several steps per call (steps_per_execution)",
            "benchmarks/test_training.py::test_execution",
        )


def _precision(seen: Seen, policy: Policy) -> Iterator[Advice]:
    share = seen.overview.sixteen_bit if seen.overview else None
    if share is not None and share < policy.sixteen_bit and any(kernel.eligible for kernel in seen.kernels):
        yield Advice(
            "no 16 bit",
            f"{share:.1%} of device time is in 16 bit, and the device has Tensor Cores",
            "use mixed_float16 or mixed_bfloat16, with dimensions that are multiples of 8",
            "benchmarks/test_linear.py::test_matmul",
        )


def _transposes(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    keys = [key for key in steps.parts if "transpose" in key.kind.lower() and "conv" not in key.kind.lower()]
    share = steps.covered(keys) / steps.seconds
    if share >= policy.transposing:
        calls = sum(steps.parts[key].calls for key in keys)
        yield Advice(
            "transposes",
            f"{calls:.0f} transposes take {share:.0%} of a step",
            "keep one layout throughout: NHWC on CPUs, and the layout that the convolutions prefer on GPUs",
            "benchmarks/test_convolution.py::test_conv2d_3x3",
        )


# Step time by category: the overview, with the longest ops and the hardware, and the pod view of each worker


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
