"""Immutable types shared by all packages: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from tfbench.model.case import (
    JSON,
    LEAKS,
    ONCE,
    PLAIN,
    QUALITIES,
    REPORTED,
    THRESHOLDS,
    TIME,
    Case,
    Claim,
    own_thresholds,
)
from tfbench.model.measurement import Effect, Launch, MetricValues, Plan, Run, Sample
from tfbench.model.provenance import EnvironmentInfo, MeasurementContext
from tfbench.model.reason import Reason, ReasonCode
from tfbench.model.report import Rate, RateRow, Report
from tfbench.model.rounds import StoredRounds
from tfbench.model.verdict import Comparison, Outcome, Ratio, Skip, SuiteVerdict, VariantResult, Verdict

__all__ = [
    "JSON",
    "LEAKS",
    "ONCE",
    "PLAIN",
    "QUALITIES",
    "REPORTED",
    "THRESHOLDS",
    "TIME",
    "Case",
    "Claim",
    "Comparison",
    "Effect",
    "EnvironmentInfo",
    "Launch",
    "MeasurementContext",
    "MetricValues",
    "Outcome",
    "Plan",
    "Rate",
    "RateRow",
    "Ratio",
    "Reason",
    "ReasonCode",
    "Report",
    "Run",
    "Sample",
    "Skip",
    "StoredRounds",
    "SuiteVerdict",
    "VariantResult",
    "Verdict",
    "own_thresholds",
]
