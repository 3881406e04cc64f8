"""One verdict on code whose truth is known, and how it is kept: a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tfbench.errors import ReportError

RACED = "race"
"""The method of a trial that tfbench decided."""
SAVED = ("saved median", "saved mean")
"""pytest-benchmark's rule: a saved run against a saved run, the statistic 5% larger."""


@dataclass(frozen=True)
class CalibrationTrial:
    """A verdict and what it cost.

    ``slowdown`` is the fraction of extra work that the contender really did, 0 for the same code.
    ``effects`` are the launches' log-ratios and ``pairs`` the zygotes that they came from.
    """

    method: str
    policy: str
    workload: str
    slowdown: float
    outcome: str
    seconds: float
    launches: int
    run: int
    effects: tuple[float, ...] = ()
    pairs: tuple[int, ...] = ()


class Journal:
    """The trials of a calibration, in a file that grows by a line a trial, so that it can be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[CalibrationTrial]:
        """Every trial so far; a last line that was cut off is left out.

        Raises:
            ReportError: Another line is not a trial.
        """
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").split("\n")
        trials = []
        for number, line in enumerate(lines[:-1], start=1):  # behind the last newline nothing is whole
            try:
                fields = json.loads(line)
                trials.append(
                    CalibrationTrial(**{**fields, "effects": tuple(fields["effects"]), "pairs": tuple(fields["pairs"])})
                )
            except (ValueError, TypeError, KeyError) as error:
                raise ReportError(f"{self.path}, line {number}: not a trial ({error}); move the file away") from error
        return trials

    def append(self, trials: Iterable[CalibrationTrial]) -> None:
        """Add trials; what is there is not written again."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(asdict(trial), allow_nan=False, separators=(",", ":")) + "\n" for trial in trials)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
