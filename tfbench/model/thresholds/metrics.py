"""The thresholds of metrics other than time, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MetricThresholds:
    """How the metrics other than time are sampled and judged. Fractions are of one, times are in seconds."""

    once_effects: tuple[float, float] = (0.05, 0.1)
    """Minimum effect and tolerance for a step of `bench.once`, whose noise is that of a first call."""
    first_call_effect: float = 0.15
    """Minimum effect for the first call, which is paid once and takes seconds at most."""
    first_call_tolerance: float = 0.3
    """Tolerance for the first call. A launch gives one sample of it, and hundreds of the step."""
    first_call_abs_tolerance: float = 5e-3
    """Seconds by which first calls may differ, however short they are: a few milliseconds, once, do not matter."""
    first_call_deviation: float = 0.06
    """Standard deviation between launches of the same code, as a log-ratio. The median of 50 cases was 0.044, and that of
    104 others 0.031. It is higher so that a case at 0.12, where the noisiest tenth begins, is wrongly called `unchanged` at
    the tolerance in less than 5%, also by `quick` after two launches."""
    first_call_zygote_deviation: float = 0.02
    """The same between pairs of zygotes."""
    memory_tolerance: float = 0.01
    """Sizes that differ by less than this fraction are equal: files contain dates and names, and allocators round."""
    memory_abs_tolerance: int = 1 << 20
    """Bytes by which peaks of host memory may differ: one of Python's arenas, which take 1 MiB. Launches reuse space
    that their zygote left free in it, and zygotes of different sides leave different amounts."""
    memory_deviation: float = 0.002
    """Standard deviation of a peak of host memory between launches of the same code, as a log-ratio: the median of 35
    cases, which reach from 0.0004 to 0.05."""
    memory_zygote_deviation: float = 0.003
    """The same between pairs of zygotes."""
    sampled_seconds: float = 10.0
    """Seconds of further launches for a first call or a memory peak that is open once the time is decided: two or three
    looks of a cheap case. A first call that takes seconds itself stays inconclusive."""
    memory_launches: int = 3
    """Launches of each side before a memory peak is decided. Fewer say nothing about their scatter."""
    probes_at_once: int = 8
    """Most probing launches at the same time, besides the limit of one per processor. Each has its own TensorFlow, which
    takes memory of the host and of the GPU."""
    probe_calls: int = 4
    """Calls after the first ones in which retraces and leaked tensors are counted. One call shows what grows with every
    call, and four cost little compared with the start of the process."""
    leak_windows: tuple[int, int] = (4, 50)
    """Windows of calls in which something must grow to be a leak, since caches and pools of threads fill up in the first
    ones, and most calls of each: 1 kB a call is then 50 kB, much more than allocators keep."""
    leak_seconds: tuple[float, float] = (0.4, 5.0)
    """Seconds of all windows, and for a case with `@no_leak`: ten calls in each for steps of 10 ms, and of 0.1 s."""
    leak_bytes: float = 256.0
    """Bytes per call that are none: caches of allocators and of Python grow by some bytes in every window."""
    leak_resident_bytes: float = 16384.0
    """The same for resident memory, which grows in pages and in arenas of up to 1 MiB."""
    leak_objects: float = 1.5
    """Python objects per call that are none. `Model.fit` keeps about one of its own per call (TensorFlow 2.21)."""
    leak_events: float = 0.01
    """Threads, open files and traces per call that are none: one in a hundred calls."""
    probe_launches: int = 3
    """Launches per side that read a differing metric before it counts. A metric that differs among them is not
    exact."""
    exact_across_versions: bool = False
    """Whether exact metrics gate between different environments (TensorFlow versions, settings). Otherwise they only
    explain, because another version may have other graphs on purpose."""
    parity_floor: float = 1e-4
    """Smaller errors of results are rounding: sums of float32 in another order differ by 1e-7 to 1e-5."""
    parity_growth: float = 2.0
    """An error against the reference variant above the floor may grow by this factor, because rounding errors depend on
    the order of a sum."""
