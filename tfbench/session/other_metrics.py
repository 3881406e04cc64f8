"""Add the other metrics of a case to its result, after its race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfbench.model import TIME, Case, ReasonCode
from tfbench.session.metric_checks import MetricChecker
from tfbench.session.races import Races
from tfbench.session.request import CaseResult, ProgressReporter
from tfbench.session.results import with_model
from tfbench.session.strategies import Strategy
from tfbench.sides.side import Side

_PROBED = (ReasonCode.OTHER_ENVIRONMENT, ReasonCode.SAME_CODE)
"""Reasons without times that leave the other metrics to be judged."""


@dataclass(frozen=True)
class OtherMetrics:
    """Probe cases, and race them for contracts that the first race left open.

    Args:
        cases: All cases of the run; a contract may name any of them.
    """

    checker: MetricChecker
    races: Races
    strategy: Strategy
    contender: Side
    cases: Sequence[Case]
    report: ProgressReporter
    saving: bool = False
    """Whether the metrics become a baseline, which must know which of them differ between launches."""

    def probe(self, result: CaseResult, measured: Sequence[Case]) -> CaseResult:
        """Add the verdicts on the metrics that a probing launch reads.

        Args:
            measured: The measured cases of the same group, to be probed together.

        Raises:
            SideError: A side does not start.
        """
        verdict = result.verdict
        if verdict is None or (result.sample is None and verdict.reason.code not in _PROBED):
            return result
        self.report(f"{result.case.workload}: other metrics")
        reference_side = self.strategy.reference_side(result)
        checked = self.checker.checked(result, self.contender, reference_side, measured)
        if self.saving and checked.metric_values is not None:
            values = self.checker.stable(result.case, self.contender, checked.metric_values)
            checked = replace(checked, metric_values=values)
        return with_model(checked)

    def race_claims(self, result: CaseResult, measured: Sequence[Case]) -> CaseResult:
        """Add the verdicts on contracts about other variants' times, unless the variants have raced each other.

        Raises:
            SideError: A side does not start.
        """
        case = result.case
        claims = case.claims_on(TIME)
        if not claims or result.variant_result is not None or result.sample is None:
            return result
        named = [claim.levels for claim in claims]
        others = [other for other in self.cases if other.group == case.group and other.variant in named]
        return replace(result, metrics=(*result.metrics, *self.races.claims(case, others)))
