"""List the reason codes of verdicts that a session decides."""

from __future__ import annotations

import enum


class ReasonCode(str, enum.Enum):
    """The reason codes of a session. A member equals its string, as in reports."""

    NO_BASELINE = "no-baseline"
    """The run had no baseline, so the case raced the other variants only."""
    NOT_IN_BASELINE = "not-in-baseline"
    """The baseline lacks this case."""
    NOT_COLLECTED = "not-collected"
    """The baseline has the case and the suite no longer collects it."""
    SKIPPED_ON_ONE_SIDE = "skipped-on-one-side"
    """One of the two sides cannot run the case."""
    NO_SOURCE = "no-source"
    """The source tree of the baseline cannot be recreated."""
    NO_ENVIRONMENT = "no-environment"
    """The packages of the baseline cannot be installed again."""
    OTHER_ENVIRONMENT = "other-environment"
    """The recreated side differs from the environment that the baseline was saved in."""
    OTHER_MACHINE = "other-machine"
    """The baseline was measured on another machine or in another environment."""
    OTHER_CLOCK = "other-clock"
    """The GPU ran at another clock rate than in the baseline."""
    OTHER_METHOD = "other-way"
    """The baseline was measured under another policy, or in races between other entrants."""
    BENCHMARK_CHANGED = "benchmark-changed"
    """The benchmark's own code has changed since the baseline was saved."""
    DISTURBED = "disturbed"
    """The race was aborted because other processes disturbed too many launches."""
    BROKEN = "broken"
    """The benchmark raised an error."""
    DIED = "died"
    """The worker process ended unexpectedly."""
    HUNG = "hung"
    """The worker process did not answer in time."""
    SIDE = "side"
    """A side could not be created or started."""
    INTERNAL = "internal"
    """tfbench itself failed while it measured the case."""
    NOT_PROBED = "not-probed"
    """The probing launch failed although the timed launches succeeded."""
    NOT_EXACT = "not-exact"
    """The value changes between launches of the same code on this machine."""

    def __str__(self) -> str:
        return self.value
