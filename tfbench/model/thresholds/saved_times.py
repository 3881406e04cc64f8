"""The thresholds of saved times, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SavedTimesThresholds:
    """When the saved times of a baseline settle a case without a race."""

    floor_launches: int = 6
    """Launches whose fastest block represents a session. With six, the floor of unchanged code moved by 0.6 to 0.8%
    between sessions, and medians by 5 to 26%."""
    sessions: int = 5
    """Sessions of a case that are needed to judge a saved time by their spread. With fewer, a t interval is more than
    five deviations wide and decides nothing."""
    screen_tolerance: float = 0.05
    """`--replay suspects` does not race a case whose saved times prove a smaller slowdown than this. The spread between
    sessions rarely proves less, and undecided cases are raced."""
