"""MLflow: one run per report in the experiment ``tfbench``, with the numbers of its cases as metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TypeVar

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tfbench.errors import ReportError
from tfbench.model import TIME, Report
from tfbench.report.exports import numbers
from tfbench.untrusted import brief

Value = TypeVar("Value")
_EXPERIMENT = "tfbench"
_TAGS, _METRICS = 100, 1000
"""Most tags and metrics of one request."""
_LONGEST = 250
_NO_KEY = re.compile(r"[^\w\-. /:]", re.ASCII)
"""What MLflow refuses in the name of a metric."""


def export(report: Report, target: str) -> str:
    """Log a run to the tracking store with this URI.

    Raises:
        ReportError: MLflow refuses it.
    """
    try:
        client = MlflowClient(target)
        known = client.get_experiment_by_name(_EXPERIMENT)
        experiment = known.experiment_id if known else client.create_experiment(_EXPERIMENT)
        run = client.create_run(experiment).info.run_id
        now = int(time.time() * 1000)
        params = [
            Param("policy", str(report.policy.get("name", ""))),
            *(Param(name, str(side.get("spec", ""))) for name, side in report.sides.items()),
        ]
        tags = [RunTag("complete", str(not report.gap).lower())]
        tags += [RunTag(key, value) for key, value in _outcomes(report).items()]
        metrics = [Metric(key, value, now, 0) for key, value in _keyed(report).items()]
        client.log_batch(run, params=params)
        for first in range(0, len(tags), _TAGS):
            client.log_batch(run, tags=tags[first : first + _TAGS])
        for first in range(0, len(metrics), _METRICS):
            client.log_batch(run, metrics=metrics[first : first + _METRICS])
        client.set_terminated(run, "FINISHED" if not report.gap else "FAILED")
    except MlflowException as error:
        raise ReportError(f"--mlflow {brief(target)}: {brief(error)}") from None
    return f"{target}: run {run} of the experiment {_EXPERIMENT}, {len(metrics)} metrics"


def _outcomes(report: Report) -> dict[str, str]:
    rows = [row for row in report.verdicts if row.metric == TIME]
    return _unique([("outcome", row.case.name, row.outcome.value) for row in rows])


def _keyed(report: Report) -> dict[str, float]:
    return _unique([(what, case, value) for case, what, value in numbers(report)])


def _unique(rows: Sequence[tuple[str, str, Value]]) -> dict[str, Value]:
    """Return values by unique names that MLflow accepts, of rows of a prefix, a case and the value."""
    found: dict[str, Value] = {}
    for prefix, case, value in rows:
        key = name = f"{prefix}/{_NO_KEY.sub('_', case.rpartition('::')[2]).strip('_')}"[:_LONGEST]
        number = 1
        while name in found:
            number += 1
            name = f"{key[: _LONGEST - 8]} {number}"
        found[name] = value
    return found
