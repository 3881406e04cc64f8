"""A bar that says what is being raced, what is known so far and how long it will take."""

from __future__ import annotations

import os
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfbench.race.race import Race
from tfbench.report.units import times
from tfbench.session.request import Step

_BAR = 12


class Display:
    """Draws the newest `Step` on a terminal, and nothing where there is none.

    Args:
        reporter: pytest's terminal reporter.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        # pytest captures what is written to standard output while a test runs: keep a way around it.
        self._file = os.fdopen(os.dup(reporter._tw._file.fileno()), "w") if reporter.isatty else None
        self._live: Live | None = None
        self._began = time.monotonic()

    def __call__(self, step: Step) -> None:
        if self._file is None:
            return
        if self._live is None:
            # The reporter's own newline would be captured; without its place it names the file again.
            self._file.write("\n")
            self._reporter.currentfspath = None
            console = Console(file=self._file, force_terminal=True, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._line(step), refresh=True)

    def clear(self) -> None:
        """Take the bar away, so that others can write."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close(self) -> None:
        """Take the bar away for good."""
        self.clear()
        if self._file is not None:
            self._file.close()

    def _line(self, step: Step) -> Text:
        filled = round(_BAR * step.done / step.total) if step.total else 0
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("━" * filled, "green").append("━" * (_BAR - filled), "dim")
        line.append(f" {step.done}/{step.total}{self._left(step)}  ").append(step.text.rpartition("::")[2], "bold")
        if step.race is not None:
            line.append(f"  {standing(step.race)}")
        return line

    def _left(self, step: Step) -> str:
        if not step.done:
            return ""
        seconds = (time.monotonic() - self._began) / step.done * (step.total - step.done)
        return f", {seconds / 60:.0f} min left" if seconds >= 90 else f", {seconds:.0f} s left"


def standing(race: Race) -> str:
    """A race in a few words: launches, and the interval of a comparison that goes on."""
    words = f"launch {len(race.launches)}/{race.policy.looks[-1]}"
    known = [(index, race.decisions[index]) for index in race.undecided if index in race.decisions]
    if known:
        index, decision = known[0]
        label = f" {race.entrants[index].case.label}" if len(race.entrants) > 2 else ""
        words += f",{label} {times(decision.comparison.ratio)}"
    return words
