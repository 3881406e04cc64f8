"""Find the calls of tf.data's stages among the events of a profile, and name the stages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tfbench.profiles.xplane import Event

ROOT = "Iterator::Root"
REDUCE = "ReduceIterator::Root"
LOOP = f"{REDUCE}::Scan"
"""AutoGraph's ``for`` over a dataset. The function of the scan is the body of the loop, not part of the input."""
_NUMBER = re.compile(r"\[\d+\]")
_CALL = re.compile(r"\w*Iterator::")


def long_name(event: Event) -> str:
    """Return the long name of the called stage, without the numbers of a flat map's elements."""
    return _long_name(event.name)


@lru_cache(maxsize=4096)
def _long_name(name: str) -> str:
    name = without_numbers(name)
    loop = next((loop for loop in (LOOP, REDUCE) if name.startswith(loop)), "")
    return ROOT + name[len(loop) :] if loop else name


def without_numbers(name: str) -> str:
    """Remove the numbers of a flat map's elements, each of which has its own iterators."""
    return _NUMBER.sub("", name) if _CALL.match(name) else name


def top(name: str) -> str:
    """Return the long name of the first stage below the root, which identifies the pipeline."""
    return "::".join(name.split("::")[:3])


def is_call(event: Event) -> bool:
    """Whether an event is a call of a stage for its next element."""
    return "Iterator::" in event.name and _CALL.match(event.name) is not None


def callers(event: Event) -> Iterator[Event]:
    """Return the calls on the same thread that contain an event, the nearest first."""
    return (above for above in event.above if is_call(above))


def caller_of(event: Event) -> Event | None:
    """Return the nearest of `callers`, ``None`` without any."""
    return next(callers(event), None)
