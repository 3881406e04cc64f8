"""tf.data bottleneck analysis: each pipeline's stages, its critical path, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.errors import ProfileError
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.tfdata import Input, Pipeline, TfDataStage
from tfbench.profiles.xplane import Span, length

_CURES = (
    ("ParallelMap", "do less in its function, vectorise it by batching before the map, or cache what it gives"),
    ("MapAndBatch", "do less in its function, or cache what it gives"),
    ("Map", "let it run ahead and side by side: map(…, num_parallel_calls=tf.data.AUTOTUNE), then prefetch"),
    ("ParallelInterleave", "raise its cycle_length, or do less in what it interleaves"),
    ("Interleave", "read side by side: interleave(…, num_parallel_calls=tf.data.AUTOTUNE)"),
    ("FlatMap", "use interleave(…, num_parallel_calls=tf.data.AUTOTUNE), which opens its inputs ahead"),
    ("ParallelBatch", "use smaller elements, or batch less often"),
    ("PaddedBatch", "sort elements by their lengths into buckets, so that there is less to pad"),
    ("Batch", "batch(…, num_parallel_calls=tf.data.AUTOTUNE), and prefetch behind it"),
    ("Shuffle", "use a smaller buffer_size, and shuffle small things such as file names before they are read"),
    ("Filter", "filter batches and not single elements, or before costly stages"),
    ("Generator", "leave Python: tf.io, TFRecord files or from_tensor_slices instead of from_generator"),
    ("TFRecord", "read several files side by side: interleave(…, num_parallel_calls=tf.data.AUTOTUNE), then prefetch"),
    ("TextLine", "read several files side by side, or store records in TFRecord files"),
    ("FixedLengthRecord", "read several files side by side: interleave(…, num_parallel_calls=tf.data.AUTOTUNE)"),
    ("MemoryCache", "the first epoch fills it; look at a later one"),
    ("Cache", "cache in memory instead of in a file, if it fits"),
    ("Snapshot", "more shards, or a faster disk"),
    ("DataService", "more workers, or batches that are made there"),
    ("Prefetch", "the stages before it cannot fill it in time: see their own times"),
    ("Scan", "it runs one element after the other: do less in its function"),
    ("Unbatch", "leave batches whole, or rebatch"),
    ("GroupBy", "do less in its functions, or group ahead of training"),
)
"""Beginning of a kind of stage, and what helps when it is the bottleneck; the first that fits counts."""
_CURE = "do less there, or put prefetch(tf.data.AUTOTUNE) behind it so that it runs ahead"


_MAPS = ("Map", "ParallelMap")
_VECTORISE = "batch before it, so that one call of its function does the work of many"


def is_overhead(stage: TfDataStage, slow: float) -> bool:
    """Whether a map costs more by its calls than by what it does in them: many calls, none of which is slow."""
    return stage.kind.startswith(_MAPS) and stage.calls > 0 and stage.own / stage.calls < slow


def fix(stage: TfDataStage, slow: float) -> str:
    """What helps when this stage is the bottleneck.

    Args:
        slow: Seconds from which a call is slow.
    """
    if is_overhead(stage, slow):
        return f"{_VECTORISE}: {stage.calls:,} calls take {stage.own / stage.calls * 1e6:.0f} µs each"
    return next((words for kind, words in _CURES if stage.kind.startswith(kind)), _CURE)


@dataclass(frozen=True)
class Bottlenecks:
    """The pipelines that the program waited for."""

    pipelines: Sequence[Pipeline]
    """The one that it waited for longest first."""
    seconds: float
    """Of all windows together."""

    @property
    def waiting(self) -> float:
        """Share of the steps' time in calls for input."""
        return sum(pipeline.waited for pipeline in self.pipelines) / self.seconds if self.seconds else 0.0

    def section(self) -> Section:
        tables = []
        for number, pipeline in enumerate(self.pipelines, 1):
            end = pipeline.bottleneck
            path = pipeline.path
            tables.append(Table(
                f"stages_{number}", f"Stages of {pipeline.stages[0].path if pipeline.stages else 'a pipeline'}",
                (Column("stage", NAME), Column("calls", COUNT), Column("slow calls", COUNT), Column("total", SECONDS),
                 Column("self", SECONDS), Column("waited for", SECONDS), Column("share", SHARE), Column("mostly"),
                 Column("critical")),
                tuple(
                    (stage.path, stage.calls, stage.slow, stage.total, stage.own, stage.critical,
                     stage.critical / self.seconds if self.seconds else 0.0, _longest(stage),
                     "bottleneck" if stage is end else "path" if stage in path else "")
                    for stage in pipeline.stages
                ),
            ))  # fmt: skip
        return Section("tf_data", "tf.data bottleneck analysis", tuple(tables), tuple(self._notes()))

    def _notes(self) -> list[str]:
        notes = [f"{self.waiting:.1%} of the steps' time is spent in calls for input"]
        for pipeline in self.pipelines:
            if (end := pipeline.bottleneck) is None:
                first = pipeline.stages[0].path if pipeline.stages else "it"
                notes.append(
                    f"{first} keeps up: {pipeline.slow} of {pipeline.calls} calls took longer than "
                    f"{pipeline.slowness * 1e6:g} µs, the mean is {pipeline.waited / pipeline.calls * 1e6:.1f} µs"
                )
                continue
            share = end.critical / pipeline.waited if pipeline.waited else 0.0
            mostly = f", mostly {name}" if (name := _longest(end)) else ""
            notes.append(
                f"bottleneck: {end.path} ({share:.0%} of the waiting; {pipeline.slow} of {pipeline.calls} calls "
                f"were slow{mostly}): {fix(end, pipeline.slowness)}"
            )
        return notes


def _longest(stage: TfDataStage) -> str:
    return max(stage.ops, key=lambda kind: stage.ops[kind]) if stage.ops else ""


def bottlenecks(data: Input, windows: Sequence[Span]) -> Bottlenecks:
    """Of the pipelines that were called within these windows: the marked steps, or all of a profile without any.

    Raises:
        ProfileError: None was.
    """
    found = data.pipelines(windows)
    if not found:
        raise ProfileError("no step takes its input from tf.data")
    return Bottlenecks(found, length(windows))
