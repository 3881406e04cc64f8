"""tf.data pipelines as a profile shows them: their stages, and which of them the program waited for.

A stage's event covers a call for its next element, and lies in the event of the stage that called it as long as both
run on one thread. A stage that works ahead (prefetch, parallel map, parallel interleave) calls its inputs on threads of
its own, so their events stand elsewhere, tied to it by ``parent_id``. At each moment of a call from the program the
stage to blame is found by going from the root to whatever is running on its behalf: the innermost call on the thread,
then the calls and functions that other threads run for that stage. Summed up over all such moments this is the critical
time of a stage, and the bottleneck is the stage that has most of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tfbench.profiles.xplane import Event, Space, Span, clipped, union

ROOT = "Iterator::Root"
_CALL = re.compile(r"\w*Iterator::")
_REDUCE = "ReduceIterator::Root"
_LOOP = f"{_REDUCE}::Scan"
"""AutoGraph's ``for`` over a dataset: the scan's function is the body of the loop, and no part of the input."""
_NUMBER = re.compile(r"\[\d+\]")
_RUN = re.compile(r"(Instantiated)?CapturedFunction::Run")
_EXECUTED = ("ExecutorState::", "ExecutorDoneCallback", "FunctionRun")
_PRODUCES = "Produce"
_OP = re.compile(r".*:([A-Za-z_]\w*)$")


@dataclass
class Stage:
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

    stages: Sequence[Stage]
    """From the root on."""
    calls: int
    """Of the program."""
    slow: int
    """Those of them that were slow."""
    waited: float
    """Seconds that the program spent in them."""

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that was waited for, ``None`` if the pipeline keeps up."""
        return max(self.stages, key=lambda stage: stage.critical) if self.slow and self.stages else None

    @property
    def path(self) -> list[Stage]:
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
        self._lines = [calls for events in lines if (calls := [event for event in events if _is_call(event)])]
        self._timelines = [_Timeline(calls) for calls in self._lines]
        self._functions = _Functions(lines)
        looping = {_caller(call) for calls in self._lines for call in calls if call.name == _LOOP}
        self.roots = [
            call
            for calls in self._lines
            for call in calls
            if ((caller := _caller(call)) is None and long_name(call) == ROOT and call not in looping)
            or (caller is not None and caller.name == _LOOP)
        ]
        self._first = {
            caller: long_name(call)
            for calls in self._lines
            for call in calls
            if (caller := _caller(call)) is not None and long_name(caller) == ROOT
        }
        self.whole = _extent(lines)
        """From the first event to the end of the last."""
        self.blames = {root: list(self._blamed(root)) for root in self.roots}
        """For each call of the program, what it was spent on."""

    def tells_of(self, event: Event) -> bool:
        """Whether an event is a call of a stage, or the execution of a function that one asked for."""
        return (_is_call(event) and event.name not in (_LOOP, _REDUCE)) or event.stats.get("id") in self._functions.runs

    def pipelines(self, windows: Sequence[Span]) -> list[Pipeline]:
        """Those that the program called within these windows, the one that it waited for longest first."""
        stages: dict[str, Stage] = {}
        windows = union(windows)
        for calls in self._lines:
            for event in calls:
                if clipped(windows, (event.start, event.end)):
                    self._count(stages, event)
        roots: dict[str, list[Event]] = defaultdict(list)
        for root in self.roots:
            if not clipped(windows, (root.start, root.end)):
                continue
            if (first := self._first.get(root, long_name(root))) != ROOT:
                roots[_top(first)].append(root)
            for blame in self.blames[root]:
                stage = stages.setdefault(blame.stage, Stage(blame.stage))
                stage.critical += blame.weight * (blame.span[1] - blame.span[0]) * 1e-12
        for name, ops in self._functions.ops.items():
            if name in stages:
                stages[name].ops.update(ops)
        found = [
            Pipeline(
                stages=sorted(
                    (stage for stage in stages.values() if _top(stage.name) == top),
                    key=lambda stage: (stage.level, stage.name),
                ),
                calls=len(called),
                slow=sum((root.end - root.start) * 1e-12 > self._slow for root in called),
                waited=sum(root.end - root.start for root in called) * 1e-12,
            )
            for top, called in roots.items()
        ]
        return sorted(found, key=lambda pipeline: -pipeline.waited)

    def _count(self, stages: dict[str, Stage], event: Event) -> None:
        name = long_name(event)
        if name == ROOT:
            return
        seconds = (event.end - event.start) * 1e-12
        stage = stages.setdefault(name, Stage(name))
        stage.calls += 1
        stage.slow += seconds > self._slow
        stage.total += seconds
        stage.own += seconds
        if (caller := _caller(event)) is not None and (name := long_name(caller)) != ROOT:
            stages.setdefault(name, Stage(name)).own -= seconds

    def _blamed(self, root: Event) -> Iterator[Blame]:
        """What a call of the program was spent on, stretch by stretch."""
        times = {root.start, root.end}
        for timeline in self._timelines:
            times.update(timeline.changes(root.start, root.end))
        for spans in self._functions.spans.values():
            times.update(time for span in clipped(spans, (root.start, root.end)) for time in span)
        ordered = sorted(times)
        home = next(timeline for timeline in self._timelines if timeline.has(root))
        for start, end in pairwise(ordered):
            middle = (start + end) // 2
            if (inner := home.at(middle)) is not None:
                working = self._working_for(inner, home, middle, frozenset())
                for call in working:
                    # What the root does itself, it does for the stage below it.
                    name = self._first.get(call, long_name(call))
                    yield Blame((start, end), name, 1 / len(working))

    def _working_for(self, call: Event, home: _Timeline, time: int, seen: frozenset[object]) -> list[Event]:
        """The calls that are running on behalf of this one: itself, if it has its inputs already."""
        number = call.stats.get("id")
        found = [call] if self._functions.running(number, time) else []
        if number in seen:
            return found or [call]
        for timeline in self._timelines:
            if timeline is home or (inner := timeline.at(time)) is None:
                continue
            if any(event.stats.get("parent_id") == number for event in (inner, *_callers(inner))):
                found += self._working_for(inner, timeline, time, seen | {number})
        return found or [call]


