"""The limits of time and of output, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Where a race or a process is ended. Times are in seconds."""

    bisect_retry_factor: int = 3
    """An inconclusive step of a bisection is raced again with this many times the launches, from twice the zygotes. A
    wrong decision there makes the answer wrong, and an inconclusive one only leaves it open."""
    zygotes_together: int = 48
    """Upper limit for the zygotes of all sides of `tfbench versions`: 11 GB of private memory, two sides at their
    limit."""
    start_seconds: float = 120.0
    """Time limit for the start of a zygote, its collection included. An uncompiled TensorFlow imports in 10 s."""
    setup_seconds: float = 120.0
    """Time limit for a launch to call `bench`. XLA compiles a large model in a minute."""
    answer_seconds: float = 60.0
    """Time limit for a worker's answer, in addition to its requested work."""
    overrun: float = 3.0
    """The rounds of a launch may take this many times their planned time, besides `answer_seconds`. Neighbours that use
    the processor slow a launch down, rarely by more."""
    output_bytes: int = 1 << 26
    """Largest output of a launch. TensorFlow's most talkative log of a launch takes a few megabytes, and a step that
    prints in every iteration would fill the disk."""
    file_bytes: int = 1 << 32
    """Largest file that a launch may write. Data sets and models of benchmarks stay far below."""
    case_seconds: float = 120.0
    """Time limit for the race of a group, for each pair of entrants, whether looks are left or not. Launches of 50 ms steps
    take 1.2 s, and where they differ by 1.4%, 43 of them find 68% of the slowdowns of 2%, and 96 find 95%."""
