"""Read tf.data pipelines from a profile: their stages, and the stages that the program waited for.

The event of a stage covers one call for its next element. On one thread, it lies inside the event of the calling stage.
A stage that runs ahead (prefetch, parallel map, parallel interleave) calls its inputs on its own threads. ``parent_id``
ties these events to it.

At each moment of a call from the program, one stage is to blame. The search starts at the root. It visits the innermost
call on the thread, then the calls and functions that other threads run for that stage. The critical time of a stage is
the sum of these moments. The bottleneck is the stage with the most critical time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tfbench.profiles.tfdata_calls import LOOP, REDUCE, ROOT, caller_of, callers, is_call, long_name, top
from tfbench.profiles.tfdata_functions import Functions, Run
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
    ops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Type of op -> seconds in the stage's functions."""

    @property
    def kind(self) -> str:
        """Such as ``ParallelMapV2``."""
        return self.name.rpartition("::")[2]

    @property
    def level(self) -> int:
        """Distance from the root."""
        return self.name.count("::") - 1

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
        self._lines = [calls for events in lines if (calls := [event for event in events if is_call(event)])]
        self._timelines = [_Timeline(calls) for calls in self._lines]
        self._functions = Functions(lines)
        callers_of = {call: caller_of(call) for calls in self._lines for call in calls}
        looping = {caller for call, caller in callers_of.items() if call.name == LOOP}
        self.roots = [
            call
            for call, caller in callers_of.items()
            if (caller is None and long_name(call) == ROOT and call not in looping)
            or (caller is not None and caller.name == LOOP)
        ]
        """Calls from the program."""
        self._first = {
            caller: long_name(call) for call, caller in callers_of.items() if caller and long_name(caller) == ROOT
        }
        """Call of a root -> long name of the stage below it."""
        spans = [event.span for events in lines for event in events]
        self.whole = min((start for start, _ in spans), default=0), max((end for _, end in spans), default=0)
        """From the start of the first event to the end of the last."""
        self.blames = {root: _joined(self._blamed(root)) for root in self.roots}
        """Call from the program -> the stages to blame for its time."""

    def covers(self, event: Event) -> bool:
        """Whether an event is a call of a stage, or the execution of a function for one."""
        return (is_call(event) and event.name not in (LOOP, REDUCE)) or event.stats.get("id") in self._functions.numbers

    def pipelines(self, windows: Sequence[Span]) -> list[Pipeline]:
        """Return the pipelines called within these windows, the one with the longest wait first."""
        stages: dict[str, TfDataStage] = {}
        windows = union(windows)
        for calls in self._lines:
            for event in calls:
                if overlaps(windows, event.span):
                    self._count(stages, event)
        roots: dict[str, list[Event]] = defaultdict(list)
        for root in self.roots:
            if not overlaps(windows, root.span):
                continue
            if (first := self._first.get(root, long_name(root))) != ROOT:
                roots[top(first)].append(root)
            for blame in self.blames[root]:
                stage = stages.setdefault(blame.stage, TfDataStage(blame.stage))
                stage.critical += blame.weight * (blame.span[1] - blame.span[0]) * 1e-12
        for name, ops in self._functions.ops.items():
            if name in stages:
                stages[name].ops.update(ops)
        ordered = sorted(stages.values(), key=lambda stage: (stage.level, stage.name))
        found = [
            Pipeline(
                stages=[stage for stage in ordered if top(stage.name) == first],
                calls=len(called),
                slow=sum(root.seconds > self._slow for root in called),
                waited=sum(root.seconds for root in called),
                slowness=self._slow,
            )
            for first, called in roots.items()
        ]
        return sorted(found, key=lambda pipeline: -pipeline.waited)

    def _count(self, stages: dict[str, TfDataStage], event: Event) -> None:
        name = long_name(event)
        if name == ROOT:
            return
        stage = stages.setdefault(name, TfDataStage(name))
        stage.calls += 1
        stage.slow += event.seconds > self._slow
        stage.total += event.seconds
        stage.own += event.seconds
        if (caller := caller_of(event)) is not None and (name := long_name(caller)) != ROOT:
            stages.setdefault(name, TfDataStage(name)).own -= event.seconds

    def _blamed(self, root: Event) -> Iterator[Blame]:
        """Find the stages to blame for a call from the program, span by span."""
        times = {root.start, root.end}
        for timeline in self._timelines:
            times.update(timeline.changes(root.start, root.end))
        runs = self._functions.within(root.span)
        times.update(time for run in runs for time in (run.asked, run.began, run.ended) if root.start < time < root.end)
        ordered = sorted(times)
        coming = sorted(runs, key=lambda run: -run.asked)
        current: list[Run] = []
        home = next(timeline for timeline in self._timelines if timeline.has(root))
        for start, end in pairwise(ordered):
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
        own = self._first.get(call, long_name(call))
        found = []
        if any(run.owner == number and run.began <= time for run in runs):
            found = [own]
        elif any(run.owner == number for run in runs):
            # The function waits for a thread: the stages whose functions hold the threads are to blame.
            found = list(dict.fromkeys(run.stage for run in runs if run.began <= time))
        if number in seen:
            return found or [own]
        for timeline in self._timelines:
            if timeline is home or (inner := timeline.at(time)) is None:
                continue
            if any(event.stats.get("parent_id") == number for event in (inner, *callers(inner))):
                found += self._working_for(inner, timeline, time, runs, seen | {number})
        return found or [own]


def _joined(blames: Iterable[Blame]) -> list[Blame]:
    """Merge adjacent spans of the same stage."""
    joined: list[Blame] = []
    for blame in blames:
        last = joined[-1] if joined else None
        if last and last.stage == blame.stage and last.weight == blame.weight and last.span[1] == blame.span[0]:
            joined[-1] = replace(last, span=(last.span[0], blame.span[1]))
        else:
            joined.append(blame)
    return joined


class _Timeline:
    """The innermost call of one thread at each moment."""

    def __init__(self, calls: Sequence[Event]) -> None:
        self._times: list[int] = []
        self._inner: list[Event | None] = []
        self._calls = frozenset(calls)
        open_: list[Event] = []
        for call in calls:
            self._close(open_, call.start)
            self._change(call.start, call)
            open_.append(call)
        self._close(open_, math.inf)

    def _close(self, open_: list[Event], until: float) -> None:
        """Return to the calling stage at the end of each call that ends by this time."""
        while open_ and open_[-1].end <= until:
            ended = open_.pop()
            self._change(ended.end, open_[-1] if open_ else None)

    def _change(self, time: int, inner: Event | None) -> None:
        self._times.append(time)
        self._inner.append(inner)

    def has(self, call: Event) -> bool:
        return call in self._calls

    def at(self, time: int) -> Event | None:
        place = bisect_right(self._times, time) - 1
        return self._inner[place] if place >= 0 else None

    def changes(self, start: int, end: int) -> list[int]:
        return self._times[bisect_right(self._times, start) : bisect_right(self._times, end)]
