"""tfbench: a performance regression suite for TensorFlow that races two versions instead of comparing saved times."""

from __future__ import annotations

import os
from pathlib import Path

from tfbench.errors import ReportError, TfbenchError
from tfbench.model import Outcome, Ratio, Reason, Report, Verdict
from tfbench.suite.axes import Axis, Level, Variant, across
from tfbench.suite.claims import as_accurate, as_fast, faster, no_leak, smaller
from tfbench.suite.fixtures import Bench, Shared

__all__ = [
    "Axis", "Bench", "Level", "Outcome", "Ratio", "Reason", "Report", "ReportError", "Shared", "TfbenchError", "Variant",
    "Verdict", "across", "as_accurate", "as_fast", "faster", "load_report", "no_leak", "smaller",
]  # fmt: skip
__version__ = "0.1.0"


def load_report(path: str | os.PathLike[str]) -> Report:
    """Read a report: a file of ``--report-json``, or a folder or zip archive with one.

    Raises:
        ReportError: There is no report, there are several, or it is invalid. The message names the place.
    """
    from tfbench.report import artifact  # it needs more packages than the worker has

    return artifact.load_report(Path(path))
