"""Read how often the gate was wrong about unchanged code on this machine, if anybody has measured it."""

from __future__ import annotations

from pathlib import Path

from tfbench.doctor.calibration.journal import RACED, Journal
from tfbench.doctor.calibration.summary import tally
from tfbench.errors import ReportError
from tfbench.model import Rate


def measured_false_alarms(folder: Path, policy: str, way: str) -> Rate | None:
    """Return the rate of changes among verdicts on unchanged code; ``None`` if it was not measured here.

    Args:
        folder: Folder of the journals of ``tfbench calibrate``.
        policy: Name of the policy whose verdicts count.
        way: ``sides`` or ``variants``: the entrants of the races.
    """
    if not policy.isalnum():
        return None
    try:
        trials = Journal(folder / f"{policy}{'-variants' * (way == 'variants')}.jsonl").read()
    except (ReportError, OSError):
        return None
    found = tally("", RACED, [one for one in trials if one.method == RACED]).false_alarms
    return found if found.trials else None
