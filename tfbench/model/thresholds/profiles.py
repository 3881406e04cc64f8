"""The thresholds of profiles, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProfileThresholds:
    """How profiles are taken, and from which share of a step their findings are reported. Times are in seconds."""

    profile_steps: tuple[int, int] = (10, 60)
    """Fewest and most steps of a profile. The profiler guide recommends about ten. Short steps need more, because noise
    hits each of them differently, and their files stay small."""
    profile_seconds: float = 0.04
    """Between the two, as many steps as fit into this time: a pipeline of small records writes 70,000 events per
    second."""
    profile_launches: int = 5
    """Profiled launches per side in a comparison, since single ones differ by several percent. The faster half is used,
    because a disturbance makes a launch slower, and hits one side only."""
    profile_zygotes: int = 2
    """Zygotes per side for these launches. A race starts these first. They differ by about 1%, less than the overhead of
    profiling."""
    profile_trim: float = 0.2
    """Share of a launch's steps, the slowest, that is left out for the same reason. It is not larger, because a
    pipeline may wait in one step of several."""
    profile_read_seconds: float = 120.0
    """Time limit for xprof to read a profile."""
    profile_found: float = 0.5
    """Share of the raced slowdown that a pair of profiles must show to explain it."""
    profile_cause: float = 0.1
    """Share of the slowdown below which a growing category is no cause."""
    slow_call_seconds: float = 50e-6
    """A longer call of a tf.data stage is waiting (the profiler's own threshold)."""
    input_bound: float = 0.05
    """Share of a step from which waiting for input is reported (the input pipeline analyzer's threshold)."""
    launch_bound: float = 0.3
    """The same for Python and dispatch: time outside ops, kernels and waiting."""
    transposing: float = 0.1
    """The same for transposes."""
    sixteen_bit: float = 0.05
    """16 bit share of its time below which a GPU with Tensor Cores counts as using almost none of it."""
