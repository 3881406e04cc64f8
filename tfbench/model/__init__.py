"""Immutable types shared by all packages: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfbench.model.case import (
    CACHE,
    CACHE_STATES,
    COLD,
    JSON,
    LEAK_KINDS,
    LEAKS,
    NATIVE,
    ONCE,
    OUTSIDE_PYTHON,
    PLAIN,
    QUALITIES,
    REPORTED,
    THRESHOLDS,
    TIME,
    UNKNOWN,
    WAITED,
    WARM,
    Case,
    Claim,
    Word,
    own_thresholds,
    short_name,
)

if TYPE_CHECKING:
    from tfbench.model.measurement import (
        FLOOR,
        RATIO,
        STATISTICS,
        AcceptedChange,
        Calls,
        Effect,
        Launch,
        MetricValues,
        OutputSketch,
        Plan,
        Ratio,
        Run,
        Sample,
        Series,
        SeriesPoint,
        SeriesRun,
        SlowCalls,
        Statistic,
        StoredRounds,
    )
    from tfbench.model.reasons import Note, Reason, ReasonCode, because
    from tfbench.model.report import (
        Comparison,
        EnvironmentInfo,
        MeasurementContext,
        Outcome,
        Rate,
        RateRow,
        Report,
        Skip,
        SuiteVerdict,
        VariantResult,
        Verdict,
    )

_MODULES = ("measurement", "report", "reasons")


def __getattr__(name: str) -> Any:
    """Import the types of files at their first use: workers need none of them, and have no msgspec."""
    if name in __all__:
        for module in _MODULES:
            if hasattr(loaded := import_module(f"{__name__}.{module}"), name):
                return getattr(loaded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CACHE",
    "CACHE_STATES",
    "COLD",
    "FLOOR",
    "JSON",
    "LEAKS",
    "LEAK_KINDS",
    "NATIVE",
    "ONCE",
    "OUTSIDE_PYTHON",
    "PLAIN",
    "QUALITIES",
    "RATIO",
    "REPORTED",
    "STATISTICS",
    "THRESHOLDS",
    "TIME",
    "UNKNOWN",
    "WAITED",
    "WARM",
    "AcceptedChange",
    "Calls",
    "Case",
    "Claim",
    "Comparison",
    "Effect",
    "EnvironmentInfo",
    "Launch",
    "MeasurementContext",
    "MetricValues",
    "Note",
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
    "Series",
    "SeriesPoint",
    "SeriesRun",
    "Skip",
    "SlowCalls",
    "Statistic",
    "StoredRounds",
    "SuiteVerdict",
    "VariantResult",
    "Verdict",
    "Word",
    "because",
    "own_thresholds",
    "short_name",
]
