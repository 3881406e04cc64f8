"""Read tf.data pipelines from a profile: their stages, and the stages that the program waited for.

The event of a stage covers one call for its next element. On one thread, it lies inside the event of the calling stage.
A stage that runs ahead (prefetch, parallel map, parallel interleave) calls its inputs on its own threads. ``parent_id``
ties these events to it.

At each moment of a call from the program, one stage is to blame. The search starts at the root. It visits the innermost
call on the thread, then the calls and functions that other threads run for that stage. The critical time of a stage is
the sum of these moments. The bottleneck is the stage with the most critical time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tfbench.profiles.tfdata_events import LOOP, REDUCE, ROOT, Functions, Run, callers, is_call, long_name
from tfbench.profiles.xplane import Event, Space, Span, overlaps, union


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
    """The tf.data pipelines of one profile.

    Args:
        slow: Seconds from which a call is slow.
    """

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
        found = [
            Pipeline(
                stages=[stage for stage in ordered if _top(stage.name) == first],
                calls=len(called),
                slow=sum(root.seconds > self._slow for root in called),
                waited=sum(root.seconds for root in called),
                slowness=self._slow,
            )
            for first, called in roots.items()
        ]
        return sorted(found, key=lambda pipeline: -pipeline.waited)

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

        Args:
            runs: Functions that run at that time, or wait for a thread.
            seen: Ids of the iterators on the path to the call.
        """
        number = call.stats.get("id")
        # Work of the root itself counts for the stage below it.
        own = self._first.get(call, long_name(call.name))
        found = []
        if any(run.owner == number and run.began <= time for run in runs):
            found = [own]
        elif any(run.owner == number for run in runs):
            # The function waits for a thread: the stages whose functions hold the threads are to blame.
            found = list(dict.fromkeys(run.stage for run in runs if run.began <= time))
        for timeline in self._timelines if number not in seen else ():
            if timeline is home or (inner := timeline.at(time)) is None:
                continue
            if any(event.stats.get("parent_id") == number for event in (inner, *callers(inner))):
                found += self._working_for(inner, timeline, time, runs, seen | {number})
        return found or [own]


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
