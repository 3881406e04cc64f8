"""Read input pipelines from a profile.

The event of a stage covers one call for its next element. On one thread, it lies inside the event of the calling stage.
A stage that runs ahead (prefetch, parallel map, parallel interleave) calls its inputs on its own threads. ``parent_id``
ties these events to it.

At each moment of a call from the program, one stage is to blame. The search starts at the root. It visits the innermost
call on the thread, then the calls and functions that other threads run for that stage. The critical time of a stage is
the sum of these moments. The bottleneck is the stage with the most critical time.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from tfbench.errors import ProfileError
from tfbench.profiles import COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.xplane import Event, Space, Span, length, overlaps, union

# Find the calls of tf.data's stages among the events of a profile, and the functions that the stages run


ROOT = "Iterator::Root"
REDUCE = "ReduceIterator::Root"
LOOP = f"{REDUCE}::Scan"
"""AutoGraph's ``for`` over a dataset. The function of the scan is the body of the loop, not part of the input."""
_LOOP_ROOT = re.compile(rf"^{REDUCE}(::Scan)?")
_NUMBER = re.compile(r"\[\d+\]")
_CALL = re.compile(r"\w*Iterator::")
_RUN = re.compile(r"(Instantiated)?CapturedFunction::Run")
_EXECUTED = ("ExecutorState::", "ExecutorDoneCallback")
_OP = re.compile(r".*:([A-Za-z_]\w*)$")


@lru_cache(maxsize=4096)
def long_name(name: str) -> str:
    """Return the long name of a called stage from the name of the event."""
    return _LOOP_ROOT.sub(ROOT, without_numbers(name), count=1)


def without_numbers(name: str) -> str:
    """Remove the numbers of a flat map's elements, each of which has its own iterators."""
    return _NUMBER.sub("", name) if _CALL.match(name) else name


def is_call(event: Event) -> bool:
    """Whether an event is a call of a stage for its next element."""
    return "Iterator::" in event.name and _CALL.match(event.name) is not None


def callers(event: Event) -> Iterator[Event]:
    """Return the calls on the same thread that contain an event, the nearest first."""
    return (above for above in event.above if is_call(above))


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a function on a shared thread."""

    owner: object
    """Id of the iterator that requested it."""
    stage: str
    """Long name of the stage."""
    asked: int
    began: int
    """Later than ``asked`` if the function waited for a thread."""
    ended: int


class Functions:
    """The functions of one profile."""

    def __init__(self, lines: Sequence[Sequence[Event]]) -> None:
        asked: dict[object, tuple[object, str, Span]] = {}
        executed: dict[object, list[Event]] = defaultdict(list)
        for events in lines:
            taken = {call.parent: call for call in events if call.parent is not None and is_call(call)}
            for event in events:
                if (number := event.stats.get("id")) is None:
                    continue
                if _RUN.match(event.name) and (owner := _owner(event, taken)) is not None:
                    asked[number] = (*owner, event.span)
                elif event.name.startswith(_EXECUTED):
                    executed[number].append(event)
        self.numbers = frozenset(asked)
        """Ids of the executions. Other events carry them as well."""
        self.runs: list[Run] = []
        for number, (iterator, stage, span) in asked.items():
            began, ended = zip(*([event.span for event in executed[number]] or [span]), strict=True)
            self.runs.append(Run(iterator, stage, span[0], min(began), max(ended)))
        self.runs.sort(key=lambda run: run.asked)
        self.ops: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Long name of a stage -> type of op -> seconds."""
        for event in (event for events in lines for event in events):
            if (match := _OP.match(event.name)) is not None and not is_call(event):
                numbers = (above.stats.get("id") for above in event.above if above.name.startswith(_EXECUTED))
                if (number := next(numbers, None)) in asked:
                    self.ops[asked[number][1]][match[1]] += event.seconds

    def within(self, span: Span) -> list[Run]:
        """Return the executions that waited or ran within a span."""
        until = bisect_left(self.runs, span[1], key=lambda run: run.asked)
        return [run for run in self.runs[:until] if run.ended > span[0]]


def _owner(event: Event, taken: dict[Event, Event]) -> tuple[object, str] | None:
    """Return id and long name of the stage that runs a function: the one around it, or the one whose input it took."""
    for above in event.above:
        if is_call(above):
            return (above.stats.get("id"), long_name(above.name)) if above.name != LOOP else None
        if above.name.endswith("Produce") and (call := taken.get(above)) is not None:
            return call.stats.get("parent_id"), long_name(call.name).rpartition("::")[0]
    return None


# Read tf.data pipelines from a profile: their stages, and the stages that the program waited for


