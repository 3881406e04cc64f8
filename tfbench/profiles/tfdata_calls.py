"""Calls of tf.data's stages among the events of a profile: which they are, and what their stages are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tfbench.profiles.xplane import Event

ROOT = "Iterator::Root"
REDUCE = "ReduceIterator::Root"
LOOP = f"{REDUCE}::Scan"
"""AutoGraph's ``for`` over a dataset: the scan's function is the body of the loop, and no part of the input."""
_NUMBER = re.compile(r"\[\d+\]")
_CALL = re.compile(r"\w*Iterator::")


def long_name(event: Event) -> str:
    """The long name of the stage that was called, the numbers of a flat map's elements left out."""
    return _long_name(event.name)


@lru_cache(maxsize=4096)
def _long_name(name: str) -> str:
    name = without_numbers(name)
    loop = next((loop for loop in (LOOP, REDUCE) if name.startswith(loop)), "")
    return ROOT + name[len(loop) :] if loop else name


def without_numbers(name: str) -> str:
    """The name of a stage without those of a flat map's elements, of which each has iterators of its own."""
    return _NUMBER.sub("", name) if _CALL.match(name) else name


def top(name: str) -> str:
    """The long name of the first stage below the root: by it, pipelines are told apart."""
    return "::".join(name.split("::")[:3])


def is_call(event: Event) -> bool:
    """Whether an event is a call of a stage for its next element."""
    return "Iterator::" in event.name and _CALL.match(event.name) is not None


def callers(event: Event) -> Iterator[Event]:
    """The calls of the same thread that an event lies in, the nearest first."""
    return (above for above in event.above if is_call(above))


def caller_of(event: Event) -> Event | None:
    """The nearest of `callers`, ``None`` without any."""
    return next(callers(event), None)
