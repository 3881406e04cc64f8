"""Convert the profiled steps to a Chrome trace, which Perfetto and chrome://tracing open.

Format: "Trace Event Format", complete events (``ph`` = ``X``) in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tfbench.model import JSON
from tfbench.profiles.xplane import Event, Space


def chrome_trace(space: Space, steps: Sequence[Event]) -> JSON:
    """Return all events during the marked steps, or all of the profile if no step is marked."""
    events = list(_events(space, steps))
    return {"displayTimeUnit": "ns", "traceEvents": events, "metadata": {"host": space.host, "steps": len(steps)}}


def _events(space: Space, steps: Sequence[Event]) -> Iterator[JSON]:
    low, high = (min(step.start for step in steps), max(step.end for step in steps)) if steps else space.span
    for process, plane in enumerate(space.planes, 1):
        if not plane.lines:
            continue
        yield _named("process_name", plane.name, process, 0)
        for thread, line in enumerate(plane.lines, 1):
            yield _named("thread_name", line.name, process, thread)
            for event in line.events:
                if event.end >= low and event.start <= high:
                    yield {
                        "ph": "X",
                        "name": event.name,
                        "cat": event.kind or "event",
                        "ts": (event.start - low) * 1e-6,
                        "dur": (event.end - event.start) * 1e-6,
                        "pid": process,
                        "tid": thread,
                        "args": {key: _plain(value) for key, value in event.stats.items()},
                    }


def _named(what: str, name: str, process: int, thread: int) -> JSON:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _plain(value: object) -> object:
    """Convert a value for JSON, which has no bytes, and in which floats are finite and 64-bit ids lose digits."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    unsafe = (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > 2**53)
    return str(value) if unsafe else value
