"""Find the calls of tf.data's stages among the events of a profile, and the functions that the stages run."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tfbench.profiles.xplane import Event, Span

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
            if (found := _OP.match(event.name)) is not None and not is_call(event):
                numbers = (above.stats.get("id") for above in event.above if above.name.startswith(_EXECUTED))
                if (number := next(numbers, None)) in asked:
                    self.ops[asked[number][1]][found[1]] += event.seconds

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
