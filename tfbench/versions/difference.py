"""The difference of a case between two sides: raced for durations and memory, read for what is counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tfbench.metrics import catalog, exact
from tfbench.metrics.catalog import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.metrics.exact import ComparisonContext
from tfbench.model import TIME, Outcome, Ratio, Verdict
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.stats.verdict import Decision

RACED = (TIME, FIRST_CALL, PEAK_HOST_MEMORY)
"""Metrics that differ between launches of the same code, so that two sides are raced for them."""
COUNTED = tuple(metric.name for metric in catalog.PROBED)
"""Metrics that probing launches read."""


@dataclass(frozen=True)
class Difference:
    """How the second side differs from the first one in a metric."""

    outcome: Outcome | None
    """``None`` if it was not measured, for the reason."""
    reason: str
    ratio: Ratio | None = None
    launches: int = 0
    seconds: float = 0.0
    failures: Mapping[int, Failure] = field(default_factory=dict)
    """Why a side cannot run the case: 0 is the first side."""


def raced(race: ConfirmedRace, metric: str) -> Difference:
    """Return the result of a race on one of `RACED`."""
    if race.failures:
        return Difference(None, "", failures=race.failures)
    if race.abort_reason:
        return Difference(None, f"disturbed: {race.abort_reason}")
    if race.unlike:
        return Difference(None, race.unlike)
    judged: Decision | Verdict | None = {
        TIME: race.decision, FIRST_CALL: race.first_call, PEAK_HOST_MEMORY: race.memory,
    }[metric]  # fmt: skip
    if judged is None or judged.outcome is None:
        return Difference(None, f"no {metric} was measured")
    ratio = judged.ratio if isinstance(judged, Verdict) else judged.comparison.ratio
    return Difference(judged.outcome, judged.reason.message, ratio, race.launches, race.wall_seconds)


def counted(prober: Prober, policy: Policy, metric: str, before: Entrant, now: Entrant) -> Difference:
    """Read one of `COUNTED` in several launches of both sides. A change counts if the launches of each side agree.

    Raises:
        SideError: A process does not start.
    """
    began, each = time.perf_counter(), policy.probe_launches
    found = list(prober.probe([before] * each + [now] * each))
    if failures := {index // each: one for index, one in enumerate(found) if isinstance(one, Exception)}:
        return Difference(None, "", failures=failures)
    values = [catalog.read(one) for one in found if not isinstance(one, Exception)]
    sides = values[:each], values[each:]
    unstable = {name: how for side in sides for name, how in exact.differing(side, policy).items()}
    verdicts, _ = exact.compare(
        now.case, sides[0][0], sides[1][0], ComparisonContext(unstable=unstable),
        replace(policy, exact_across_versions=True),
    )  # fmt: skip
    verdict = next((verdict for verdict in verdicts if verdict.metric == metric), None)
    if verdict is None or verdict.outcome in (Outcome.NEW, Outcome.MISSING):
        return Difference(None, verdict.reason.message if verdict else f"neither side reports {metric}")
    old, new = verdict.values or (None, None)
    ratio = Ratio(new / old, new / old, new / old, 1.0) if old and new else None
    return Difference(verdict.outcome, verdict.reason.message, ratio, each, time.perf_counter() - began)
