"""tf.data pipelines as a profile shows them: their stages, and which of them the program waited for.

A stage's event covers a call for its next element, and lies in the event of the stage that called it as long as both
run on one thread. A stage that works ahead (prefetch, parallel map, parallel interleave) calls its inputs on threads of
its own, so their events stand elsewhere, tied to it by ``parent_id``. At each moment of a call from the program the
stage to blame is found by going from the root to whatever is running on its behalf: the innermost call on the thread,
then the calls and functions that other threads run for that stage. Summed up over all such moments this is the critical
time of a stage, and the bottleneck is the stage that has most of it.
"""

from __future__ import annotations

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
    """One stage of a pipeline, all of its iterators together: each element of a flat map has one of its own."""

    name: str
    """Its long name: the stages from the root to it."""
    calls: int = 0
    slow: int = 0
    """Calls that took longer than the policy's threshold."""
    total: float = 0.0
    """Seconds in its calls, those of its inputs on the same thread included."""
    own: float = 0.0
    """The same without its inputs."""
    critical: float = 0.0
    """Seconds in which the program waited because of it."""
    ops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Type of op -> seconds in the stage's functions."""

    @property
    def kind(self) -> str:
        """As ``ParallelMapV2``."""
        return self.name.rpartition("::")[2]

    @property
    def level(self) -> int:
        """How far it is from the root."""
        return self.name.count("::") - 1

    @property
    def path(self) -> str:
        """Its long name as people read it."""
        return self.name.removeprefix(f"{ROOT}::")


@dataclass(frozen=True)
class Pipeline:
    """What the program called ``next`` on."""

    stages: Sequence[TfDataStage]
    """From the root on."""
    calls: int
    """Of the program."""
    slow: int
    """Those of them that were slow."""
    waited: float
    """Seconds that the program spent in them."""
    slowness: float
    """Seconds from which a call is slow."""

    @property
    def bottleneck(self) -> TfDataStage | None:
        """The stage that was waited for, ``None`` if the pipeline keeps up: if a call, on average, is not slow."""
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
    """A stretch of a call from the program, and the long name of the stage that it was spent on."""

    span: Span
    stage: str
    weight: float = 1.0
    """Less than one where several stages ran at once."""


class Input:
    """All that a profile shows of its pipelines.

    Args:
        slow: Seconds from which a call is slow.
    """

    def __init__(self, space: Space, slow: float) -> None:
        lines = [line.events for plane in space.planes for line in plane.lines]
        self._slow = slow
        self._lines = [calls for events in lines if (calls := [event for event in events if is_call(event)])]
        self._timelines = [_Timeline(calls) for calls in self._lines]
        self._functions = Functions(lines)
        looping = {caller_of(call) for calls in self._lines for call in calls if call.name == LOOP}
        self.roots = [
            call
            for calls in self._lines
            for call in calls
            if ((caller := caller_of(call)) is None and long_name(call) == ROOT and call not in looping)
            or (caller is not None and caller.name == LOOP)
        ]
        self._first = {
            caller: long_name(call)
            for calls in self._lines
            for call in calls
            if (caller := caller_of(call)) is not None and long_name(caller) == ROOT
        }
        self.whole = _extent(lines)
        """From the first event to the end of the last."""
        self.blames = {root: _joined(self._blamed(root)) for root in self.roots}
        """For each call of the program, what it was spent on."""

    def tells_of(self, event: Event) -> bool:
        """Whether an event is a call of a stage, or the execution of a function that one asked for."""
        return (is_call(event) and event.name not in (LOOP, REDUCE)) or event.stats.get("id") in self._functions.numbers

    def pipelines(self, windows: Sequence[Span]) -> list[Pipeline]:
        """Those that the program called within these windows, the one that it waited for longest first."""
        stages: dict[str, TfDataStage] = {}
        windows = union(windows)
        for calls in self._lines:
            for event in calls:
                if overlaps(windows, (event.start, event.end)):
                    self._count(stages, event)
        roots: dict[str, list[Event]] = defaultdict(list)
        for root in self.roots:
            if not overlaps(windows, (root.start, root.end)):
                continue
            if (first := self._first.get(root, long_name(root))) != ROOT:
                roots[top(first)].append(root)
            for blame in self.blames[root]:
                stage = stages.setdefault(blame.stage, TfDataStage(blame.stage))
                stage.critical += blame.weight * (blame.span[1] - blame.span[0]) * 1e-12
        for name, ops in self._functions.ops.items():
            if name in stages:
                stages[name].ops.update(ops)
        found = [
            Pipeline(
                stages=sorted(
                    (stage for stage in stages.values() if top(stage.name) == first),
                    key=lambda stage: (stage.level, stage.name),
                ),
                calls=len(called),
                slow=sum((root.end - root.start) * 1e-12 > self._slow for root in called),
                waited=sum(root.end - root.start for root in called) * 1e-12,
                slowness=self._slow,
            )
            for first, called in roots.items()
        ]
        return sorted(found, key=lambda pipeline: -pipeline.waited)

    def _count(self, stages: dict[str, TfDataStage], event: Event) -> None:
        name = long_name(event)
        if name == ROOT:
            return
        seconds = (event.end - event.start) * 1e-12
        stage = stages.setdefault(name, TfDataStage(name))
        stage.calls += 1
        stage.slow += seconds > self._slow
        stage.total += seconds
        stage.own += seconds
        if (caller := caller_of(event)) is not None and (name := long_name(caller)) != ROOT:
            stages.setdefault(name, TfDataStage(name)).own -= seconds

    def _blamed(self, root: Event) -> Iterator[Blame]:
        """What a call of the program was spent on, stretch by stretch."""
        times = {root.start, root.end}
        for timeline in self._timelines:
            times.update(timeline.changes(root.start, root.end))
        runs = self._functions.within((root.start, root.end))
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
        """The stages that work on behalf of a call: its own, if it has its inputs already.

        Args:
            runs: Functions that are running at that time, or waiting for a thread.
            seen: Ids of the iterators on the way there.
        """
        number = call.stats.get("id")
        # What the root does itself, it does for the stage below it.
        own = self._first.get(call, long_name(call))
        found = []
        if any(run.owner == number and run.began <= time for run in runs):
            found = [own]
        elif any(run.owner == number for run in runs):
            # It waits for a thread: whoever has one keeps it waiting.
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
    """The same with one for stretches that follow each other and were spent on one stage."""
    joined: list[Blame] = []
    for blame in blames:
        last = joined[-1] if joined else None
        if last and last.stage == blame.stage and last.weight == blame.weight and last.span[1] == blame.span[0]:
            joined[-1] = replace(last, span=(last.span[0], blame.span[1]))
        else:
            joined.append(blame)
    return joined


def _extent(lines: Iterable[Sequence[Event]]) -> Span:
    events = [event for line in lines for event in line]
    return min((event.start for event in events), default=0), max((event.end for event in events), default=0)


class _Timeline:
    """The innermost call at each moment of one thread."""

    def __init__(self, calls: Sequence[Event]) -> None:
        self._times: list[int] = []
        self._inner: list[Event | None] = []
        self._calls = frozenset(calls)
        open_: list[Event] = []
        for call in calls:
            while open_ and open_[-1].end <= call.start:
                ended = open_.pop()
                self._change(ended.end, open_[-1] if open_ else None)
            self._change(call.start, call)
            open_.append(call)
        while open_:
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
