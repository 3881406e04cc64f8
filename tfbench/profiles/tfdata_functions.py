"""The functions that tf.data's stages run, on threads that they share: when, for which stage, and what is in them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.profiles.tfdata_calls import LOOP, is_call, long_name
from tfbench.profiles.xplane import Event, Span

_RUN = re.compile(r"(Instantiated)?CapturedFunction::Run")
_EXECUTED = ("ExecutorState::", "ExecutorDoneCallback")
_PRODUCES = "Produce"
_OP = re.compile(r".*:([A-Za-z_]\w*)$")


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a function."""

    owner: object
    """Id of the iterator that asked for it."""
    stage: str
    """Long name of its stage."""
    asked: int
    began: int
    """Later than ``asked`` where it had to wait for a thread."""
    ended: int


class Functions:
    """Those of one profile."""

    def __init__(self, lines: Sequence[Sequence[Event]]) -> None:
        asked: dict[object, tuple[object, str, Span]] = {}
        executed: dict[object, list[Event]] = defaultdict(list)
        for events in lines:
            taken = {call.parent: call for call in events if call.parent is not None and is_call(call)}
            for event in events:
                if (number := event.stats.get("id")) is None:
                    continue
                if _RUN.match(event.name) and (owner := _owner(event, taken)) is not None:
                    asked[number] = (*owner, (event.start, event.end))
                elif event.name.startswith(_EXECUTED):
                    executed[number].append(event)
        self.numbers = frozenset(asked)
        """Ids of the executions, which other events carry as well."""
        self.runs = sorted(
            (
                Run(
                    owner,
                    stage,
                    start,
                    min((event.start for event in executed[number]), default=start),
                    max((event.end for event in executed[number]), default=end),
                )
                for number, (owner, stage, (start, end)) in asked.items()
            ),
            key=lambda run: run.asked,
        )
        self.ops: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Long name of a stage -> type of op -> seconds."""
        for events in lines:
            for event in events:
                if (found := _OP.match(event.name)) is None or is_call(event):
                    continue
                number = next(
                    (above.stats.get("id") for above in event.above if above.name.startswith(_EXECUTED)), None
                )
                if number in asked:
                    self.ops[asked[number][1]][found[1]] += (event.end - event.start) * 1e-12

    def within(self, span: Span) -> list[Run]:
        """Those that were asked for or ran in a stretch of time."""
        until = bisect_left(self.runs, span[1], key=lambda run: run.asked)
        return [run for run in self.runs[:until] if run.ended > span[0]]


def _owner(event: Event, taken: dict[Event, Event]) -> tuple[object, str] | None:
    """Id and long name of the stage that runs a function: the one it lies in, or whose input it has just taken."""
    for above in event.above:
        if is_call(above):
            return (above.stats.get("id"), long_name(above)) if above.name != LOOP else None
        if above.name.endswith(_PRODUCES) and (call := taken.get(above)) is not None:
            return call.stats.get("parent_id"), long_name(call).rpartition("::")[0]
    return None
