"""Show how far a fleet is: a line that is redrawn in a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfbench.fleet.controller import Status, seconds_left

_EVERY = 30.0
"""Seconds between two lines where the output is no terminal, such as the log of a CI job."""


def span(seconds: float) -> str:
    """Format a time of seconds to days: ``45 s``, ``12 min``, ``3.4 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def line(status: Status, left: float | None) -> str:
    """Describe a status in one line."""
    parts = [f"{status.done} of {status.jobs} jobs", f"{status.running} running"]
    parts.append(f"{status.cases_done} of {status.cases} cases")
    parts += [f"{count} {outcome}" for outcome, count in sorted(status.outcomes.items()) if count]
    parts += [f"{len(status.lost)} jobs lost"] if status.lost else []
    parts += [f"{len(status.aside)} machines set aside"] if status.aside else []
    if left is not None and status.done + len(status.lost) < status.jobs:
        parts.append(f"about {span(left)} left")
    return ", ".join(parts) + (f" ({status.note})" if status.note else "")


class FleetProgress:
    """A callable for `Fleet`. Use it as a context manager."""

    def __init__(self, console: Console, slots: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._slots, self._clock = console, slots, clock
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._began: float | None = None
        self._before = 0.0
        self._last = -_EVERY
        self._said: set[str] = set()

    def __enter__(self) -> FleetProgress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, status: Status) -> None:
        now = self._clock()
        if self._began is None:
            self._began, self._before = now, status.seconds_done
        for host, why in status.aside.items():
            if host not in self._said:
                self._said.add(host)
                self._console.print(Text(f"{host} was set aside: {why}", "yellow"))
        text = line(status, seconds_left(status, self._slots(), now - self._began, self._before))
        if self._live:
            self._live.update(Text(text), refresh=True)
        elif now - self._last >= _EVERY or status.done + len(status.lost) == status.jobs:
            self._last = now
            self._console.print(Text(text))
