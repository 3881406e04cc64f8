"""Compare sampled profiles of Python functions, and memory by keeper, of two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tfbench.model import JSON

HALF = 0.5
"""A function that holds half of a slowdown is its cause: at most one path through the stack does."""
FEWEST = 50
"""Samples below which a share has an error of more than 7%."""
_GENERATED = ("autograph_generated", "importlib._bootstrap")
"""Modules whose names do not lead to code that a user could change."""
KEEPERS = {
    "python": "held by Python objects",
    "native": "held by TensorFlow and other libraries outside Python",
    "retained": "freed, and kept by the C library's allocator",
}


@dataclass(frozen=True)
class PythonProfile:
    """The samples of one launch."""

    calls: int
    seconds: float
    """Of all calls."""
    samples: int
    functions: Mapping[str, Sequence[int]]
    """Function -> samples with it on the stack, and the sum of its depths."""
    memory: JSON
    """Growth in bytes by keeper, and ``types`` -> Python objects gained; empty if functions were sampled."""

    @property
    def call_seconds(self) -> float:
        """Seconds of one call."""
        return self.seconds / max(1, self.calls)

    def inside(self, function: str) -> float:
        """Return the seconds per call inside a function, with all that it calls."""
        return self.call_seconds * self.functions.get(function, (0, 0))[0] / max(1, self.samples)

    def depth(self, function: str) -> float:
        """Return the mean number of functions below this one on the stack."""
        count, depths = self.functions.get(function, (0, 0))
        return depths / count if count else 0.0


class Grown(NamedTuple):
    """A function in which a call spends more time than before."""

    function: str
    before: float
    """Seconds per call inside it."""
    now: float
    share: float
    """Fraction of the slowdown."""


def _renamed(profile: PythonProfile) -> PythonProfile:
    """Return the profile with the modules of Keras named as before 2.13, which moved all of them into ``keras.src``."""
    return replace(
        profile, functions={name.replace("keras.src.", "keras."): count for name, count in profile.functions.items()}
    )


def grown(before: PythonProfile, now: PythonProfile, enough: float = 0.0) -> Grown | None:
    """Return the deepest function that holds half of the slowdown, ``None`` without a slowdown or enough samples.

    Args:
        enough: The slowdown that the samples must show, as a fraction. Otherwise they do not show the raced one.
    """
    before, now = _renamed(before), _renamed(now)
    slowdown = now.call_seconds - before.call_seconds
    if slowdown <= 0 or slowdown < enough * before.call_seconds or min(before.samples, now.samples) < FEWEST:
        return None
    found = []
    for function in now.functions:
        grew = now.inside(function) - before.inside(function)
        if grew >= HALF * slowdown and not any(part in function for part in _GENERATED):
            found.append(
                (now.depth(function), Grown(function, before.inside(function), now.inside(function), grew / slowdown))
            )
    return max(found)[1] if found else None


def describe(cause: Grown) -> str:
    """Describe the function: ``Python: a.b takes 3.1 ms per call instead of 0.2 ms, 84% of the slowdown``."""
    was = f" instead of {cause.before * 1e3:.3g} ms" if cause.before else ", and did not run before"
    return f"Python: {cause.function} takes {cause.now * 1e3:.3g} ms per call{was}; {min(1.0, cause.share):.0%} of the slowdown"


def _allocated(before: PythonProfile, now: PythonProfile) -> list[str]:
    """Describe the lines of Python whose memory grew: ``allocated at a/b.py:12: 6.1 MiB more than before``."""
    old = before.memory.get("lines", {})
    found = ((size - old.get(line, 0), line) for line, size in now.memory.get("lines", {}).items())
    most = sorted(found, reverse=True)
    return [
        f"allocated at {line}: {more / (1 << 20):.1f} MiB more than before" for more, line in most if more >= 1 << 20
    ]


def memory_lines(before: PythonProfile, now: PythonProfile) -> list[str]:
    """Describe which keepers of memory grew, the one that grew most first, and the Python objects that came with it."""
    sizes = {name: now.memory.get(name, 0.0) - before.memory.get(name, 0.0) for name in KEEPERS}
    lines = []
    for name, size in sorted(sizes.items(), key=lambda one: -one[1]):
        if size >= 1 << 20:  # an arena of the allocator
            was, became = (side.memory.get(name, 0.0) / (1 << 20) for side in (before, now))
            lines.append(f"memory {KEEPERS[name]}: {became:.0f} MiB gained instead of {was:.0f} MiB")
    lines += _allocated(before, now) if lines else []
    old = before.memory.get("types", {})
    more = {kind: count - old.get(kind, 0) for kind, count in now.memory.get("types", {}).items()}
    gained = [f"{count:,} {kind}" for kind, count in more.items() if count >= FEWEST]
    return [*lines, *([f"more Python objects than before: {', '.join(gained[:3])}"] if lines and gained else [])]
