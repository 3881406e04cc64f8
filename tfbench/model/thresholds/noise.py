"""The assumptions about noise, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NoiseThresholds:
    """Prior knowledge of the noise, so that few launches suffice: standard deviations of log-ratios."""

    launch_deviation: float = 0.006
    """Standard deviation between launches of the same code, as a log-ratio: the median of fourteen workloads on a calm
    machine. To it comes the error that the rounds of a case show."""
    zygote_deviation: float = 0.005
    """Standard deviation between pairs of zygotes of the same program: the median of six workloads."""
    ancestor_deviation: float = 0.0015
    """The same if both zygotes of a pair have a common ancestor: measured from 0 to 0.4%."""
    shared_zygote_deviation: float = 0.001
    """The same if both entrants come from one zygote and share its layout."""
    launch_spread: float = 0.5
    """Standard deviation of the logarithm of `launch_deviation` over cases: two in three lie within a factor of 1.6.
    The tails are those of a t distribution, so no case is ruled out."""
    zygote_spread: float = 0.8
    """The same for pairs of zygotes, which were measured from 0 to 1.3%: a factor of 2.2."""
    clip: float = 3.0
    """A launch further from the median than this many deviations counts as if it were there. One process in another
    mode (a tenth of eager launches) must not decide alone."""
    speed_distance: float = 5.0
    """Two groups of calls are two speeds if their medians lie so many standard deviations of a group apart. Halves of a
    normal distribution lie 2.6 apart, and halves of a uniform one 3.5."""
    speed_gap: float = 0.2
    """And if the slow ones take so much longer: less is no other way of working, but a colder cache."""
    speed_share: float = 0.1
    """And if each group has this share of the calls: fewer are disturbances."""
    speed_calls: int = 5
    """And this many: three that agree by chance are a group of their own."""
