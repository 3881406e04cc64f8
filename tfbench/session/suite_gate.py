"""Judge the mean time of all raced cases, and race them again before a slower one fails the run."""

from __future__ import annotations

from collections.abc import Sequence

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
        first, cases = self._mean([one.verdict.ratio for one in raced if one.verdict]), len(raced)
        if first is None:
            text = f"{cases} cases were raced against the baseline, and a mean needs {FEWEST}"
            return SuiteVerdict(self._limit, Outcome.INCOMPARABLE, Reason(ReasonCode.FEW_CASES, text), cases)
        outcome, text = classify_mean(first, self._limit), self._described(first, cases)
        if outcome is not Outcome.REGRESSED or not self._policy.confirm:
            return SuiteVerdict(self._limit, outcome, Reason(_CODES[outcome], text), cases, first)
        second, raced_again, passes = self._second(raced)
        if second is None:
            text = f"{text}; too few cases could be raced again to confirm it"
            return SuiteVerdict(self._limit, Outcome.INCONCLUSIVE, Reason(ReasonCode.NOT_CONFIRMED, text), cases, first)
        if classify_mean(second, self._limit) is Outcome.REGRESSED:
            code, what = ReasonCode.SLOWER, "found twice, the first time as"
        else:
            outcome, code = Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED
            what = "fresh launches did not confirm what came first:"
        times = f", raced again {passes} times," if passes > 1 else ""
        text = f"{self._described(second, raced_again, times)}; {what} {text}"
        return SuiteVerdict(self._limit, outcome, Reason(code, text), raced_again, second)

    def _second(self, raced: Sequence[CaseResult]) -> tuple[Ratio | None, int, int]:
        """Race all cases again until their mean is decided.

        Each pass adds one ratio per case to the mean. The errors of these ratios are independent.

        Returns:
            The mean, the number of cases and the number of passes.
        """
        ratios: list[Ratio] = []
        passes = 0
        while True:
            passes += 1
            ratios += [ratio for one in raced if (ratio := self._again(one)) is not None]
            mean = self._mean(ratios)
            decided = mean is None or classify_mean(mean, self._limit) is not Outcome.INCONCLUSIVE
            if decided or passes == self._policy.suite_passes:
                return mean, round(len(ratios) / passes), passes

    def _again(self, raced: CaseResult) -> Ratio | None:
        rival = self._strategy.rival_entrant(raced.case)
        return self._races.again(raced.case, rival) if rival is not None else None

    def _mean(self, ratios: Sequence[Ratio | None]) -> Ratio | None:
        return mean_ratio([ratio for ratio in ratios if ratio is not None], 1 - self._policy.alpha)

    @staticmethod
    def _described(mean: Ratio, cases: int, times: str = "") -> str:
        interval = f"interval {mean.low - 1:+.2%} to {mean.high - 1:+.2%} at {mean.confidence:.0%} confidence"
        return f"the mean of {cases} cases{times} is {mean.center - 1:+.2%} ({interval})"
