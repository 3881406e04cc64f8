"""Report the cases that the other side has and the run lacks."""

from __future__ import annotations

from collections.abc import Sequence

from tfbench.model import Case, Outcome, Reason, ReasonCode, Verdict
from tfbench.session.request import RunRequest


def missing(request: RunRequest, gone: Sequence[Case], message: str) -> list[Verdict]:
    """Return a verdict for each missing case that this run was expected to have, sorted by name.

    Args:
        gone: Cases of the other side that pytest did not collect here.
        message: Where each case was last seen.
    """
    shard, reason = request.shard, Reason(ReasonCode.NOT_COLLECTED, message)
    ours = [case for case in gone if _below(case.name.partition("::")[0], request.expected)]
    ours = [case for case in ours if shard is None or shard.has(case)]
    return [Verdict(case, Outcome.MISSING, reason) for case in sorted(ours, key=lambda one: one.name)]


def _below(file: str, paths: tuple[str, ...] | None) -> bool:
    return paths is None or any(path in (".", file) or file.startswith(f"{path}/") for path in paths)
