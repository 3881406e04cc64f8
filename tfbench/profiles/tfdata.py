"""Read input pipelines from a profile.

The event of a stage covers one call for its next element. On one thread, it lies inside the event of the calling stage.
A stage that runs ahead (prefetch, parallel map, parallel interleave) calls its inputs on its own threads. ``parent_id``
ties these events to it.

At each moment of a call from the program, one stage is to blame. The search starts at the root. It visits the innermost
call on the thread, then the calls and functions that other threads run for that stage.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from tfbench.profiles.xplane import Event, Space, Span

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


# Find the stages of tf.data pipelines that the program waited for


@dataclass(frozen=True, slots=True)
class Blame:
    """A span of a call from the program, and the long name of the stage to blame for it."""

    span: Span
    stage: str
    weight: float = 1.0
    """Less than 1 where several stages ran at once."""


class Input:
    """The tf.data pipelines of one profile."""

    def __init__(self, space: Space) -> None:
        lines = [line.events for plane in space.planes for line in plane.lines]
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
