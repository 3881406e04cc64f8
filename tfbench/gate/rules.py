"""From the verdicts of a run to whether a change may pass."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfbench.gate.accepted import Accepted
from tfbench.metrics.catalog import CONTRACT, DECISIVE
from tfbench.model import Outcome, Report, Verdict


class Gate(enum.IntEnum):
    """What the gate says, as the exit code of ``tfbench gate``; 2 stays a wrong command line."""

    PASS = 0
    REGRESSED = 1
    INCONCLUSIVE = 3
    INCOMPARABLE = 4
    ERROR = 5


@dataclass(frozen=True)
class GateDecision:
    """The gate's answer, and the verdicts for which it is not a pass, gravest first."""

    gate: Gate
    because: str
    verdicts: tuple[Verdict, ...] = ()
    accepted: Accepted = field(default_factory=Accepted)


_GRAVEST: Mapping[Outcome, Gate] = {
    Outcome.REGRESSED: Gate.REGRESSED,
    Outcome.ERROR: Gate.ERROR,
    Outcome.MISSING: Gate.INCOMPARABLE,
    Outcome.INCOMPARABLE: Gate.INCOMPARABLE,
    Outcome.INCONCLUSIVE: Gate.INCONCLUSIVE,
}
"""In this order: a regression is known, whatever else could not be told."""
JUDGED = (Outcome.UNCHANGED, Outcome.IMPROVED, *_GRAVEST)


def rule(report: Report, accepted: Accepted = Accepted()) -> GateDecision:  # noqa: B008 - it is frozen
    """Whether the run may pass: nothing does because something was missing.

    A case that is new passes beside cases that were compared; a run in which none was compared does not.

    Args:
        accepted: What people have agreed to; agreements that ended or are of no use fail.
    """
    decision = _decided(report, {id(verdict) for verdict, _ in accepted.verdicts})
    if accepted.problems and decision.gate is not Gate.REGRESSED:
        because = f"{decision.because}; {len(accepted.problems)} of what was accepted has to go"
        decision = replace(decision, gate=Gate.ERROR, because=because)
    return replace(decision, accepted=accepted)


def _decided(report: Report, agreed: Collection[int]) -> GateDecision:
    bad = [
        verdict
        for outcome in _GRAVEST
        for verdict in report.verdicts
        if verdict.outcome is outcome and id(verdict) not in agreed
    ]
    # What is open about a metric that need not be decided is told in the report and stops nobody.
    bad = [verdict for verdict in bad if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.metric in DECISIVE]
    if bad and bad[0].outcome is Outcome.REGRESSED:
        return GateDecision(Gate.REGRESSED, _counts(bad), tuple(bad))
    if report.interrupted:
        return GateDecision(
            Gate.ERROR, "the run was interrupted, so it is not known what the rest would have been", tuple(bad)
        )
    if bad:
        return GateDecision(_GRAVEST[bad[0].outcome], _counts(bad), tuple(bad))
    compared = [
        verdict for verdict in report.verdicts if verdict.outcome in JUDGED and not verdict.metric.startswith(CONTRACT)
    ]
    if not compared:
        measured = len({verdict.case.name for verdict in report.verdicts})
        there = f"{measured} measured, none compared" if measured else "nothing was measured"
        return GateDecision(Gate.INCOMPARABLE, f"{there}: run it with --baseline NAME or --against SPEC")
    return GateDecision(Gate.PASS, _counts([verdict for verdict in report.verdicts if verdict.metric in DECISIVE]))


def _counts(verdicts: Sequence[Verdict]) -> str:
    counts = {outcome: sum(verdict.outcome is outcome for verdict in verdicts) for outcome in Outcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
