"""Immutable types shared by all packages: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from tfbench.model.case import JSON, QUALITIES, TIME, Case, Claim
from tfbench.model.measurement import Effect, Launch, Plan, Reading, Run, Sample
from tfbench.model.provenance import Recipe, Setting
from tfbench.model.report import Rate, RateRow, Report
from tfbench.model.verdict import Comparison, Outcome, Ratio, Reason, Skip, Standing, Verdict

__all__ = [
    "JSON",
    "QUALITIES",
    "TIME",
    "Case",
    "Claim",
    "Comparison",
    "Effect",
    "Launch",
    "Outcome",
    "Plan",
    "Rate",
    "RateRow",
    "Ratio",
    "Reading",
    "Reason",
    "Recipe",
    "Report",
    "Run",
    "Sample",
    "Setting",
    "Skip",
    "Standing",
    "Verdict",
]
