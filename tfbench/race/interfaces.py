"""What a race needs: entrants, and a launcher that starts their processes. `process_launcher` has the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfbench.errors import BenchmarkError, BenchmarkSkipped, TfbenchError
from tfbench.model import Case, Plan
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.timer import Stopwatch
from tfbench.sides.spec import Side

Clock = Callable[[], float]
"""Seconds, monotonic."""
Failure = BenchmarkError | BenchmarkSkipped


@dataclass(frozen=True)
class Entrant:
    """A case on a side that takes part in a race."""

    case: Case
    side: Side


class EntrantFailed(TfbenchError):
    """One entrant of a launch broke or skipped itself, so the rounds of the launch do not count."""

    def __init__(self, entrant: int, failure: Failure) -> None:
        super().__init__(str(failure))
        self.entrant = entrant
        self.failure = failure


class OpenLaunch(Protocol):
    """One launch: a fresh process for each entrant."""

    @property
    def pair(self) -> int:
        """The pair of zygotes that its processes come from."""

    def prepare(
        self,
        entrants: Sequence[int],
        brief: bool = False,
        together: bool = True,
        ahead: OpenLaunch | None = None,
    ) -> dict[int, Prepared | Failure]:
        """Start and warm up the processes of these entrants, in this order.

        Args:
            brief: Do not warm them up: the launch is for the first call and the peak of memory.
            together: Have two sides make their first calls at once, which takes longer. Otherwise sides that could do
                so report none.
            ahead: The next launch of the same entrants. It makes its first calls at the same time where two processors
                are free for it, and then waits for its own ``prepare``.

        Returns:
            What each is ready with, or why it broke or cannot run here. The others can go on then.
        """

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        """Run all rounds and let the processes finish; return the seconds of an iteration for each entrant and round.

        Args:
            orders: For each round, a permutation of the prepared entrants.

        Raises:
            EntrantFailed: An entrant broke or skipped itself, during its rounds or after them.
            LaunchDisturbed: A disturbance from outside makes the times useless.
        """

    @property
    def preempted(self) -> Mapping[int, Mapping[int, float]]:
        """Entrant -> round during which its processor was taken from it -> processor seconds of an iteration."""

    def kill(self) -> None:
        """End all processes at once. It never raises."""


class Launcher(Protocol):
    """Opens launches."""

    @property
    def stopwatch(self) -> Stopwatch:
        """The stopwatch of the run, which counts the phases of its launches."""

    def start_pairs(self, entrants: Sequence[Entrant], pairs: Sequence[int]) -> None:
        """Start the missing zygotes of these pairs, as many at a time as there are processors.

        Raises:
            SideError: A zygote does not start.
        """

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        """Open a launch whose processes come from this pair of zygotes."""

    def policy_of(self, policy: Policy, entrants: Sequence[Entrant]) -> Policy:
        """Return the policy for a race of these entrants, which needs fewer pairs if they have common ancestors."""
