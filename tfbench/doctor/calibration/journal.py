"""Store the trials of a calibration: verdicts on code with a known slowdown, one line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tfbench.errors import ReportError
from tfbench.fs import read_text
from tfbench.model import Outcome, Ratio
from tfbench.untrusted import a_list, a_number, a_text, an_integer, an_object, brief, described, parse_json

RACED = "race"
"""The method of trials that tfbench decided by a race."""
SAVED = ("saved median", "saved mean")
"""Methods of pytest-benchmark: a saved run against a saved run, with a limit of 5% on the statistic."""


@dataclass(frozen=True)
class CalibrationTrial:
    """A verdict and its cost.

    ``slowdown`` is the fraction of extra work that the contender really did, 0 for unchanged code.
    ``effects`` are the log-ratios of the launches, ``pairs`` their pairs of zygotes, and ``errors`` the standard errors of
    the log-ratios. ``intervals`` are those at the end of the race and, after a change, of the race that confirms it.
    Journals of earlier versions have no errors and no intervals.
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
    errors: tuple[float, ...] = ()
    intervals: tuple[Ratio, ...] = ()
    slow_calls: str = ""
    """Kind of the slow calls that the contender really made, such as ``5% x10``; empty without any."""

    @property
    def same(self) -> bool:
        """Whether both sides ran the same code."""
        return self.slowdown == 0 and not self.slow_calls

    @property
    def holds_truth(self) -> bool:
        """Whether all intervals hold the true ratio. A second race does not make up for an interval that missed it."""
        return all(interval.low <= 1 + self.slowdown <= interval.high for interval in self.intervals)


def slowdown_text(slowdown: float) -> str:
    """Format an injected slowdown, however small: ``0.5%``, ``10%``."""
    return f"{100 * slowdown:g}%"


class Journal:
    """A file of trials. It grows by one line per trial, so that a calibration can be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[CalibrationTrial]:
        """Read every trial. An incomplete last line is ignored.

        Raises:
            ReportError: Another line is not a trial.
        """
        lines = read_text(self.path).split("\n") if self.path.exists() else []
        trials = []
        for number, line in enumerate(lines[:-1], start=1):  # text after the last newline is incomplete
            try:
                trials.append(_parsed(parse_json(line)))
            except (ValueError, KeyError) as error:
                text = f"{brief(self.path)}, line {number}: not a trial ({described(error)}); move the file away"
                raise ReportError(text) from None
        return trials

    def append(self, *trials: CalibrationTrial) -> None:
        """Append trials to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one), allow_nan=False, separators=(",", ":")) + "\n" for one in trials)


def _parsed(content: Any) -> CalibrationTrial:
    found = an_object(content, "the line")
    if unknown := set(found) - {field.name for field in fields(CalibrationTrial)}:
        raise ValueError(f"unknown field {brief(min(unknown))!r}")
    return CalibrationTrial(
        method=a_text(found["method"], "method"),
        policy=a_text(found["policy"], "policy"),
        workload=a_text(found["workload"], "workload"),
        slowdown=a_number(found["slowdown"], "slowdown", 0, 100),
        outcome=Outcome(a_text(found["outcome"], "outcome")).value,
        seconds=a_number(found["seconds"], "seconds", 0, 1e9),
        launches=an_integer(found["launches"], "launches", 0),
        run=an_integer(found["run"], "run", 0),
        effects=tuple(a_number(one, "effects") for one in a_list(found["effects"], "effects")),
        pairs=tuple(an_integer(one, "pairs", 0) for one in a_list(found["pairs"], "pairs")),
        errors=tuple(a_number(one, "errors", 0) for one in a_list(found.get("errors", []), "errors")),
        slow_calls=a_text(found.get("slow_calls", ""), "slow_calls"),
        intervals=tuple(_interval(one) for one in a_list(found.get("intervals", []), "intervals")),
    )


def _interval(content: Any) -> Ratio:
    found = an_object(content, "an interval")
    center, low, high = (a_number(found[name], name, 0) for name in ("center", "low", "high"))
    if not low <= high:
        raise ValueError(f"an interval from {low:g} to {high:g}")
    return Ratio(center, low, high, a_number(found["confidence"], "confidence", 0, 1))
