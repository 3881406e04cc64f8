"""The races of a run, each from its entrants to what became of its cases."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from tfbench.model import Case, Reason, Verdict
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.session.request import CaseResult, RunRequest
from tfbench.session.results import claimed, failed, new, of_sides, of_variant
from tfbench.sides.side import Side

Tell = Callable[[str, Race | None], None]
"""Called with what is being raced, and how far it is."""


class Races:
    """Variants among each other, two sides, or one alone.

    Args:
        sharing: How many cases share the run's alpha.
        partly: Takes what is known of a race when it is interrupted.
    """

    def __init__(
        self,
        request: RunRequest,
        launcher: ProcessLauncher,
        contender: Side,
        sharing: Callable[[], int],
        tell: Tell,
        partly: Callable[[list[CaseResult]], None],
    ) -> None:
        self._policy = request.policy
        self._launcher = launcher
        self._contender = contender
        self._sharing = sharing
        self._tell = tell
        self._partly = partly
        self._rng = random.Random(request.seed)

    def variants(self, group: Sequence[Case]) -> list[CaseResult]:
        """The variants of a workload, each against the reference, which comes first."""
        ordered = sorted(group, key=lambda case: not case.reference)
        race = self._race(ordered)
        try:
            self._run(race, group[0].workload)
        except KeyboardInterrupt:
            race.conclude()
            self._partly([of_variant(race, index) for index in range(len(ordered)) if race.runs(index)])
            raise
        return [of_variant(race, index) for index in range(len(ordered))]

    def sides(self, case: Case, rival: Side, note: str = "", there: Case | None = None) -> CaseResult:
        """Two sides of a case.

        Args:
            note: What else is to be said in the reason.
            there: The case on the other side, if it has another name.
        """
        entrants = [Entrant(there or case, rival), Entrant(case, self._contender)]
        confirmed_race = ConfirmedRace(
            entrants, self._launcher, self._policy, self._sharing(), time.perf_counter, self._rng
        )
        try:
            self._run(confirmed_race, case.name)
        except KeyboardInterrupt:
            if confirmed_race.decision is not None:
                self._partly([of_sides(case, confirmed_race, note)])
            raise
        return of_sides(case, confirmed_race, note)

    def alone(self, case: Case, why: Reason) -> CaseResult:
        """A case that has nobody to race against."""
        race = self._race([case])
        self._run(race, case.name)
        return failed(case, race.failures[0]) if race.failures else new(case, race, 0, why)

    def claims(self, case: Case, others: Sequence[Case]) -> list[Verdict]:
        """The rows of what a case claims of its time and those of other variants."""
        race = self._race([*others, case])
        self._run(race, f"{case.workload}: {case.label} against other variants")
        return claimed(race, len(others))

    def _race(self, cases: Sequence[Case]) -> Race:
        config = RaceConfig(self._sharing(), range(self._policy.zygotes))
        entrants = [Entrant(case, self._contender) for case in cases]
        return Race(entrants, self._launcher, self._policy, config, time.perf_counter, self._rng)

    def _run(self, race: Race | ConfirmedRace, text: str) -> None:
        self._tell(text, None)
        race.run(lambda now: self._tell(text, now))
