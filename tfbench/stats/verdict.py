"""Decide an outcome, with its reason, from the evidence of a race, from saved times, or from the cases of a suite.

docs/decisions/06-slow-calls-and-modes.md explains the tail, the mean log-ratio of the rounds: a slow call on one side
moves it, and a burst of the machine, which strikes both blocks of a round, cancels.

docs/baselines.md explains saved times. Whether one more session fits into the spread of the earlier ones follows from a
prediction interval (Hahn & Meeker 1991, Statistical Intervals, ch. 4). Code changes between them only widen it.

docs/method.md explains the mean of a suite. Its weights follow DerSimonian & Laird (1986, Control. Clin. Trials 7), and
its interval Hartung & Knapp (2001, Stat. Med. 20): it holds for few cases, and where the errors are known only by their
order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tfbench.model import Calls, Comparison, Effect, Outcome, Ratio, Run, Statistic
from tfbench.model.case import BESIDE, COLLECTIONS, DOUBT, HANDED, RESTLESS, RETRACED, SET_LATE
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.policy import Policy, Thresholds
from tfbench.stats.alpha_spending import case_alpha, look_alpha, look_of, unchanged_alpha
from tfbench.stats.interval import FEW, Floats, huber_pseudovalues, interval, launch_effect, log_ratios

CODES = {
    Outcome.REGRESSED: ReasonCode.SLOWER,
    Outcome.IMPROVED: ReasonCode.FASTER,
    Outcome.UNCHANGED: ReasonCode.WITHIN_TOLERANCE,
    Outcome.INCONCLUSIVE: ReasonCode.NOT_DECIDED,
    None: ReasonCode.RACING,
}
"""The reason codes of times that a race decides; ``None`` stands for an open race."""


@dataclass(frozen=True)
class Decision:
    """The decision at a look; ``outcome`` is ``None`` while the race goes on."""

    outcome: Outcome | None
    reason: Reason
    comparison: Comparison
    statistic: Statistic = Statistic.MEDIAN
    """What the comparison is about."""
    tail: Ratio | None = None
    """The ratio of the geometric means of the calls; ``None`` where the tail is not judged."""

    def changed(self, **fields: Any) -> Decision:
        """Return the decision with other values in these fields, as of a verdict."""
        return replace(self, **fields)

    def noted(self, *notes: Reason | None) -> Decision:
        """Return the decision with further notes on its reason."""
        return replace(self, reason=self.reason.noted(*notes))


class Region(NamedTuple):
    """A closed range of ratios: an interval that lies in it proves the outcome."""

    outcome: Outcome
    low: float
    high: float


def regions(thresholds: Thresholds) -> tuple[Region, ...]:
    """Return the ranges of ratios that prove an outcome; the first one that holds an interval counts.

    Swapping the sides mirrors them: ratio to 1 / ratio. Regressed and improved come first: an interval between the minimum
    effect and the tolerance is a real change, however small. Unchanged needs the whole interval within the tolerance (the two
    one-sided tests of Schuirmann 1987, J. Pharmacokinet. Biopharm. 15). Such an interval may exclude 1 or reach beyond the
    minimum effect: a real change that is too small to matter is no change.
    """
    effect, tolerance = 1 + thresholds.minimum_effect, 1 + thresholds.tolerance
    return (  # a ratio at the minimum effect itself is not yet a change
        Region(Outcome.REGRESSED, math.nextafter(effect, math.inf), math.inf),
        Region(Outcome.IMPROVED, 0.0, math.nextafter(1 / effect, 0)),
        Region(Outcome.UNCHANGED, 1 / tolerance, tolerance),
    )


class Terms(NamedTuple):
    """What effects are judged by."""

    policy: Policy
    cases: int
    """Cases of the whole run, which share its alpha."""
    shared_zygote: bool
    """Whether the entrants of a launch are forked from one zygote."""
    thresholds: Thresholds
    """They also have the noise to expect."""
    share: float = 1.0
    """Part of the alpha of the stage that is spent on this question."""


def compare(effects: Sequence[Effect], rounds: int, terms: Terms) -> Comparison:
    """Compute the ratio and the interval that finds a change, at the look that this number of launches belongs to.

    The confidence of the ratio is that of the intervals of all looks together (repeated confidence intervals, Jennison &
    Turnbull 1989, J. R. Stat. Soc. B 51). Stopping at an interval that decides therefore costs no further alpha.

    ``effects`` has one per launch, as for `interval`, which may refuse them.
    """
    policy, cases, shared_zygote, thresholds, share = terms
    alpha = look_alpha(policy, cases, look_of(len(effects), policy.looks), share)
    ratio = interval(effects, alpha, policy, shared_zygote=shared_zygote, expected=thresholds)
    ratio = replace(ratio, confidence=1 - share * case_alpha(policy, cases))
    return Comparison(ratio, len(effects), rounds)


def classify(low: float, high: float, thresholds: Thresholds) -> Outcome | None:
    """Return the outcome that an interval of ratios proves by `regions`, or ``None`` if it proves none."""
    proved = (region.outcome for region in regions(thresholds) if region.low <= low and high <= region.high)
    return next(proved, None)


def decide(effects: Sequence[Effect], rounds: int, terms: Terms, final: bool) -> Decision:
    """Decide from the evidence at a look.

    The caller races a first ``regressed`` again, in fresh launches of fresh zygotes, and decides from those alone at the same
    levels: `tfbench.stats.alpha_spending.case_alpha` accounts for the alpha of both stages. ``unchanged`` is proved by an
    interval of its own level (`unchanged_alpha`), which the comparison then has. If that interval lies beyond the minimum
    effect, the race goes on, because the change is probably real.

    Arguments and errors are those of `compare`, where ``effects`` are of this stage only. ``final`` tells whether this was
    the last launch, so that an undecided case is inconclusive.
    """
    policy, chosen = terms.policy, terms.thresholds
    comparison = compare(effects, rounds, terms)
    outcome = classify(comparison.ratio.low, comparison.ratio.high, chosen)
    facts: dict[str, object] = {}
    note = None
    if outcome not in (Outcome.REGRESSED, Outcome.IMPROVED):
        alpha = unchanged_alpha(policy, look_of(len(effects), policy.looks))
        narrow = interval(effects, alpha, policy, shared_zygote=terms.shared_zygote, expected=chosen)
        proved = classify(narrow.low, narrow.high, chosen) is Outcome.UNCHANGED
        values = np.array([effect.value for effect in effects])
        if proved and balanced(values[np.newaxis], chosen)[0]:
            outcome, facts = Outcome.UNCHANGED, {"tolerance": chosen.tolerance}
            comparison = replace(comparison, ratio=replace(narrow, confidence=1 - 2 * policy.alpha_unchanged))
        else:
            outcome = Outcome.INCONCLUSIVE if final else None
            facts = {"minimum_effect": chosen.minimum_effect, "policy": policy.name}
            if proved:
                away = int((np.abs(values - np.median(values)) > math.log1p(chosen.tolerance)).sum())
                note = because(Note.LOPSIDED, differing=away, launches=len(effects), mean=math.exp(values.mean()))
                return Decision(outcome, because(CODES[outcome], note), comparison)
            if (doubt := _doubt(effects)) > _DOUBTFUL * math.log1p(chosen.tolerance):
                note = because(Note.NEIGHBOURS, doubt=doubt)
    ratio, launches = comparison.ratio, comparison.launches
    return Decision(outcome, because(CODES[outcome], note, ratio=ratio, launches=launches, **facts), comparison)


def _doubt(effects: Sequence[Effect]) -> float:
    """Return how far the effects may be off because of neighbours, as a mean log-ratio."""
    return fmean(max(effect.doubt) for effect in effects)


_DOUBTFUL = 0.25
"""Share of the tolerance that neighbours have to blur before the reason of an open case says so."""


def launches_needed(effects: Sequence[Effect], thresholds: Thresholds, clip: float) -> float:
    """Estimate the launches after which the interval proves an outcome, from the mean and the scatter of these.

    Two standard errors have to fit between the mean and the nearer of what the interval can prove: no more than the
    tolerance, or more than the minimum effect. The interval itself says less, since it is far too wide after few launches.
    A single outlying launch does not count: it is limited as in the interval or, where that takes more launches, left out.
    Two launches cannot tell which of them is one, so the estimate is 0.
    Outliers are more than ``clip`` deviations from the median, see `huber_pseudovalues`.
    """
    values = np.array([effect.value for effect in effects])
    if len(values) < 3:
        return 0.0
    if len(values) < FEW:
        values = np.delete(values, np.abs(values - np.median(values)).argmax())
    values = huber_pseudovalues(values[np.newaxis], thresholds.launch_deviation, clip)[0]
    away = abs(float(values.mean()))
    room = max(math.log1p(thresholds.tolerance) - away, away - math.log1p(thresholds.minimum_effect))
    room -= _doubt(effects)
    return math.inf if room <= 0 else float(2 * values.std(ddof=1) / room) ** 2


def balanced(effects: Floats, thresholds: Thresholds) -> NDArray[np.bool_]:
    """Return for each race whether the plain mean of its launches lies within the tolerance too; shape (races,).

    The centre of the interval sets single outlying launches aside. So it cannot tell noise, which strikes both sides,
    from a slow mode that only one side has. The mean can: launches that are 30% slower in every fifth process are
    5% on average. ``effects`` are log-ratios of the shape (races, launches).
    """
    within: NDArray[np.bool_] = np.abs(effects.mean(axis=1)) <= math.log1p(thresholds.tolerance)
    return within


P90_ROUNDS = 64
"""Rounds of each side that a statement about p90 needs at least (MLPerf's early stopping)."""
SLOW = 1.3
"""A call counts as slow in `calls_of` if it takes this many medians of its side and launch."""


def effect_of(statistic: Statistic, baseline: Run, contender: Run, pair: int) -> Effect:
    """Compute what a launch tells by this statistic, with its standard error.

    Both runs have the same rounds, and ``pair`` is the pair of zygotes that the launch comes from.
    Raises `ValueError` if there is no round, the rounds do not match, or a time is not a positive number.
    """
    doubt = _doubts(baseline, contender)
    if statistic is Statistic.MEDIAN:
        return replace(launch_effect(baseline.seconds, contender.seconds, pair), doubt=doubt)
    sides = baseline.seconds, contender.seconds
    ratios = log_ratios(*sides)
    before, now = (np.asarray(side, float) for side in sides)
    if statistic is Statistic.TAIL:
        return Effect(float(ratios.mean()), pair, _standard_error(ratios), doubt)
    # The delta method for a ratio of paired means (Cochran 1977, Sampling Techniques, section 6.4).
    error = _standard_error(now / now.mean() - before / before.mean())
    more = 0.0 if statistic is Statistic.MEAN else _work_beside(contender) - _work_beside(baseline)
    return Effect(math.log(now.mean() / before.mean()) + more, pair, error, doubt)


_SPIN = 1e-4
"""Seconds that a thread of TensorFlow's pools looks for more work before it waits, at most (Eigen's
NonBlockingThreadPool.h: 5000 attempts): 60 µs on a processor of its own, nothing where another thread takes it at once."""


def _doubts(baseline: Run, contender: Run) -> tuple[float, float]:
    """Return by how much, as log-ratios, the ratio of a launch beside neighbours may be too high, and too low.

    What threads spin between two pieces of work depends on who waits for their processor. It is alike on both sides, so
    that it matters as far as their calls have other numbers of pieces, or other times.
    """
    spins = [min(0.9, run.facts.get(HANDED, 0.0) * _SPIN / median(run.seconds)) for run in (baseline, contender)]
    off = [math.log1p(sign * spins[1]) - math.log1p(sign * spins[0]) for sign in (1, -1)]
    return baseline.facts.get(DOUBT, 0.0) - min(off), contender.facts.get(DOUBT, 0.0) + max(off)


def _work_beside(run: Run) -> float:
    """Return the logarithm of the factor by which the work beside the calls of a launch prolongs them."""
    return math.log1p(run.facts.get(BESIDE, 0.0) / fmean(run.seconds))


def leaves_work(runs: Sequence[Run], thresholds: Thresholds) -> bool:
    """Return whether the calls of most launches leave work beside them that is long enough to matter."""
    most = median([_work_beside(run) for run in runs])
    return most >= math.log1p(thresholds.minimum_effect)


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def pooled(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects with the root mean square of their errors.

    The error of a mean grows with the number of slow calls in a launch. With errors of their own, launches without a slow
    call would outweigh the launches that show the slowdown.
    """
    error = math.sqrt(sum(effect.error**2 for effect in effects) / max(1, len(effects)))
    return [replace(effect, error=error) for effect in effects]


def with_tail(median: Decision, tail: Decision, thresholds: Thresholds, final: bool, rounds: int) -> Decision:
    """Decide on a case from what its median and its tail prove at a look.

    Either one alone proves `regressed`. The others need both: the median to be faster or unchanged, and the tail not to be
    slower by more than the tolerance.

    Args:
        thresholds: Those of the tail.
        final: Whether this was the last launch.
        rounds: The reason for `unchanged` says which slow calls it does not cover if the race has fewer rounds.
    """
    median, tail = (replace(one, tail=tail.comparison.ratio) for one in (median, tail))
    if median.outcome is Outcome.REGRESSED or tail.outcome is Outcome.REGRESSED:
        return median if median.outcome is Outcome.REGRESSED else of_tail(tail, median)
    if median.outcome not in (Outcome.UNCHANGED, Outcome.IMPROVED):
        return median
    if median.outcome is Outcome.UNCHANGED and tail.outcome is Outcome.IMPROVED:
        return of_tail(tail, median)
    bounded = tail.comparison.ratio.high <= 1 + thresholds.tolerance and (final or median.outcome is Outcome.IMPROVED)
    if bounded or tail.outcome is Outcome.UNCHANGED:
        seen = median.comparison.rounds
        if seen >= rounds or median.outcome is not Outcome.UNCHANGED:
            return median
        # The exact form of the rule of three (Hanley & Lippman-Hand 1983, JAMA 249): in one race of twenty, so many rounds
        # contain none of this share of slow calls.
        return median.noted(because(Note.RARE_CALLS, rounds=seen, share=float(1 - 0.05 ** (1 / seen))))
    return _doubted(median, _of_both(ReasonCode.TAIL_NOT_DECIDED, tail, median), final)


def _doubted(decision: Decision, reason: Reason, ends: bool) -> Decision:
    """Return the decision as inconclusive for this reason, or as open if the race does not end."""
    if ends:
        return replace(decision, outcome=Outcome.INCONCLUSIVE, reason=reason)
    return replace(decision, outcome=None, reason=because(ReasonCode.RACING, reason))


SUSPECTED, STILL_SUSPECTED = 0.9, 2.0
"""Standard errors by which a mean is higher before the race goes on, and at its end before it passes no case. One slow call
of one side alone is one error. Of equal sides with rare slow calls, 18% are suspected at a look, which more launches clear,
and 2% at the end."""


def excess(effects: Sequence[Effect]) -> tuple[float, float]:
    """Return the plain mean of pooled effects, and how many standard errors it is above 0.

    The center of an interval would leave out outlying launches, and those may be the ones with the slow calls. The error comes
    from the rounds or from the launches, whichever is larger.
    """
    values = [effect.value for effect in effects]
    error = max(effects[0].error, stdev(values) if len(values) > 1 else 0.0) / math.sqrt(len(values))
    return fmean(values), fmean(values) / error if error else math.inf


def with_mean(
    decision: Decision, mean: Comparison, effects: Sequence[Effect], thresholds: Thresholds, final: bool
) -> Decision:
    """Return the decision, unless the mean of the calls, which users pay, is slower where median and tail are not.

    The geometric mean counts a call that is ten times as slow as 2.3. So a faster median may outweigh slow calls that cost
    more, and slow calls that are rare or get slower hardly move it. An unchanged median with a mean that is proved to be
    slower is `regressed`.

    Args:
        effects: Those of the means, pooled.
        thresholds: Those of the tail.
        final: Whether this was the last launch.
    """
    if decision.outcome not in _NOT_SLOWER:
        return decision
    ratio, unchanged = mean.ratio, decision.outcome is Outcome.UNCHANGED
    proved = classify(ratio.low, ratio.high, thresholds) is Outcome.REGRESSED
    more, errors = excess(effects)
    least = thresholds.minimum_effect if unchanged else thresholds.tolerance
    # One slow call among those of the first look may cost half of what matters.
    suspected = more > math.log1p(least) / (1 if final else 2) and errors > (STILL_SUSPECTED if final else SUSPECTED)
    if not (proved or suspected):
        return decision
    typical = None if unchanged else decision.comparison.ratio.center
    reason = because(ReasonCode.MEAN_SLOWER, ratio=ratio, launches=mean.launches, median=typical)
    if proved and unchanged:
        return of_mean(replace(decision, outcome=Outcome.REGRESSED, comparison=mean, statistic=Statistic.MEAN))
    return _doubted(decision, reason, proved or final)


_NOT_SLOWER = (Outcome.UNCHANGED, Outcome.IMPROVED)


def of_mean(mean: Decision) -> Decision:
    """Return the decision with a reason that names the slow calls, if it is a slowdown."""
    if mean.outcome is not Outcome.REGRESSED:
        return mean
    comparison = mean.comparison
    return replace(
        mean, reason=because(ReasonCode.RARE_SLOW_CALLS, ratio=comparison.ratio, launches=comparison.launches)
    )


def with_work_beside(
    decision: Decision,
    whole: Comparison,
    thresholds: Thresholds,
    sides: tuple[Sequence[Run], Sequence[Run]],
    final: bool,
) -> Decision:
    """Return the decision, unless work that calls leave to others, such as threads, may hide a slowdown.

    That work is not part of the time of a call, and the processor has to do it all the same. As in `balanced`, its plain
    estimate must be no slowdown either.

    Args:
        whole: Of the calls with that work.
        sides: The runs of the baseline and of the contender.
        final: Whether this was the last launch.
    """
    if decision.outcome not in _NOT_SLOWER:
        return decision
    ratio, calls = whole.ratio, decision.comparison.ratio.center
    proved = classify(ratio.low, ratio.high, thresholds) is Outcome.REGRESSED
    if proved or ratio.center > 1 + thresholds.tolerance:
        reason = because(ReasonCode.WORK_BESIDE, ratio=ratio, launches=whole.launches, calls=calls)
        return _doubted(decision, reason, proved or final)
    before, now = (_mostly(RESTLESS, runs) for runs in sides)
    if now and not before:
        return _doubted(decision, because(ReasonCode.RESTLESS), True)
    return decision.noted(because(Note.RESTLESS)) if now else decision


def with_retraces(decision: Decision, contender: Sequence[Run]) -> Decision:
    """Return the decision, unless most calls of the contender trace a function again, which takes far longer than a call.

    A step with many shapes traces for each of them once, and its later calls may be slower. As long as a race takes, it looks
    like a step that always traces.
    """
    doubtful = decision.outcome in _NOT_SLOWER and retrace(contender)
    return _doubted(decision, because(ReasonCode.RETRACED), True) if doubtful else decision


def with_settings(decision: Decision, before: Sequence[Run], now: Sequence[Run]) -> Decision:
    """Return the decision, unless the contender has settings of which the times do not show the effect.

    More launches cannot decide such a case, so an open race ends.
    """
    if decision.outcome not in (*_NOT_SLOWER, None):
        return decision
    collections = [median(run.facts.get(COLLECTIONS, 1.0) for run in runs) for runs in (before, now)]
    if collections[0] < collections[1]:
        return _doubted(decision, because(ReasonCode.MORE_COLLECTIONS), True)
    # What every launch sets to the same value: a free port is another one in each.
    old, new = (set.intersection(*({*run.facts.get(SET_LATE, ())} for run in runs)) for runs in (before, now))
    reason = because(ReasonCode.SET_LATE, before=sorted(old), now=sorted(new))
    return _doubted(decision, reason, True) if old != new else decision


def retrace(runs: Sequence[Run]) -> bool:
    """Return whether most calls of a case traced a function again."""
    return _mostly(RETRACED, runs)


def _mostly(fact: str, runs: Sequence[Run]) -> bool:
    return 2 * sum(fact in run.facts for run in runs) > len(runs)


def of_tail(tail: Decision, median: Decision | None = None) -> Decision:
    """Return the decision with a reason that names the slow calls, if it is a change.

    ``median`` is what the median proves at the same look; ``None`` if it is not judged.
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
        p90=float(np.quantile(times, 0.9)) if single else None,
        slow=float(slow.mean()),
        rounds=len(times),
    )


# Average the ratios of many cases, with an interval: a small slowdown of all cases, which no single case shows


FEWEST_CASES = 5
"""Cases of a mean. Of fewer, the spread is often far too small by luck, and so is the interval: a tenth in 8% of pairs."""
_LEAST_SHARE = 0.5
"""Share of the median error below which a case gets no more weight: errors are estimated, and small ones by luck."""

_TINY = 1e-9
"""Least error, for intervals without width."""


def mean_ratio(ratios: Sequence[Ratio], confidence: float = 0.95) -> Ratio | None:
    """Return the mean of cases' ratios with its interval; ``None`` for fewer than `FEWEST_CASES` cases that can be used.

    A case is used if its ratio and both ends of its interval are positive numbers. Each ratio has an interval at its
    own confidence, and ``confidence`` is that of the mean's interval.
    """
    used = [
        ratio for ratio in ratios if 0 < ratio.low <= ratio.center <= ratio.high < math.inf and 0 < ratio.confidence < 1
    ]
    if len(used) < FEWEST_CASES:
        return None
    center = np.log([ratio.center for ratio in used])
    width = np.log([ratio.high for ratio in used]) - np.log([ratio.low for ratio in used])
    quantile = special.ndtri(0.5 + np.array([ratio.confidence for ratio in used]) / 2)
    errors = width / (2 * quantile)
    variance = np.maximum(errors, max(_LEAST_SHARE * float(np.median(errors)), _TINY)) ** 2
    weights = 1 / (variance + _between(center, variance))
    mean = float(np.average(center, weights=weights))
    freedom = len(used) - 1
    error = math.sqrt(float(np.average((center - mean) ** 2, weights=weights)) / freedom)
    reach = float(special.stdtrit(freedom, 0.5 + confidence / 2)) * error
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), confidence)


def classify_mean(mean: Ratio, limit: float) -> Outcome:
    """Return the outcome that the interval of a mean proves.

    As for a single case, a change counts from half of the slowdown that is to be found: regressed or improved needs the
    whole interval beyond it, and unchanged the whole interval within the limit.
    """
    least = 1 + limit / 2
    if mean.low > least:
        return Outcome.REGRESSED
    if mean.high < 1 / least:
        return Outcome.IMPROVED
    return Outcome.UNCHANGED if 1 / (1 + limit) < mean.low and mean.high < 1 + limit else Outcome.INCONCLUSIVE


def _between(center: Floats, variance: Floats) -> float:
    """Return the variance of the true log-ratios between cases, by DerSimonian & Laird's method of moments."""
    weights = 1 / variance
    mean = np.average(center, weights=weights)
    excess = float(np.sum(weights * (center - mean) ** 2)) - (len(center) - 1)
    return max(0.0, excess / float(np.sum(weights) - np.sum(weights**2) / np.sum(weights)))
