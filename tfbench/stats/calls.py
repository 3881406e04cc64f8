"""Compare the calls of two sides by other statistics than their median: the tail, the mean, and p90.

The median of the rounds has the least noise, but a slowdown in fewer than half of the calls leaves it where it is. The tail
is judged by the mean log-ratio of the rounds, the ratio of the geometric means: a slow call on one side moves it, and a burst
of the machine, which strikes both blocks of a round, cancels. A logarithm limits what a single block that was interrupted can
do, so that the noise of this mean is near that of the median on a quiet machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tfbench.model import Calls, Effect, Note, Outcome, Reason, ReasonCode, Run, Statistic, because
from tfbench.policy import Thresholds
from tfbench.stats.interval import Floats, launch_effect, log_ratios, quantile_error
from tfbench.stats.verdict import Decision

_P90 = 0.9
_FEW = 3
"""Blocks."""
P90_ROUNDS = 64
"""Rounds of each side that a statement about p90 needs at least (MLPerf's early stopping)."""
SLOW = 1.3
"""A call counts as slow in `calls_of` if it takes this many medians of its side and launch."""


def effect_of(statistic: Statistic, baseline: Run, contender: Run, pair: int) -> Effect:
    """Compute what a launch tells by this statistic, with its standard error.

    Args:
        baseline, contender: The same rounds of both sides.
        pair: The pair of zygotes that the launch comes from.

    Raises:
        ValueError: There is no round, the rounds do not match, or a time is not a positive number.
    """
    if statistic is Statistic.MEDIAN:
        return launch_effect(baseline.seconds, contender.seconds, pair)
    sides = _calm(baseline, contender)
    ratios = log_ratios(*sides)
    before, now = (np.asarray(side, float) for side in sides)
    if statistic is Statistic.TAIL:
        return Effect(float(ratios.mean()), pair, _standard_error(ratios))
    if statistic is Statistic.MEAN:
        # The delta method for a ratio of paired means (Cochran 1977, Sampling Techniques, section 6.4).
        error = _standard_error(now / now.mean() - before / before.mean())
        return Effect(math.log(now.mean() / before.mean()), pair, error)
    (then, then_error), (later, later_error) = _quantile(before, _P90), _quantile(now, _P90)
    return Effect(later - then, pair, math.hypot(then_error, later_error))


def _calm(baseline: Run, contender: Run) -> tuple[Sequence[float], Sequence[float]]:
    """Return the times of both sides without what other processes took away in between.

    Nine of ten blocks that take far longer beside a busy neighbour have lost their processor to it, and their processor time
    is as usual. Processor time lacks what a step waits, though. So it counts only where both sides lost their processor
    about as often: three standard deviations of a Poisson number, or three blocks, apart at most.
    """
    before, now = len(baseline.preempted), len(contender.preempted)
    if abs(now - before) > max(_FEW, 3 * math.sqrt(before + now)):
        return baseline.seconds, contender.seconds
    return baseline.calm_seconds, contender.calm_seconds


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _quantile(times: Floats, share: float) -> tuple[float, float]:
    """Return the logarithm of a quantile, and its standard error from the order statistics around it."""
    logs = np.log(times)
    return float(np.quantile(logs, share)), quantile_error(logs, share)


def pooled(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects with the root mean square of their errors.

    The error of a mean grows with the number of slow calls in a launch. With errors of their own, launches without a slow
    call would outweigh the launches that show the slowdown.
    """
    error = math.sqrt(sum(effect.error**2 for effect in effects) / max(1, len(effects)))
    return [replace(effect, error=error) for effect in effects]


def with_tail(median: Decision, tail: Decision, thresholds: Thresholds, final: bool, rounds: int = 0) -> Decision:
    """Decide on a case from what its median and its tail prove at a look.

    Either one alone proves `regressed`. The others need both: the median to be faster or unchanged, and the tail not to be
    slower by more than the tolerance.

    Args:
        thresholds: Those of the tail.
        final: Whether this was the last launch.
        rounds: The reason for `unchanged` says which slow calls it does not cover if the race has fewer rounds.
    """
    return replace(_with_tail(median, tail, thresholds, final, rounds), tail=tail.comparison.ratio)


def _with_tail(median: Decision, tail: Decision, thresholds: Thresholds, final: bool, rounds: int) -> Decision:
    if median.outcome is Outcome.REGRESSED or tail.outcome is Outcome.REGRESSED:
        return median if median.outcome is Outcome.REGRESSED else of_tail(tail, median)
    if median.outcome not in (Outcome.UNCHANGED, Outcome.IMPROVED):
        return median
    if median.outcome is Outcome.UNCHANGED and tail.outcome is Outcome.IMPROVED:
        return of_tail(tail, median)
    bounded = tail.comparison.ratio.high <= 1 + thresholds.tolerance and (final or median.outcome is Outcome.IMPROVED)
    if bounded or tail.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED):
        return _with_what_is_rare(median, rounds)
    reason = _of_both(ReasonCode.TAIL_NOT_DECIDED, tail, median)
    if final:
        return replace(median, outcome=Outcome.INCONCLUSIVE, reason=reason)
    return replace(median, outcome=None, reason=because(ReasonCode.RACING, reason))


def _with_what_is_rare(median: Decision, rounds: int) -> Decision:
    """Return the decision with a reason that says which slow calls the rounds may not contain, if they are few."""
    seen = median.comparison.rounds
    if seen >= rounds or median.outcome is not Outcome.UNCHANGED:
        return median
    note = because(Note.RARE_CALLS, rounds=seen, share=unseen_share(seen))
    return replace(median, reason=median.reason.noted(note))


def unseen_share(rounds: int) -> float:
    """Return the share of slow calls of which this many rounds contain none in one race of twenty.

    The exact form of the rule of three (Hanley & Lippman-Hand 1983, JAMA 249).
    """
    return float(1 - 0.05 ** (1 / rounds))


def of_tail(tail: Decision, median: Decision | None = None) -> Decision:
    """Return the decision with a reason that names the slow calls, if it is a change.

    Args:
        median: What the median proves at the same look; ``None`` if it is not judged.
    """
    if tail.outcome not in (Outcome.REGRESSED, Outcome.IMPROVED):
        return tail
    code = ReasonCode.SLOW_CALLS if tail.outcome is Outcome.REGRESSED else ReasonCode.FEWER_SLOW_CALLS
    return replace(tail, reason=_of_both(code, tail, median))


def _of_both(code: ReasonCode, tail: Decision, median: Decision | None) -> Reason:
    """Return a reason about the tail, with the ratio of the median: ``None`` for an unchanged one."""
    comparison, typical = tail.comparison, {}
    if median is not None:
        typical["median"] = None if median.outcome is Outcome.UNCHANGED else median.comparison.ratio.center
    return because(code, ratio=comparison.ratio, launches=comparison.launches, **typical)


def calls_of(baseline: Sequence[Run], contender: Sequence[Run]) -> tuple[Calls, Calls] | None:
    """Describe the calls of both sides; ``None`` where launches have a single sample.

    Times are those of rounds. Where a round has several calls, it is their mean, so that slow calls seem less slow and p90 is
    left out.
    """
    if not baseline or not contender or max(len(run.seconds) for run in (*baseline, *contender)) < 2:
        return None
    return _calls(baseline), _calls(contender)


def _calls(runs: Sequence[Run]) -> Calls:
    launches = [np.asarray(run.seconds, float) for run in runs]
    times = np.concatenate(launches)
    slow = np.concatenate([launch > SLOW * np.median(launch) for launch in launches])
    single = all(run.iterations == 1 for run in runs) and len(times) >= P90_ROUNDS
    return Calls(
        mean=float(times.mean()),
        p50=float(np.median(times)),
        p90=float(np.quantile(times, _P90)) if single else None,
        slow=float(slow.mean()),
        rounds=len(times),
    )
