"""The thresholds of a verdict on time, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DecisionThresholds:
    """Which changes count, and how certain a verdict is. Fractions are of one, times are in seconds."""

    minimum_effect: float = 0.01
    """A case is `regressed` if the whole interval lies above 1 + this. Smaller slowdowns lead to no action."""
    tolerance: float = 0.02
    """A case is `unchanged` if the whole interval lies within 1 ± this. It is at least twice the minimum effect, which
    leaves room for an interval between the two."""
    statistic: str = "median and tail"
    """What a verdict on time is about, one of `tfbench.model.STATISTICS`. The median has the least noise, and
    the tail covers what it cannot see: slow calls, of which users pay all. ``mean`` and ``p90`` have more noise."""
    tail_effect: float = 0.02
    """A case is `regressed` as well if slow calls raise the geometric mean of its calls by more than this: 5% of calls that
    take ten times as long raise it by 12%, and 2% that take sixty times as long by 8.5%."""
    tail_tolerance: float = 0.08
    """A case is `unchanged` if the geometric mean lies within 1 ± this as well. Beside a busy process it scatters by 1 to 3%
    per launch, so that much less would leave unchanged cases undecided. `quick` has less, since its first look has two
    launches, in which a slow call of 2% may happen to be rare."""
    tail_rounds: int = 150
    """Rounds of each side that the launches up to the first look have together, if `tail_launch_seconds` allows them. Of two
    calls in a hundred that are slow, so many rounds contain at least one in 95% of the races, and 60 rounds in 70%."""
    tail_launch_seconds: float = 0.75
    """The rounds of a launch may take this long to reach `tail_rounds`. Steps above 5 ms have fewer, and their reason says how
    rare slow calls can be without being seen."""
    tail_alpha: float = 0.25
    """Share of the alpha of a first race that is spent on the tail, the rest on the median. A second race asks only what
    the first one found, at the whole alpha: the products of both stages add up to the square of the alpha at most."""
    alpha: float = 0.01
    """Probability that a run reports a case that is not slower by the minimum effect, shared over its cases. It is one
    failing run in a hundred at that edge, and far fewer on the same code."""
    alpha_case: float = 0.05
    """Upper limit for both ends of one stage's interval, however few cases there are, and the level at which saved
    times prove `unchanged`. No second race confirms variants or saved times: at the edge, one in 40 is wrong."""
    alpha_unchanged: float = 0.03
    """Probability that a case at the edge of the tolerance is called `unchanged`, over all looks of its race, if its
    noise is as assumed. With pairs of zygotes at 1.2%, the noisiest measured, it stays below the usual 5%, as it does
    where a slowdown is measured a twentieth too small (decision 038). The cases do not share it: a false alarm fails the
    whole run, a wrong `unchanged` hides one slowdown of a tolerance."""
    min_compared: float = 0.5
    """Least share of a report's cases whose times must have been compared for the gate to pass. Where fewer than half
    were, most of the suite is new, skipped or gone, and a pass would say little about the change."""
    changed_only_share: float = 0.1
    """Share of the cases that race under ``--changed-only`` although their code is the same. The comparison lacks files
    that are looked for and not opened, among others: of 30 cases that such a change slows down, at least one then races
    in 96% of the runs."""
    hopeless: float = 2.0
    """A race ends early if a decision would take this many times the launches that its looks and seconds leave, as
    estimated from the interval. The estimate is often wrong by half. `quick` leaves fewer launches, and has 4."""
    looks: tuple[int, ...] = (3, 4, 6, 9, 13, 26, 48, 96)
    """Launches after which the evidence is evaluated. Three detect a large change. Every look costs the others a part of
    alpha, so steps are small where most cases are decided, and then double, for small changes. At deviations of 1.6%, a
    slowdown of 2% is found in 90% of the races, with up to 64 launches in 74%. `strict` has finer steps, which save a
    tenth of its launches."""
    confirm: bool = True
    """A first `regressed` is raced again in fresh launches of fresh zygotes, which share no data with the first."""
    suite_passes: int = 4
    """How often all cases may be raced again to decide their mean, and again to confirm that it is slower. Each pass takes the
    launches of a first look. Where these are two, one pass over 40 cases confirmed 0.5% in six of ten simulated runs."""
