"""What a race needs from the outside: something that opens launches. Real ones are in `process_launcher`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfbench.model import JSON, Case, Plan
from tfbench.sides.side import Side

Clock = Callable[[], float]
"""Seconds, monotonic."""


@dataclass(frozen=True)
class Entrant:
    """A case on a side."""

    case: Case
    side: Side


@dataclass(frozen=True)
class Prepared:
    """A process that is warm and waits for its first turn."""

    iteration: float
    """Seconds of one iteration, as the warm-up saw it."""
    facts: JSON
    on_device: bool = False
    """Whether steps only hand their work over, to be waited for at the end of a block."""


class OpenLaunch(Protocol):
    """Fresh processes of one launch, one for each entrant."""

    def prepare(self, entrant: int) -> Prepared:
        """Start and warm up this entrant's process; one at a time.

        Raises:
            BenchmarkError: The benchmark broke; the others can go on.
            BenchmarkSkipped: It cannot run here.
        """

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        """Run the rounds, each a permutation of the prepared entrants; seconds an iteration for each.

        Raises:
            BenchmarkError: A process died or hung; its ``entrant`` says whose.
            LaunchDisturbed: Something from outside was at work meanwhile: the launch does not count.
        """

    def close(self) -> None:
        """Let the processes finish and wait for them.

        Raises:
            BenchmarkError: A benchmark failed after it had been timed.
        """

    def kill(self) -> None:
        """End the processes at once; never raises."""


class Launcher(Protocol):
    """Opens launches."""

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        """A launch whose processes come from this pair of zygotes."""