def _extent(lines: Iterable[Sequence[Event]]) -> Span:
    events = [event for line in lines for event in line]
    return min((event.start for event in events), default=0), max((event.end for event in events), default=0)


def long_name(event: Event) -> str:
    """The long name of the stage that was called, the numbers of a flat map's elements left out."""
    name = without_numbers(event.name)
    loop = next((loop for loop in (_LOOP, _REDUCE) if name.startswith(loop)), "")
    return ROOT + name[len(loop) :] if loop else name


def without_numbers(name: str) -> str:
    """The name of a stage without those of a flat map's elements, of which each has iterators of its own."""
    return _NUMBER.sub("", name) if _CALL.match(name) else name


def _top(name: str) -> str:
    return "::".join(name.split("::")[:3])


def _is_call(event: Event) -> bool:
    return _CALL.match(event.name) is not None


def _callers(event: Event) -> Iterator[Event]:
    return (above for above in event.above if _is_call(above))


def _caller(event: Event) -> Event | None:
    return next(_callers(event), None)


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


class _Functions:
    """The functions that stages ran: when, for which stage, and what was in them."""

    def __init__(self, lines: Iterable[Sequence[Event]]) -> None:
        owners: dict[object, tuple[object, str]] = {}
        spans: dict[object, list[Span]] = defaultdict(list)
        executed: list[tuple[object, Event]] = []
        lines = list(lines)
        for events in lines:
            produced = {call.parent: call for call in events if call.parent is not None and _is_call(call)}
            for event in events:
                number = event.stats.get("id")
                if number is not None and _RUN.match(event.name):
                    if (owner := _owner(event, produced)) is not None:
                        owners[number] = owner
                        spans[number].append((event.start, event.end))
                elif number is not None and event.name.startswith(_EXECUTED):
                    executed.append((number, event))
        self.runs = frozenset(owners)
        ends: dict[object, list[Span]] = defaultdict(list)
        for number, event in executed:
            if number in owners:
                spans[number].append((event.start, event.end))
        for number, ones in spans.items():
            # From the call to the last that was done for it: between the two it may wait for a thread.
            ends[owners[number][0]].append((min(start for start, _ in ones), max(end for _, end in ones)))
        self.spans = {owner: union(ones) for owner, ones in ends.items()}
        """Id of an iterator -> when at least one of its functions was running."""
        self._starts = {owner: [start for start, _ in ones] for owner, ones in self.spans.items()}
        self.ops: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Long name of a stage -> type of op -> seconds."""
        for events in lines:
            for event in events:
                if (found := _OP.match(event.name)) is None or _is_call(event):
                    continue
                number = next((above.stats["id"] for above in event.above if above.name.startswith(_EXECUTED)), None)
                if number in owners:
                    self.ops[owners[number][1]][found[1]] += (event.end - event.start) * 1e-12

    def running(self, owner: object, time: int) -> bool:
        if owner not in self.spans:
            return False
        place = bisect_right(self._starts[owner], time) - 1
        return place >= 0 and time < self.spans[owner][place][1]


def _owner(event: Event, produced: dict[Event, Event]) -> tuple[object, str] | None:
    """Id and long name of the stage that runs a function: the one it lies in, or whose input it has just taken."""
    for above in event.above:
        if _is_call(above):
            return (above.stats.get("id"), long_name(above)) if above.name != _LOOP else None
        if above.name.endswith(_PRODUCES) and (call := produced.get(above)) is not None:
            return call.stats.get("parent_id"), long_name(call).rpartition("::")[0]
    return None
