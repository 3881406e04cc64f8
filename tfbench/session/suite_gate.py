"""Judge the mean time of all raced cases. Race them again until it is decided, and before a slower one fails the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.model import Outcome, Ratio, Reason, ReasonCode, SuiteVerdict
from tfbench.policy import Policy
from tfbench.session.races import Races
from tfbench.session.request import CaseResult
from tfbench.session.results import reason_of
from tfbench.session.strategies import Strategy
from tfbench.stats.suite_mean import FEWEST, classify_mean, mean_ratio

_CODES = {
    Outcome.REGRESSED: ReasonCode.SLOWER,
    Outcome.IMPROVED: ReasonCode.FASTER,
    Outcome.UNCHANGED: ReasonCode.WITHIN_TOLERANCE,
    Outcome.INCONCLUSIVE: ReasonCode.NOT_DECIDED,
}


@dataclass(frozen=True)
class _Mean:
    """A mean, of how many cases, and how often they were raced again for it."""

    mean: Ratio | None
    cases: int
    passes: int


class SuiteGate:
    """The verdict of ``--gate-suite``.

    Args:
        limit: The slowdown of the mean to find, as a fraction.
    """

    def __init__(self, limit: float, policy: Policy, races: Races, strategy: Strategy) -> None:
        self._limit = limit
        self._policy = policy
        self._races = races
        self._strategy = strategy

    def verdict(self, results: Sequence[CaseResult]) -> SuiteVerdict:
        """Judge the cases that were raced against the baseline. A failure becomes a verdict `error`.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C while the cases were raced again.
        """
        raced = [one for one in results if one.rival is not None and one.verdict is not None and one.verdict.ratio]
        try:
            return self._judge(raced)
        except Exception as error:
            reason, _ = reason_of(error)
            return SuiteVerdict(self._limit, Outcome.ERROR, reason, len(raced))

    def _judge(self, raced: Sequence[CaseResult]) -> SuiteVerdict:
        cases = len(raced)
        first = self._decided(raced, [one.verdict.ratio for one in raced if one.verdict and one.verdict.ratio])
        if first.mean is None:
            text = f"{cases} cases were raced against the baseline, and a mean needs {FEWEST}"
            return SuiteVerdict(self._limit, Outcome.INCOMPARABLE, Reason(ReasonCode.FEW_CASES, text), cases)
        outcome, text = self._outcome(first.mean), self._described(first.mean, cases, first.passes)
        if outcome is not Outcome.REGRESSED or not self._policy.confirm:
            return SuiteVerdict(self._limit, outcome, Reason(_CODES[outcome], text), cases, first.mean)
        second = self._decided(raced)
        if second.mean is None:
            text = f"{text}; too few cases could be raced again to confirm it"
            reason = Reason(ReasonCode.NOT_CONFIRMED, text)
            return SuiteVerdict(self._limit, Outcome.INCONCLUSIVE, reason, cases, first.mean)
        if self._outcome(second.mean) is Outcome.REGRESSED:
            code, what = ReasonCode.SLOWER, "found twice, the first time as"
        else:
            outcome, code = Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED
            what = "fresh launches did not confirm what came first:"
        again = self._described(second.mean, second.cases, second.passes if second.passes > 1 else 0)
        return SuiteVerdict(self._limit, outcome, Reason(code, f"{again}; {what} {text}"), second.cases, second.mean)

    def _decided(self, raced: Sequence[CaseResult], first: Sequence[Ratio] = ()) -> _Mean:
        """Race all cases again until their mean is decided.

        Each pass adds one ratio per case to the mean. The errors of these ratios are independent.

        Args:
            first: The ratios of the first races, which count as well; empty to confirm their mean by fresh ratios alone.
        """
        ratios, passes, added = list(first), 0, len(first)
        for _ in range(self._policy.suite_passes if self._policy.confirm else 0):
            mean = self._mean(ratios)
            if ratios and (mean is None or self._outcome(mean) is not Outcome.INCONCLUSIVE):
                break
            more = [ratio for one in raced if (ratio := self._again(one, confirms=not first)) is not None]
            if not more:
                break
            ratios += more
            passes += 1
            added = len(more)
        return _Mean(self._mean(ratios), added, passes)

    def _again(self, raced: CaseResult, confirms: bool) -> Ratio | None:
        rival = self._strategy.rival_entrant(raced.case)
        return self._races.again(raced.case, rival, confirms) if rival is not None else None

    def _outcome(self, mean: Ratio) -> Outcome:
        return classify_mean(mean, self._limit)

    def _mean(self, ratios: Sequence[Ratio]) -> Ratio | None:
        return mean_ratio(ratios, 1 - self._policy.alpha)

    @staticmethod
    def _described(mean: Ratio, cases: int, again: int) -> str:
        times = f", raced again {again} time{'s' if again > 1 else ''}," if again else ""
        interval = f"interval {mean.low - 1:+.2%} to {mean.high - 1:+.2%} at {mean.confidence:.0%} confidence"
        return f"the mean of {cases} cases{times} is {mean.center - 1:+.2%} ({interval})"
