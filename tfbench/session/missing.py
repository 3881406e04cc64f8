"""Report the cases that the other side has and the run lacks."""

from __future__ import annotations

from collections.abc import Sequence

from tfbench.model import Case, Outcome, Reason, ReasonCode, Verdict
from tfbench.session.request import RunRequest


def missing(request: RunRequest, gone: Sequence[Case], deleted: str, deselected: str) -> list[Verdict]:
    """Return a verdict for each missing case that this run was expected to have, sorted by name.

    Args:
        gone: Cases of the other side that this run does not measure.
        deleted: Where a case was last seen, if pytest does not collect it here.
        deselected: Why a case is expected that pytest collects here, and then deselects.
    """
    shard = request.shard
    ours = [case for case in gone if request.selection.has(case.name) and (shard is None or shard.has(case))]
    return [
        Verdict(
            case,
            Outcome.MISSING,
            Reason(ReasonCode.DESELECTED_HERE, deselected)
            if case.name in request.collected
            else Reason(ReasonCode.NOT_COLLECTED, deleted),
        )
        for case in sorted(ours, key=lambda one: one.name)
    ]
