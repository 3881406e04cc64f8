"""The profiled steps as a Chrome trace, which Perfetto and chrome://tracing open.

Format: "Trace Event Format", complete events (``ph`` = ``X``) in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tfbench.model import JSON
from tfbench.profiles.steps import ProfileStep
from tfbench.profiles.xplane import Space


def chrome_trace(space: Space, steps: Sequence[ProfileStep]) -> JSON:
    """Everything that ran within the marked steps; all of the profile if there is none."""
    events = list(_events(space, steps))
    return {"displayTimeUnit": "ns", "traceEvents": events, "metadata": {"host": space.host, "steps": len(steps)}}


def _events(space: Space, steps: Sequence[ProfileStep]) -> Iterator[JSON]:
    low = min((step.event.start for step in steps), default=None)
    high = max((step.event.end for step in steps), default=None)
    every = [event.start for plane in space.planes for event in plane.events]
    began = low if low is not None else min(every, default=0)
    for process, plane in enumerate(space.planes, 1):
        if not plane.lines:
            continue
        yield _named("process_name", plane.name, process, 0)
        for thread, line in enumerate(plane.lines, 1):
            yield _named("thread_name", line.name, process, thread)
            for event in line.events:
                if (low is not None and event.end < low) or (high is not None and event.start > high):
                    continue
                yield {
                    "ph": "X",
                    "name": event.name,
                    "cat": event.kind or "event",
                    "ts": (event.start - began) * 1e-6,
                    "dur": (event.end - event.start) * 1e-6,
                    "pid": process,
                    "tid": thread,
                    "args": {key: _plain(value) for key, value in event.stats.items()},
                }


def _named(what: str, name: str, process: int, thread: int) -> JSON:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _plain(value: object) -> object:
    """JSON's numbers lose digits of 64-bit ids and are finite, and it has no bytes."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value
