"""Run the races of a session, and turn each race into results of its cases."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tfbench.metrics import exact
from tfbench.model import TIME, Case, Outcome, Ratio, Reason, Verdict
from tfbench.race.confirmed import ConfirmedRace, interrupted, twice
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig, pairs_of
from tfbench.race.timer import Phase
from tfbench.session.request import CaseResult, RunProgress, RunRequest
from tfbench.session.results import NO_BASELINE, claimed, failed, new, of_sides, of_variant
from tfbench.sides.spec import Side


@dataclass
class Races:
    """Race the variants of a workload, two sides of a case, or one case alone. ``sharing`` cases share an alpha."""

    request: RunRequest
    launcher: ProcessLauncher
    contender: Side
    sharing: int
    report: RunProgress
    _raced: Counter[str] = field(default_factory=Counter, init=False)
    """Name of a case -> its races so far."""
    _judged: set[str] = field(default_factory=set, init=False)
    """Benchmark files whose imports have been judged."""

    def variants(self, group: Sequence[Case]) -> Iterator[CaseResult]:
        """Race each variant of a workload against the reference variant, which is the first entrant.

        After Ctrl-C the results so far are partial.
        """
        race, waiting = self._race(sorted(group, key=lambda case: not case.reference)), list[CaseResult]()
        try:
            self._run(race, group[0].workload)
            waiting = [of_variant(race, index) for index in range(len(group))]
            while waiting:
                rows = self._confirmed(waiting[0].case, waiting[0].metrics, group)
                yield replace(waiting.pop(0), metrics=rows)
        except KeyboardInterrupt:
            race.conclude()
            for result in waiting or (of_variant(race, index) for index in range(len(group)) if race.runs(index)):
                rows = tuple(interrupted(row) if row.outcome is Outcome.REGRESSED else row for row in result.metrics)
                yield replace(result, metrics=rows)
            raise

    def sides(
        self,
        case: Case,
        baseline: Side,
        there: Case | None = None,
        *notes: Reason | None,
        repair: Callable[[CaseResult], Iterable[CaseResult] | None] = lambda broken: None,
    ) -> Iterator[CaseResult]:
        """Race two sides of a case, and confirm a regression. The reason of the verdict gets the notes.

        Args:
            there: The case on the baseline side, if its thresholds differ there.
            repair: Returns other results for a case that breaks on the baseline side alone, or ``None``.
        """
        entrants = [Entrant(there or case, baseline), Entrant(case, self.contender)]
        policy = self.launcher.policy_of(self.request.policy, entrants)
        race = ConfirmedRace(entrants, self.launcher, policy, self.sharing, time.perf_counter, self._draws(case.name))
        try:
            self._run(race, case.name)
        except KeyboardInterrupt:
            if race.decision is not None:
                yield of_sides(case, race, *notes)
            raise
        result = of_sides(case, race, *notes)
        if race.only_baseline_breaks:
            yield from repair(result) or self._repaired(result)
        else:
            yield result

    def _repaired(self, broken: CaseResult) -> list[CaseResult]:
        """Measure a case that breaks on the baseline side: it is incomparable if it works here, and an error otherwise."""
        (here,) = self.alone(broken.case, NO_BASELINE)
        works = here.verdict and here.verdict.outcome is Outcome.NEW
        if not works or not broken.verdict:
            return [here]
        return [replace(broken, verdict=broken.verdict.changed(outcome=Outcome.INCOMPARABLE))]

    def again(self, case: Case, baseline: Entrant, confirms: bool) -> Ratio | None:
        """Race two sides of a case once more, in the launches of a first look, with other zygotes if it ``confirms``.

        Returns ``None`` if the race could not be finished.
        Raises `KeyboardInterrupt` after Ctrl-C, and `TfbenchError` if a side does not start.
        """
        entrants = [baseline, Entrant(case, self.contender)]
        policy = self.launcher.policy_of(self.request.policy, entrants)
        policy = replace(policy, looks=policy.looks[:1])
        config = RaceConfig(self.sharing, pairs_of(entrants, policy, second=confirms))
        race = Race(entrants, self.launcher, policy, config, time.perf_counter, self._draws(case.name))
        with self.launcher.stopwatch.phase(Phase.CONFIRMING):
            self._run(race, f"{case.name}, again for the mean of all cases")
        decision = race.decisions.get(1)
        return None if decision is None or race.failures else decision.comparison.ratio

    def imports(self, case: Case, there: Entrant) -> list[Verdict]:
        """Make the verdicts on what the file of a case imports, once for all cases of the file.

        A change must hold in twice as many pairs of zygotes. Raises `SideError` if one of them does not start.
        """
        file, entrants = case.name.partition("::")[0], [there, Entrant(case, self.contender)]
        if file in self._judged:
            return []
        self._judged.add(file)
        rows = self._imports(*entrants)
        if any(row.outcome is not Outcome.UNCHANGED for row in rows):
            first, known = self.request.policy.zygotes, len(self.launcher.imports(entrants[1]))
            self.launcher.start_pairs(entrants, range(first, first + known))
            rows = self._imports(*entrants)
        return rows

    def _imports(self, before: Entrant, now: Entrant) -> list[Verdict]:
        whole = before.side.executable != now.side.executable
        old, new = (self.launcher.imports(entrant, whole) for entrant in (before, now))
        return exact.imports(now.case, old, new, self.request.policy, self.sharing)

    def alone(self, case: Case, why: Reason, side: Side | None = None) -> list[CaseResult]:
        """Measure a case on the contender or this side, without a counterpart to race against. The reason of the verdict `new` is ``why``."""
        race = self._race([case], side=side)
        self._run(race, case.name)
        return [failed(case, race.failures[0]) if race.failures else new(case, race, 0, why)]

    def claims(self, case: Case, others: Sequence[Case]) -> tuple[Verdict, ...]:
        """Check the contracts of a case on its time relative to other variants, and confirm a broken one."""
        race = self._race([*others, case])
        self._run(race, f"{case.workload}: {case.label} against other variants")
        return self._confirmed(case, claimed(race, len(others)), others)

    def _confirmed(self, case: Case, rows: Sequence[Verdict], group: Sequence[Case]) -> tuple[Verdict, ...]:
        """Race again, in fresh processes of other zygotes, for each contract on time that a first race found broken."""
        suspects = {row.metric for row in rows if row.outcome is Outcome.REGRESSED}
        if not suspects or not self.request.policy.confirm:
            return tuple(rows)
        named = [claim.levels for claim in case.claims_on(TIME)]
        others = [other for other in group if other.variant in named]
        race = self._race([*others, case], second=True)
        with self.launcher.stopwatch.phase(Phase.CONFIRMING):
            self._run(race, f"{case.workload}: {case.label} against other variants, again")
        again = {row.metric: row for row in claimed(race, len(others))}
        return tuple(twice(row, again.get(row.metric)) if row.metric in suspects else row for row in rows)

    def _race(self, cases: Sequence[Case], second: bool = False, side: Side | None = None) -> Race:
        entrants = [Entrant(case, side or self.contender) for case in cases]
        policy = self.launcher.policy_of(self.request.policy, entrants)
        config = RaceConfig(self.sharing, pairs_of(entrants, policy, second))
        return Race(entrants, self.launcher, policy, config, time.perf_counter, self._draws(cases[-1].name))

    def _draws(self, name: str) -> random.Random:
        """Return the random numbers of the next race of a case. They do not depend on the races of other cases."""
        self._raced[name] += 1
        return random.Random(f"{self.request.seed} {self._raced[name]} {name}")

    def _run(self, race: Race | ConfirmedRace, text: str) -> None:
        self.report(text)
        race.run(lambda now: self.report(text, now))
