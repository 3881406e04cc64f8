"""The steps of a profile: the spans that the program marked with ``Trace(name, step_num=…, _r=1)``."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench.errors import ProfileError
from tfbench.profiles.xplane import Event, Space, Span


@dataclass(frozen=True, slots=True)
class ProfileStep:
    """One marked step."""

    number: int
    event: Event

    @property
    def span(self) -> Span:
        """Start and end in picoseconds."""
        return self.event.span

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.event.seconds


NO_MARKER = (
    "the profile has no step marker: put each step, with the fetching of its input, "
    "into tf.profiler.experimental.Trace('step', step_num=n, _r=1)"
)


def steps_of(space: Space) -> list[ProfileStep]:
    """Return the marked steps in order, without the first of several, during which the profiler starts.

    Raises:
        ProfileError: No step is marked.
    """
    found = [
        ProfileStep(int(event.stats["step_num"]), event)
        for event in space.on_host
        if "step_num" in event.stats and event.stats.get("_r") == 1
    ]
    if not found:
        raise ProfileError(NO_MARKER)
    found.sort(key=lambda step: step.event.start)
    return found[1:] or found
