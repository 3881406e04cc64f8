"""Show a progress bar with the current race, its result so far and the remaining time."""

from __future__ import annotations

import os
import time
from typing import Any

from rich.live import Live
from rich.text import Text

from tfbench.race.race import Race
from tfbench.report.screen import Screen
from tfbench.report.units import times
from tfbench.session.request import RunProgress

_BAR = 12


class Display:
    """Draws the latest `RunProgress` on a terminal; draws nothing without a terminal.

    Args:
        reporter: pytest's terminal reporter, ``None`` under ``-p no:terminal``.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        # pytest captures standard output while a test runs, so write to a duplicate of the terminal.
        self._file = os.fdopen(os.dup(reporter._tw._file.fileno()), "w") if reporter and reporter.isatty else None
        self._live: Live | None = None
        self._began = time.monotonic()

    def __call__(self, progress: RunProgress) -> None:
        if self._file is None:
            return
        if self._live is None:
            # pytest would capture a newline of the reporter. Without a current file it prints the file name again.
            self._file.write("\n")
            self._reporter.currentfspath = None
            console = Screen(file=self._file, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._line(progress), refresh=True)

    def clear(self) -> None:
        """Remove the bar until the next progress, so that pytest can print."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close(self) -> None:
        """Remove the bar, and release the terminal."""
        self.clear()
        if self._file is not None:
            self._file.close()

    def _line(self, progress: RunProgress) -> Text:
        filled = round(_BAR * progress.done / progress.total) if progress.total else 0
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("━" * filled, "green").append("━" * (_BAR - filled), "dim")
        line.append(f" {progress.done}/{progress.total}{self._left(progress)}  ").append(
            progress.text.rpartition("::")[2], "bold"
        )
        if progress.race is not None:
            line.append(f"  {race_summary(progress.race)}")
        return line

    def _left(self, progress: RunProgress) -> str:
        if not progress.done:
            return ""
        seconds = (time.monotonic() - self._began) / progress.done * (progress.total - progress.done)
        return f", {seconds / 60:.0f} min left" if seconds >= 90 else f", {seconds:.0f} s left"


def race_summary(race: Race) -> str:
    """Summarise a race: its launches, and the interval of the first undecided comparison."""
    words = f"launch {len(race.all_launches)}/{race.policy.looks[-1]}"
    known = [(index, race.decisions[index]) for index in race.undecided if index in race.decisions]
    if known:
        index, decision = known[0]
        label = f" {race.entrants[index].case.label}" if len(race.entrants) > 2 else ""
        words += f",{label} {times(decision.comparison.ratio)}"
    return words
