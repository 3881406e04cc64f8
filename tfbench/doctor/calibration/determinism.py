"""Check that exact metrics are exact, by probing the same cases many times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import BenchmarkSkipped
from tfbench.metrics.catalog import PROBED, read
from tfbench.metrics.exact import differing
from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import Case, MetricValues
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.workers import Suite
from tfbench.sides.side import Side

_AT_ONCE = 10
"""Launches per zygote. A metric may depend on a property of the zygote, such as its hash seed."""


@dataclass(frozen=True)
class Exactness:
    """The agreement of many launches of a case."""

    case: Case
    launches: int
    metrics: int
    """Number of metrics that could be read."""
    demoted: dict[str, str]
    """Metric -> how the launches differ."""
    skipped: str = ""


def examine(
    root: Path,
    suite: Suite,
    cases: Sequence[Case],
    launches: int,
    policy: Policy,
    processors: Processors,
    report: Callable[[Case, int], None],
) -> list[Exactness]:
    """Probe each case ``launches`` times, in processes of several zygotes.

    Raises:
        BenchmarkError: A case breaks.
        SideError: A zygote does not start.
    """
    side = Side("contender", sys.executable, root)
    metric_values: dict[str, list[MetricValues]] = {case.name: [] for case in cases}
    skipped: dict[str, str] = {}
    for first in range(0, launches, _AT_ONCE):
        with closing(ProcessLauncher(suite, policy, processors)) as launcher:
            for case in cases:
                report(case, first)
                repeats = 0 if case.name in skipped else min(_AT_ONCE, launches - first)
                for found in Prober(launcher, policy).probe([Entrant(case, side)] * repeats):
                    if isinstance(found, BenchmarkSkipped):
                        skipped[case.name] = str(found)
                    elif isinstance(found, ProbeOutput):
                        metric_values[case.name].append(read(found))
                    else:
                        raise found
    return [_exactness(case, metric_values[case.name], policy, skipped.get(case.name, "")) for case in cases]


def _exactness(case: Case, metric_values: Sequence[MetricValues], policy: Policy, skipped: str) -> Exactness:
    if not metric_values:
        return Exactness(case, 0, 0, {}, skipped)
    known = sum(metric_values[0].value(metric.name) is not None for metric in PROBED)
    return Exactness(case, len(metric_values), known, differing(metric_values, policy))
