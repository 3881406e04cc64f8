"""Immutable types shared by all packages: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from tfbench.model.case import (
    JSON,
    LEAKS,
    NATIVE,
    ONCE,
    PLAIN,
    QUALITIES,
    REPORTED,
    THRESHOLDS,
    TIME,
    WAITED,
    Case,
    Claim,
    own_thresholds,
)
from tfbench.model.measurement import (
    STATISTICS,
    Effect,
    Launch,
    MetricValues,
    OutputSketch,
    Plan,
    Run,
    Sample,
    SlowCalls,
    Statistic,
)
from tfbench.model.provenance import EnvironmentInfo, MeasurementContext
from tfbench.model.reason import Reason, ReasonCode
from tfbench.model.report import Rate, RateRow, Report
from tfbench.model.rounds import StoredRounds
from tfbench.model.verdict import Calls, Comparison, Outcome, Ratio, Skip, SuiteVerdict, VariantResult, Verdict

__all__ = [
    "JSON",
    "LEAKS",
    "NATIVE",
    "ONCE",
    "PLAIN",
    "QUALITIES",
    "REPORTED",
    "STATISTICS",
    "THRESHOLDS",
    "TIME",
    "WAITED",
    "Calls",
    "Case",
    "Claim",
    "Comparison",
    "Effect",
    "EnvironmentInfo",
    "Launch",
    "MeasurementContext",
    "MetricValues",
    "Outcome",
    "OutputSketch",
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
    "SlowCalls",
    "Statistic",
    "StoredRounds",
    "SuiteVerdict",
    "VariantResult",
    "Verdict",
    "own_thresholds",
]
