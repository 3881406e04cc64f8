"""Store the trials of a calibration: verdicts on code with a known slowdown, one line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tfbench.errors import ReportError

RACED = "race"
"""The method of trials that tfbench decided by a race."""
SAVED = ("saved median", "saved mean")
"""Methods of pytest-benchmark: a saved run against a saved run, with a limit of 5% on the statistic."""


@dataclass(frozen=True)
class CalibrationTrial:
    """A verdict and its cost.

    ``slowdown`` is the fraction of extra work that the contender really did, 0 for unchanged code.
    ``effects`` are the log-ratios of the launches, and ``pairs`` their pairs of zygotes.
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
    """A file of trials. It grows by one line per trial, so that a calibration can be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[CalibrationTrial]:
        """Read every trial. An incomplete last line is ignored.

        Raises:
            ReportError: Another line is not a trial.
        """
        lines = self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else []
        trials = []
        for number, line in enumerate(lines[:-1], start=1):  # text after the last newline is incomplete
            try:
                fields = json.loads(line)
                lists = {key: tuple(fields[key]) for key in ("effects", "pairs")}
                trials.append(CalibrationTrial(**{**fields, **lists}))
            except (ValueError, TypeError, KeyError) as error:
                raise ReportError(f"{self.path}, line {number}: not a trial ({error}); move the file away") from error
        return trials

    def append(self, *trials: CalibrationTrial) -> None:
        """Append trials to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one), allow_nan=False, separators=(",", ":")) + "\n" for one in trials)