@dataclass
class TfDataStage:
    """One stage of a pipeline. It merges all of its iterators: each element of a flat map has its own."""

    name: str
    """Long name: the stages from the root to this one."""
    calls: int = 0
    slow: int = 0
    """Calls above the policy's threshold."""
    total: float = 0.0
    """Seconds in its calls, including its inputs on the same thread."""
    own: float = 0.0
    """Seconds in its calls, excluding its inputs."""
    critical: float = 0.0
    """Seconds in which the program waited for this stage."""
    ops: dict[str, float] = field(default_factory=dict)
    """Type of op -> seconds in the stage's functions."""

    @property
    def kind(self) -> str:
        """Such as ``ParallelMapV2``."""
        return self.name.rpartition("::")[2]

    @property
    def path(self) -> str:
        """Long name without the root."""
        return self.name.removeprefix(f"{ROOT}::")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that the program called ``next`` on."""

    stages: Sequence[TfDataStage]
    """From the root downwards."""
    calls: int
    """Calls from the program."""
    slow: int
    """Slow calls from the program."""
    waited: float
    """Seconds that the program spent in its calls."""
    slowness: float
    """Seconds from which a call is slow."""

    @property
    def bottleneck(self) -> TfDataStage | None:
        """The stage with the most critical time. ``None`` if the mean call is not slow: the pipeline keeps up."""
        if not self.stages or self.waited <= self.calls * self.slowness:
            return None
        return max(self.stages, key=lambda stage: stage.critical)

    @property
    def path(self) -> list[TfDataStage]:
        """The critical path: the stages from the root to the bottleneck."""
        end = self.bottleneck
        return [stage for stage in self.stages if end and f"{end.name}::".startswith(f"{stage.name}::")]


@dataclass(frozen=True, slots=True)
class Blame:
    """A span of a call from the program, and the long name of the stage to blame for it."""

    span: Span
    stage: str
    weight: float = 1.0
    """Less than 1 where several stages ran at once."""


class Input:
    """The tf.data pipelines of one profile. A call is slow from ``slow`` seconds on."""

    def __init__(self, space: Space, slow: float) -> None:
        lines = [line.events for plane in space.planes for line in plane.lines]
        self._slow = slow
        self._timelines = [_Timeline(own) for events in lines if (own := [*filter(is_call, events)])]
        self._functions = Functions(lines)
        calls = [(call, timeline) for timeline in self._timelines for call in timeline.calls]
        self._callers = {call: next(callers(call), None) for call, _ in calls}
        """Call -> the call around it on the same thread."""
        looping = {caller for call, caller in self._callers.items() if call.name == LOOP}
        self._first = {
            caller: long_name(call.name)
            for call, caller in self._callers.items()
            if caller is not None and long_name(caller.name) == ROOT
        }
        """Call of a root -> long name of the stage below it."""
        runs = self._functions.runs
        self._changes = sorted(
            {time for call, _ in calls for time in call.span}
            | {time for run in runs for time in (run.asked, run.began, run.ended)}
        )
        """Times at which another stage may be to blame."""
        self.blames = {
            call: _joined(self._blamed(call, timeline))
            for call, timeline in calls
            if ((caller := self._callers[call]) is not None and caller.name == LOOP)
            or (caller is None and long_name(call.name) == ROOT and call not in looping)
        }
        """Call from the program -> the stages to blame for its time."""

    def covers(self, event: Event) -> bool:
        """Whether an event is a call of a stage, or the execution of a function for one."""
        return (is_call(event) and event.name not in (LOOP, REDUCE)) or event.stats.get("id") in self._functions.numbers

    def pipelines(self, windows: Sequence[Span]) -> list[Pipeline]:
        """Return the pipelines called within these windows, the one with the longest wait first."""
        stages: dict[str, TfDataStage] = {}

        def stage_of(name: str) -> TfDataStage:
            return stages.setdefault(name, TfDataStage(name))

        windows = union(windows)
        for call, caller in self._callers.items():
            if overlaps(windows, call.span) and (name := long_name(call.name)) != ROOT:
                stage = stage_of(name)
                stage.calls += 1
                stage.slow += call.seconds > self._slow
                stage.total += call.seconds
                stage.own += call.seconds
                if caller is not None and (name := long_name(caller.name)) != ROOT:
                    stage_of(name).own -= call.seconds
        roots: dict[str, list[Event]] = defaultdict(list)
        for root, blames in self.blames.items():
            if not overlaps(windows, root.span):
                continue
            if (first := self._first.get(root, long_name(root.name))) != ROOT:
                roots[_top(first)].append(root)
            for blame in blames:
                stage_of(blame.stage).critical += blame.weight * (blame.span[1] - blame.span[0]) * 1e-12
        for name, stage in stages.items():
            stage.ops.update(self._functions.ops.get(name, {}))
        ordered = sorted(stages.values(), key=lambda stage: (stage.name.count("::"), stage.name))
        pipelines = [
            Pipeline(
                stages=[stage for stage in ordered if _top(stage.name) == first],
                calls=len(called),
                slow=sum(root.seconds > self._slow for root in called),
                waited=sum(root.seconds for root in called),
                slowness=self._slow,
            )
            for first, called in roots.items()
        ]
        return sorted(pipelines, key=lambda pipeline: -pipeline.waited)

    def _blamed(self, root: Event, home: _Timeline) -> Iterator[Blame]:
        """Find the stages to blame for a call from the program, span by span."""
        inside = slice(bisect_right(self._changes, root.start), bisect_left(self._changes, root.end))
        coming = self._functions.within(root.span)[::-1]
        current: list[Run] = []
        for start, end in pairwise(sorted({*root.span, *self._changes[inside]})):
            middle = (start + end) // 2
            if (inner := home.at(middle)) is not None:
                while coming and coming[-1].asked <= middle:
                    current.append(coming.pop())
                current = [run for run in current if run.ended > middle]
                names = self._working_for(inner, home, middle, current, frozenset())
                for name in names:
                    yield Blame((start, end), name, 1 / len(names))

    def _working_for(
        self, call: Event, home: _Timeline, time: int, runs: Sequence[Run], seen: frozenset[object]
    ) -> list[str]:
        """Find the stages that work for a call: its own, if it has its inputs already.

        ``runs`` are functions that run at that time, or wait for a thread.
        ``seen`` has the ids of the iterators on the path to the call.
        """
        number = call.stats.get("id")
        # Work of the root itself counts for the stage below it.
        own = self._first.get(call, long_name(call.name))
        stages = []
        if any(run.owner == number and run.began <= time for run in runs):
            stages = [own]
        elif any(run.owner == number for run in runs):
            # The function waits for a thread: the stages whose functions hold the threads are to blame.
            stages = list(dict.fromkeys(run.stage for run in runs if run.began <= time))
        for timeline in self._timelines if number not in seen else ():
            if timeline is home or (inner := timeline.at(time)) is None:
                continue
            if any(event.stats.get("parent_id") == number for event in (inner, *callers(inner))):
                stages += self._working_for(inner, timeline, time, runs, seen | {number})
        return stages or [own]


def _top(name: str) -> str:
    """Return the long name of the first stage below the root, which identifies the pipeline."""
    return "::".join(name.split("::")[:3])


def _joined(blames: Iterable[Blame]) -> list[Blame]:
    """Merge adjacent spans of the same stage."""
    joined: list[Blame] = []
    for blame in blames:
        last = joined[-1] if joined else None
        if last and (last.stage, last.weight, last.span[1]) == (blame.stage, blame.weight, blame.span[0]):
            joined[-1] = replace(last, span=(last.span[0], blame.span[1]))
        else:
            joined.append(blame)
    return joined


class _Timeline:
    """The calls of one thread."""

    def __init__(self, calls: Sequence[Event]) -> None:
        self.calls = calls
        self._starts = [call.start for call in calls]

    def at(self, time: int) -> Event | None:
        """Return the innermost call at a time."""
        if not (place := bisect_right(self._starts, time)):
            return None
        last = self.calls[place - 1]
        return next((call for call in (last, *callers(last)) if call.end > time), None)


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
    """Return the fix for a stage that is the bottleneck. A call is slow from ``slow`` seconds on."""
    if is_overhead(stage, slow):
        return (
            "batch before it, so that one call of its function handles many elements: "
            f"{stage.calls:,} calls take {stage.own / stage.calls * 1e6:.0f} µs each"
        )
    return next((words for kind, words in _FIXES if stage.kind.startswith(kind)), _DEFAULT_FIX)


def bottlenecks(data: Input, windows: Sequence[Span]) -> Section:
    """Analyse the pipelines called within these windows: the marked steps, or the whole profile without any.

    Raises `ProfileError` if no pipeline was called.
    """
    pipelines = data.pipelines(windows)
    if not pipelines:
        raise ProfileError("no step takes its input from tf.data")
    seconds = length(windows) or math.inf
    waiting = sum(pipeline.waited for pipeline in pipelines) / seconds
    notes = (f"{waiting:.1%} of step time is spent in calls for input", *map(_note, pipelines))
    tables = (_table(number, pipeline, seconds) for number, pipeline in enumerate(pipelines, 1))
    return Section("tf_data", tuple(tables), notes)


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
