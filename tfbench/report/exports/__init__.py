"""Exports of a report to formats of other tools. Each format is a module with ``export(report, target)``.

A module imports the library of its format, which is an extra, and nothing else does. `Exporter` names both.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from tfbench.errors import UsageError
from tfbench.model import TIME, Report, Verdict


class Export(Protocol):
    """Writes a report to a target, and returns one line that says what was written."""

    def __call__(self, report: Report, target: str) -> str: ...


@dataclass(frozen=True)
class Exporter:
    """A format: its option, what it writes, and the library that it needs."""

    name: str
    metavar: str
    help: str
    library: str = ""
    """Top-level module of the library, ``""`` for none."""
    extra: str = ""

    def load(self) -> Export:
        """Import the exporter.

        Raises:
            UsageError: Its library is not installed.
        """
        try:
            return cast(Export, importlib.import_module(f"{__name__}.{self.name}").export)
        except ModuleNotFoundError as error:
            if not self.library or (error.name or "").partition(".")[0] != self.library:
                raise
            raise UsageError(f"--{self.name} needs {self.library}: pip install 'tfbench[{self.extra}]'") from None


EXPORTERS = (
    Exporter("junit", "PATH", "write JUnit XML, one test case per case"),
    Exporter(
        "prometheus", "PATH", "write Prometheus' text format, for node_exporter's textfile collector",
        "prometheus_client", "prometheus",
    ),
    Exporter(
        "tensorboard", "DIR", "write TensorBoard scalars and hyperparameters, one run per case",
        "tensorboard", "profile",
    ),
    Exporter("mlflow", "URI", "log a run to an MLflow tracking server or database", "mlflow", "mlflow"),
)  # fmt: skip


def numbers(report: Report) -> Iterator[tuple[str, str, float]]:
    """Yield case, name and value of every finite number that a report states about a case."""
    for row in report.verdicts:
        yield from ((row.case.name, name, value) for name, value in _of_verdict(row))
    for one in report.variant_results:
        if report.sides.get("baseline") is None and one.ratio is not None:
            yield one.case.name, "ratio_to_reference", one.ratio.center
        yield one.case.name, "median_seconds", one.median_seconds


def _of_verdict(row: Verdict) -> Iterator[tuple[str, float]]:
    if row.ratio is not None:
        for end, value in (("", row.ratio.center), ("_low", row.ratio.low), ("_high", row.ratio.high)):
            if 0 < value < float("inf"):
                yield f"{row.metric}_ratio{end}", value
    for side, known in zip(("baseline", "contender"), row.values or (), strict=False):
        if known is not None:
            yield f"{row.metric}_{side}", known
    if row.metric == TIME:
        yield "launches", float(row.launches)
