"""Decide from the verdicts of a run whether a change may pass."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfbench.gate.accepted import Accepted
from tfbench.metrics.catalog import DECISIVE
from tfbench.model import TIME, Outcome, ReasonCode, Report, Verdict
from tfbench.policy import Policy
from tfbench.report.summary import SAME_CODE


class Gate(enum.IntEnum):
    """The answer of the gate, as the exit code of ``tfbench gate``. 2 remains the code of a wrong command line."""

    PASS = 0
    REGRESSED = 1
    INCONCLUSIVE = 3
    INCOMPARABLE = 4
    ERROR = 5


@dataclass(frozen=True)
class GateDecision:
    """The answer of the gate, and the verdicts that prevent a pass, most severe first."""

    gate: Gate
    because: str
    verdicts: tuple[Verdict, ...] = ()
    accepted: Accepted = field(default_factory=Accepted)


_BY_SEVERITY: Mapping[Outcome, Gate] = {
    Outcome.REGRESSED: Gate.REGRESSED,
    Outcome.ERROR: Gate.ERROR,
    Outcome.MISSING: Gate.INCOMPARABLE,
    Outcome.INCOMPARABLE: Gate.INCOMPARABLE,
    Outcome.INCONCLUSIVE: Gate.INCONCLUSIVE,
}
"""Outcomes that prevent a pass, most severe first. A regression is certain, whatever the other cases are."""
COMPARED = (Outcome.UNCHANGED, Outcome.IMPROVED, *_BY_SEVERITY)


def rule(report: Report, accepted: Accepted | None = None, min_compared: float = Policy().min_compared) -> GateDecision:
    """Decide whether the run may pass. Missing data never counts as a pass.

    A new case passes if other cases were compared, and so does a case that was not raced because both sides run the same
    code. A run without any comparison does not pass.

    Args:
        accepted: The accepted regressions. An acceptance that has expired or is unused fails the gate.
        min_compared: Least share of the cases whose times must have been compared.
    """
    accepted = accepted or Accepted()
    decision = _without(report, {_key(verdict) for verdict, _ in accepted.verdicts}, min_compared)
    if accepted.problems and decision.gate is not Gate.REGRESSED:
        because = f"{decision.because}; {len(accepted.problems)} expired or unused acceptances"
        decision = replace(decision, gate=Gate.ERROR, because=because)
    return replace(decision, accepted=accepted)


_Key = tuple[str, str]


def _key(verdict: Verdict) -> _Key:
    """Identify a verdict by case and metric, of which a report has one row."""
    return verdict.case.name, verdict.metric


def _without(report: Report, accepted: Collection[_Key], min_compared: float) -> GateDecision:
    bad = [
        verdict
        for outcome in _BY_SEVERITY
        for verdict in report.verdicts
        if verdict.outcome is outcome and _key(verdict) not in accepted
        if outcome is not Outcome.INCONCLUSIVE or verdict.metric in DECISIVE
    ]
    suite = _BY_SEVERITY.get(report.suite.outcome, Gate.PASS) if report.suite else Gate.PASS
    because = f"the suite is {report.suite.outcome}: {report.suite.reason.message}" if report.suite else ""
    if bad and bad[0].outcome is Outcome.REGRESSED:
        return GateDecision(Gate.REGRESSED, _counts(bad), tuple(bad))
    if suite is Gate.REGRESSED:
        return GateDecision(suite, because, tuple(bad))
    if gap := _gap(report):
        return GateDecision(Gate.ERROR, gap, tuple(bad))
    if bad and _BY_SEVERITY[bad[0].outcome] >= suite:
        return GateDecision(_BY_SEVERITY[bad[0].outcome], _counts(bad), tuple(bad))
    if suite is not Gate.PASS:
        return GateDecision(suite, because, tuple(bad))
    times = [verdict for verdict in report.verdicts if verdict.metric == TIME]
    compared = [verdict for verdict in times if verdict.outcome in COMPARED]
    same = [verdict for verdict in times if verdict.reason.code == ReasonCode.SAME_CODE]
    skipped = f", {len(report.skips)} skipped" if report.skips else ""
    if not compared:
        cases = f"{len(times)} cases measured, none compared" if times else "no case was measured"
        return GateDecision(Gate.INCOMPARABLE, f"{cases}{skipped}: run with --baseline NAME or --against SPEC")
    if len(compared) + len(same) < min_compared * len(report.due):
        few = f"only {len(compared)} of {len(report.due)} cases were compared ({_counts(times)}{skipped})"
        return GateDecision(Gate.INCOMPARABLE, f"{few}; if that is meant, lower --min-compared {min_compared:g}")
    return GateDecision(Gate.PASS, _counts(times) + skipped)


def _gap(report: Report) -> str:
    """Return why the report does not show the whole suite, ``""`` if it does."""
    if report.interrupted:
        return "the run was interrupted, so its other cases are unknown"
    if report.shard is not None:
        part = f"{report.shard['index']} of {report.shard['of']}"
        return f"the report is shard {part} alone; combine the shards with tfbench merge"
    return f"the report cannot be used: {report.gap}" if report.gap else ""


def _counts(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(_word(verdict) for verdict in verdicts)
    return ", ".join(f"{counts[word]} {word}" for word in (*map(str, Outcome), SAME_CODE) if counts[word])


def _word(verdict: Verdict) -> str:
    return SAME_CODE if verdict.reason.code == ReasonCode.SAME_CODE else str(verdict.outcome)
