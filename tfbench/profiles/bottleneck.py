"""tf.data bottleneck analysis: the stages, critical path and bottleneck of each pipeline, and the fix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.errors import ProfileError
from tfbench.profiles.tables import COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.tfdata import Input, Pipeline, TfDataStage
from tfbench.profiles.xplane import Span, length

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
