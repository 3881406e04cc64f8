"""Prometheus' text format, which node_exporter's textfile collector reads. See docs/exports.md for the metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from tfbench.fs import write_whole
from tfbench.model import Outcome, Report

_CASE = ("case", "workload", "variant", "metric")


def export(report: Report, target: str) -> str:
    """Write the file.

    Raises:
        OSError: It cannot be written.
    """
    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"tfbench_{name}", text, labels, registry=registry)

    ratios = {
        "": gauge("ratio", "Value of the contender relative to the baseline.", _CASE),
        "low": gauge("ratio_low", "Lower end of the ratio's confidence interval.", _CASE),
        "high": gauge("ratio_high", "Upper end of the ratio's confidence interval.", _CASE),
    }
    verdict = gauge("verdict", "1 for the verdict on a metric of a case.", (*_CASE, "outcome"))
    seconds = gauge("median_seconds", "Median time of a step of a case.", _CASE[:3])
    for row in report.verdicts:
        labels = (row.case.name, row.case.workload, row.case.label, row.metric)
        verdict.labels(*labels, row.outcome.value).set(1)
        if row.ratio is not None:
            for end, value in (("", row.ratio.center), ("low", row.ratio.low), ("high", row.ratio.high)):
                ratios[end].labels(*labels).set(value)
    for one in report.variant_results:
        seconds.labels(one.case.name, one.case.workload, one.case.label).set(one.median_seconds)
    verdicts = gauge("verdicts", "Number of verdicts of a run.", ("outcome",))
    counts = Counter(row.outcome for row in report.verdicts)
    for outcome in Outcome:
        verdicts.labels(outcome.value).set(counts[outcome])
    gauge("skipped_cases", "Number of cases that could not run.").set(len(report.skips))
    gauge("wall_seconds", "Wall time of a run.").set(report.wall_seconds)
    gauge("complete", "1 if a run has measured every case that was due.").set(float(not report.gap))
    sides = {name: str(side.get("spec", "")) for name, side in report.sides.items()}
    info = (str(report.policy.get("name", "")), sides.get("baseline", ""), sides.get("contender", ""))
    gauge("run_info", "What was compared.", ("policy", "baseline", "contender")).labels(*info).set(1)
    write_whole(Path(target), generate_latest(registry).decode())
    return f"{target}: {len(report.verdicts)} verdicts"
