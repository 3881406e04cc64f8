"""Two sides of a case: a race, and where it says `regressed` a second one that shares no data with it.

The first call of the step and the peak of memory are judged from the same launches, of which each gives one sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tfbench.metrics.sampled import first_call, memory
from tfbench.model import Outcome, Reason, ReasonCode, Run, Verdict
from tfbench.policy import Policy
from tfbench.race.interfaces import Clock, Entrant, Launcher
from tfbench.race.launch import Failure
from tfbench.race.race import Race, RaceConfig
from tfbench.stats.verdict import Decision

Judged = TypeVar("Judged", Decision, Verdict)


class ConfirmedRace:
    """From two sides to a decision that may fail a test.

    The second race draws from zygotes of its own, numbered behind those of the first, so that the
    luck of a pair cannot speak twice.

    Args:
        entrants: Baseline and contender of one case.
        cases: Cases of the whole run, which share its alpha.
        confirm: Whether the policy's confirmation is wanted; without it the levels of a stage stay as they are.
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        launcher: Launcher,
        policy: Policy,
        cases: int,
        clock: Clock,
        rng: random.Random,
        confirm: bool = True,
    ) -> None:
        zygotes = policy.zygotes
        self.decision: Decision | None = None
        self.first_call: Decision | None = None
        self.memory: Verdict | None = None
        self.interrupted = False
        self._first = Race(entrants, launcher, policy, RaceConfig(cases, range(zygotes)), clock, rng)
        self._second = Race(entrants, launcher, policy, RaceConfig(cases, range(zygotes, 2 * zygotes)), clock, rng)
        self._confirm = policy.confirm and confirm

    def run(self, progress: Callable[[Race], None] = lambda race: None) -> None:
        """Race, and confirm where that is needed. Cut short, it decides from what there is.

        Args:
            progress: Called after every launch.
        """
        try:
            self._first.run(progress)
            self.decision, self.first_call = self._first.decisions.get(1), self._first_call_of(self._first)
            self.memory = self._memory_of(self._first)
            suspects = [one for one in (self.decision, self.first_call, self.memory) if _is_regressed(one)]
            if self._confirm and suspects and not self.failures:
                self._second.run(progress)
                if _is_regressed(self.decision):
                    self.decision = self._joined(self.decision, self._second.decisions.get(1))
                if _is_regressed(self.first_call):
                    self.first_call = self._joined(self.first_call, self._first_call_of(self._second))
                if _is_regressed(self.memory):
                    self.memory = self._joined(self.memory, self._memory_of(self._second))
        except KeyboardInterrupt:
            self.interrupted = True
            self._first.conclude()
            self.decision = self._unconfirmed(self._first.decisions.get(1))
            self.first_call = self._unconfirmed(self._first_call_of(self._first))
            self.memory = self._unconfirmed(self._memory_of(self._first))
            raise

    def _memory_of(self, race: Race) -> Verdict | None:
        facts = [[run.facts for run in race.runs(side)] for side in (0, 1)]
        return memory(race.entrants[1].case, facts[0], facts[1], race.policy) if all(facts) else None

    def _first_call_of(self, race: Race) -> Decision | None:
        both = [launch for launch in race.launches if None not in launch.runs]
        facts = [[run.facts for launch in both if (run := launch.runs[side]) is not None] for side in (0, 1)]
        return first_call(facts[0], facts[1], [launch.pair for launch in both], race.policy, race.config.cases)

    @staticmethod
    def _joined(first: Judged | None, second: Judged | None) -> Judged | None:
        if first is None or second is None:
            return None
        if second.outcome is Outcome.REGRESSED:
            text = f"{second.reason.message}; found twice, the first time as {first.reason.message}"
            return replace(second, reason=Reason(second.reason.code, text))
        text = f"a first race said: {first.reason.message}; fresh launches did not confirm it: {second.reason.message}"
        return replace(second, outcome=Outcome.INCONCLUSIVE, reason=Reason(ReasonCode.NOT_CONFIRMED, text))

    def _unconfirmed(self, decision: Judged | None) -> Judged | None:
        if decision is None or decision.outcome is not Outcome.REGRESSED or not self._confirm:
            return decision
        text = f"the run was interrupted before this was confirmed: {decision.reason.message}"
        return replace(decision, outcome=Outcome.INCONCLUSIVE, reason=Reason(ReasonCode.INTERRUPTED, text))

    # What it took

    @property
    def races(self) -> list[Race]:
        """The race, and the second one if there was any."""
        second = self._second
        return [self._first, *([second] if second.launches or second.failures or second.disturbed else [])]

    @property
    def abort_reason(self) -> str:
        """Why one of the races was given up, ``""`` if none was."""
        return next((race.abort_reason for race in self.races if race.abort_reason), "")

    @property
    def failures(self) -> dict[int, Failure]:
        """What broke, by entrant."""
        return {entrant: failure for race in self.races for entrant, failure in race.failures.items()}

    def runs(self, entrant: int) -> list[Run]:
        """What this entrant gave, launch by launch."""
        return [run for race in self.races for run in race.runs(entrant)]

    @property
    def launches(self) -> int:
        return sum(len(race.launches) for race in self.races)

    @property
    def rounds(self) -> int:
        """Rounds of the contender."""
        return sum(race.rounds(1) for race in self.races)

    @property
    def wall_seconds(self) -> float:
        """What the launches took, the start of zygotes left out."""
        return sum(race.wall_seconds for race in self.races)


def _is_regressed(decision: Decision | Verdict | None) -> bool:
    return decision is not None and decision.outcome is Outcome.REGRESSED
