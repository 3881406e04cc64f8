"""Cases that the other side has and a run ought to have, and has not."""

from __future__ import annotations

from tfbench.model import Outcome, Reason, ReasonCode, Verdict
from tfbench.session.request import RunRequest
from tfbench.sides.counterparts import Counterparts
from tfbench.storage.baselines import Baseline


def missing(request: RunRequest, saved: Baseline | None, there: Counterparts | None) -> list[Verdict]:
    """A verdict on each of them.

    Args:
        saved: The baseline, if one is gated against.
        there: The cases of another source tree that is raced live.
    """
    if saved is not None:
        text = f"the baseline {saved.name!r} has it and the suite has not: was it deleted or renamed?"
        gone = [sample.case for name, sample in saved.samples.items() if name not in request.collected]
    elif there is not None:
        text = f"{request.against} has it and the suite has not: was it deleted, or renamed and changed?"
        gone = there.gone(request.collected)
    else:
        return []
    shard = request.shard
    ours = [case for case in gone if _below(case.name.partition("::")[0], request.expected)]
    ours = [case for case in ours if shard is None or shard.has(case)]
    reason = Reason(ReasonCode.NOT_COLLECTED, text)
    return [Verdict(case, Outcome.MISSING, reason) for case in sorted(ours, key=lambda one: one.name)]


def _below(file: str, paths: tuple[str, ...] | None) -> bool:
    return paths is None or any(path in (".", file) or file.startswith(f"{path}/") for path in paths)
