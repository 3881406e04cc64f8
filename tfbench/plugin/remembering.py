"""Record a run for later runs, and tell how its changes become the baseline."""

from __future__ import annotations

from pathlib import Path

from tfbench.errors import TfbenchError
from tfbench.gate.baseline_store import BaselineStore
from tfbench.model import Outcome
from tfbench.session.session import Session
from tfbench.storage.layout import Layout


def remember(session: Session, root: Path) -> list[str]:
    """Record the run in its history and as a candidate for its baseline; return notes for the user."""
    try:
        Layout(session.request.folder).write_gitignore()
        candidate = session.remember()
    except (TfbenchError, OSError) as error:
        return [f"the measurements of this run could not be recorded: {error}"]
    changed = (Outcome.REGRESSED, Outcome.IMPROVED)
    if candidate is None or not any(verdict.outcome in changed for verdict in session.report().verdicts):
        return []
    return [f"if the change is intended, {_how_to_accept(session, root, candidate.stem)}"]


def _how_to_accept(session: Session, root: Path, baseline: str) -> str:
    """Return the command that accepts this run, or what to run first."""
    left_out = BaselineStore(root).left_out(baseline)
    gone = {verdict.case.name for verdict in session.missing()}
    if unmeasured := [name for name in left_out if name not in gone]:
        why = f"this run did not measure {len(unmeasured)} of its cases"
        return f"run without -k to be able to update the baseline {baseline!r}: {why}"
    drop = " --drop-missing" * bool(left_out)
    return f"update the baseline: tfbench baseline accept {baseline} --reason '…'{drop}"
