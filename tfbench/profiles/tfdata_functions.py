"""Find the functions that tf.data's stages run on shared threads: when, for which stage, and with which ops."""

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
                if _RUN.match(event.name) and (stage_of := _owner(event, taken)) is not None:
                    asked[number] = (*stage_of, event.span)
                elif event.name.startswith(_EXECUTED):
                    executed[number].append(event)
        self.numbers = frozenset(asked)
        """Ids of the executions. Other events carry them as well."""
        self.runs: list[Run] = []
        for number, (owner, stage, span) in asked.items():
            spans = [event.span for event in executed[number]] or [span]
            began, ended = min(start for start, _ in spans), max(end for _, end in spans)
            self.runs.append(Run(owner, stage, span[0], began, ended))
        self.runs.sort(key=lambda run: run.asked)
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
                    self.ops[asked[number][1]][found[1]] += event.seconds

    def within(self, span: Span) -> list[Run]:
        """Return the executions that waited or ran within a span."""
        until = bisect_left(self.runs, span[1], key=lambda run: run.asked)
        return [run for run in self.runs[:until] if run.ended > span[0]]


def _owner(event: Event, taken: dict[Event, Event]) -> tuple[object, str] | None:
    """Return id and long name of the stage that runs a function: the one around it, or the one whose input it took."""
    for above in event.above:
        if is_call(above):
            return (above.stats.get("id"), long_name(above)) if above.name != LOOP else None
        if above.name.endswith(_PRODUCES) and (call := taken.get(above)) is not None:
            return call.stats.get("parent_id"), long_name(call).rpartition("::")[0]
    return None
