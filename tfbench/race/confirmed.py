"""Race two sides, and confirm what the first race found.

The same launches judge time, first calls and peak memory, see docs/decisions/05-first-calls.md. Short launches follow
while one of the latter two is open. A look at each spends its own share of an alpha of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

from tfbench.errors import BenchmarkError
from tfbench.metrics import exact
from tfbench.model import CACHE, CACHE_STATES, NATIVE, TIME, Outcome, Ratio, Run, Statistic, Verdict
from tfbench.model.case import FIRST_CALL, WARM_UP
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.policy import Policy
from tfbench.race.launch import Clock, Entrant, Failure
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig, Steps
from tfbench.race.timer import Phase
from tfbench.sides.source_tree import MODULES, may_miss
from tfbench.sides.spec import Side
from tfbench.stats.verdict import Decision

# Refuse to compare two source trees whose processes have not loaded the native code of their own tree alone


def unlike_native_code(sides: Sequence[Side], runs: Sequence[Sequence[Run]]) -> Reason | None:
    """Return a note why the times of two sides say nothing about their source trees, with the fix; ``None`` if they do.

    A library of the working tree that another tree has loaded is the same on both sides. One that only one side has
    loaded, such as an extension built in place that git ignores, leaves the other side to a slower substitute. So does a
    module that git ignores. An extension that an import compiles into a place of its own may be that of the other tree.
    """
    if sides[0].tree_redirect == sides[1].tree_redirect and sides[0].executable == sides[1].executable:
        return None  # a setting may select other libraries
    for side, own in zip(sides, runs, strict=True):
        if foreign := _named(own, "foreign"):
            return because(Note.SHARED_LIBRARY, side=side.name, spec=side.spec, libraries=foreign)
        if sides[0].tree_redirect != sides[1].tree_redirect and (compiled := _named(own, "compiled")):
            return because(Note.COMPILED_LIBRARY, side=side.name, libraries=compiled)
    before, now = ({_stem(name): name for name in _named(own, "own")} for own in runs)
    for number, names in enumerate((now.keys() - before.keys(), before.keys() - now.keys())):
        first, other = sides[1 - number], sides[number]
        one_sided = [(before | now)[name] for name in sorted(names)]
        modules = [name for name in one_sided if name.endswith(MODULES)]
        if libraries := [name for name in one_sided if name not in modules]:
            return because(Note.ONE_SIDED_LIBRARY, side=first.name, other=other.spec, libraries=libraries)
        if other.tree_redirect:  # otherwise it has the module, too
            here, there = map(Path, other.tree_redirect)
            if modules := [name for name in modules if may_miss(there, here, name)]:
                return because(Note.ONE_SIDED_MODULE, side=first.name, other=other.spec, modules=modules)
    return None


def cache_of(runs: Sequence[Run]) -> str:
    """Return how the calls of these runs found the cache; ``""`` where no one asked, on a CPU."""
    return next((state for run in runs if (state := run.facts.get(CACHE)) in CACHE_STATES), "")


def unlike_caches(before: Sequence[Run], now: Sequence[Run]) -> Reason | None:
    """Return why the times of two sides differ whatever they compute: one had a warm cache. ``None`` if they are alike."""
    states = cache_of(before), cache_of(now)
    if len(set(states)) == 1:
        return None
    return because(ReasonCode.OTHER_CACHE, before=states[0] or "primed", now=states[1] or "primed")


def _named(runs: Sequence[Run], key: str) -> list[str]:
    return sorted({name for run in runs for name in run.facts.get(NATIVE, {}).get(key, ())})


def _stem(name: str) -> str:
    """Return the path of a library without its suffixes, which name the interpreter that it was built for."""
    path = PurePath(name)
    return str(path.with_name(path.name.partition(".")[0]))


# Two sides of a case: a race, and after a change a second race that shares no data with it


Judged = TypeVar("Judged", Decision, Verdict)


def twice(first: Judged, second: Judged | None, absent: str = "no launch has measured it") -> Judged:
    """Return what two races found. A change counts if both have found it, and an error of the second one in any event.

    ``absent`` is why the second one has no result, if it has none.
    """
    if second is not None and second.outcome is Outcome.ERROR:
        return second
    if second is not None and second.outcome is first.outcome:
        return second.noted(because(Note.FOUND_TWICE, first.reason))
    found = because(ReasonCode.NOT_MEASURED, why=absent) if second is None else second.reason
    notes = because(Note.FIRST_RACE, first.reason), because(Note.FRESH_LAUNCHES, found)
    return (second or first).changed(outcome=Outcome.INCONCLUSIVE, reason=because(ReasonCode.NOT_CONFIRMED, *notes))


def interrupted(found: Judged) -> Judged:
    """Return a change whose second race the user has interrupted."""
    return found.changed(outcome=Outcome.INCONCLUSIVE, reason=because(ReasonCode.INTERRUPTED, found.reason))


@dataclass
class _Judge(Generic[Judged]):
    """One metric that is judged from a race, and its result so far."""

    metric: str
    judge: Callable[[Race], Judged | None]
    result: Judged | None = None

    @property
    def changed(self) -> bool:
        """Whether the result is a `regressed` or `improved`, which a second race has to confirm."""
        return self.result is not None and self.result.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)

    def is_open_after(self, race: Race) -> bool:
        """Judge from the present launches; returns whether short launches could still decide."""
        self.result = self.judge(race)
        undecided = self.result is not None and self.result.outcome is Outcome.INCONCLUSIVE
        return undecided and self.metric not in (TIME, WARM_UP)  # for which a whole launch is needed

    def interrupt(self, race: Race, confirm: bool) -> None:
        self.result = self.judge(race)
        if self.result is not None and self.changed and confirm:
            self.result = interrupted(self.result)


class ConfirmedRace:
    """Judges two sides of a case, with the confirmation that a failed test needs.

    The second race uses zygotes of its own, so that the bias of one pair of zygotes does not count twice.

    Args:
        entrants: Baseline and contender of one case.
        cases: Cases of the whole run, which share its alpha.
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        launcher: ProcessLauncher,
        policy: Policy,
        cases: int,
        clock: Clock,
        rng: random.Random,
        metrics: Collection[str] = (TIME, FIRST_CALL, *exact.OF_LAUNCHES),
    ) -> None:
        order = policy.pair_order()
        self._stopwatch = launcher.stopwatch
        wanted = _first_call_is_open if FIRST_CALL in metrics else lambda race: False

        def race(first: int, confirms: Statistic | None = None, patience: int = 0, *known: Steps) -> Race:
            config = RaceConfig(cases, [first + pair for pair in order], wanted, confirms, patience, *known)
            return Race(entrants, launcher, policy, config, clock, rng)

        self.first = race(0)
        self._race_from = race
        """Makes a race that starts with this pair of zygotes."""
        self._second: Race | None = None
        self.policy = policy
        self._time: _Judge[Decision] = _Judge(TIME, lambda race: race.decisions.get(1))
        self._first_call: _Judge[Decision] = _Judge(FIRST_CALL, _first_call)
        self._sampled: list[_Judge[Verdict]] = [_Judge(name, partial(_sampled, name)) for name in exact.OF_LAUNCHES]
        judges: tuple[_Judge[Any], ...] = (self._time, self._first_call, *self._sampled)
        self._judges = [judge for judge in judges if judge.metric in metrics]

    def run(self, progress: Callable[[Race], None] = lambda race: None) -> None:
        """Race, and confirm each change. After an interruption the present evidence is judged.

        ``progress`` is called after every launch.
        """
        try:
            self._race(self.first, self._judges, self.policy.looks[0], progress)
            suspects = [(judge, judge.result) for judge in self._judges if judge.changed]
            if self.policy.confirm and suspects and not self.failures:
                least = len(self.first.all_launches)
                statistic = self._time.result.statistic if self._time.changed and self._time.result else None
                self._second = self._race_from(self.policy.zygotes, statistic, least, self.first.steps.lasting)
                with self._stopwatch.phase(Phase.CONFIRMING):
                    self._race(self._second, [judge for judge, _ in suspects], least, progress)
                absent = "; ".join(["no launch has measured it", *self._second.disturbed[-1:]])
                for judge, first in suspects:
                    judge.result = twice(first, judge.result, absent)
        except KeyboardInterrupt:
            self.first.conclude()
            for judge in self._judges:
                judge.interrupt(self.first, self.policy.confirm)
            raise

    def _race(self, race: Race, judges: Sequence[_Judge[Any]], least: int, progress: Callable[[Race], None]) -> None:
        """Race until all of these metrics are decided, or the looks or the seconds for them are used up.

        The first ``least`` launches may take more than ``sampled_seconds``.
        """
        race.start()
        if self._time in judges:
            race.run(progress)
        waiting = [judge for judge in judges if judge.is_open_after(race) or not race.all_launches]
        for look in self.policy.looks:
            if look <= len(race.all_launches):
                continue
            if not waiting or race.abort_reason or not (look <= least or _affordable(race, look)):
                break
            race.extend(look, progress, brief=all(judge.metric != WARM_UP for judge in waiting))
            waiting = [judge for judge in waiting if judge.is_open_after(race)]

    # Results

    @property
    def decision(self) -> Decision | None:
        """On the time of an iteration."""
        return self._time.result

    @property
    def tail(self) -> Ratio | None:
        """The newest ratio of the geometric means of the calls, ``None`` where none was judged."""
        decisions = [race.decisions.get(1) for race in self.races]
        return next((decision.tail for decision in reversed(decisions) if decision and decision.tail), None)

    @property
    def first_call(self) -> Decision | None:
        """On the first call of the step."""
        return self._first_call.result

    @property
    def sampled(self) -> list[Verdict]:
        """On the metrics of which each launch has a sample."""
        return [judge.result for judge in self._sampled if judge.result is not None]

    @property
    def races(self) -> list[Race]:
        """The first race, and the second one if it took place."""
        second = self._second
        took_place = second is not None and (second.all_launches or second.failures or second.disturbed)
        return [self.first, *([second] if second is not None and took_place else [])]

    @property
    def abort_reason(self) -> str:
        """Reason for giving up one of the races, ``""`` if none was given up."""
        return next((race.abort_reason for race in self.races if race.abort_reason), "")

    @property
    def failures(self) -> dict[int, Failure]:
        """Failures by entrant."""
        return {entrant: failure for race in self.races for entrant, failure in race.failures.items()}

    @property
    def only_baseline_breaks(self) -> bool:
        """Whether the baseline broke before a launch was complete, and no failure of the contender is known."""
        return set(self.failures) == {0} and not self.launches and isinstance(self.failures[0], BenchmarkError)

    def runs(self, entrant: int) -> list[Run]:
        """Return the runs of this entrant, one per launch."""
        return [run for race in self.races for run in race.runs(entrant)]

    @property
    def unlike(self) -> Reason | None:
        """Why the times say nothing about the source trees, if so: see `unlike_native_code` and `unlike_caches`."""
        sides = [entrant.side for entrant in self.first.entrants]
        launches = [launch for race in self.races for launch in race.all_launches]  # the short ones, too
        runs = [[run for launch in launches if (run := launch.runs[number])] for number in range(len(sides))]
        if (note := unlike_native_code(sides, runs)) is not None:
            return because(ReasonCode.OTHER_NATIVE_CODE, note)
        return unlike_caches(*runs)

    @property
    def launches(self) -> int:
        """Number of launches, including the short ones."""
        return sum(len(race.all_launches) for race in self.races)

    @property
    def rounds(self) -> int:
        """Rounds of the contender."""
        return sum(race.rounds(1) for race in self.races)

    @property
    def wall_seconds(self) -> float:
        """Wall time of the launches, without the start of zygotes."""
        return sum(race.wall_seconds for race in self.races)


def _affordable(race: Race, launches: int) -> bool:
    """Whether short launches up to this number fit into the seconds for the metrics other than time."""
    policy, done = race.policy, len(race.all_launches)
    spent = sum(launch.wall_seconds for launch in race.short_launches)
    alike = race.short_launches or race.launches
    expected = (launches - done) * sum(launch.wall_seconds for launch in alike) / max(1, len(alike))
    return spent + expected <= policy.sampled_seconds and race.wall_seconds + expected <= policy.case_seconds


def _sampled(metric: str, race: Race) -> Verdict | None:
    before, now, pairs = common(race)
    case, cases = race.entrants[1].case, race.config.cases
    return exact.of_launches(metric, case, before, now, race.policy, cases, pairs) if pairs else None


def _first_call(race: Race) -> Decision | None:
    before, now, pairs = common(race)
    return exact.first_call(before, now, pairs, race.policy, race.config.cases)


def _first_call_is_open(race: Race) -> bool:
    """Whether first calls in the next launch serve their decision, which ends their sampling at a look only.

    Each takes as long as the call of one side, since both sides share a processor. Beyond the first look, those calls
    take no more than ``sampled_seconds``.
    """
    policy = race.policy
    if len(race.all_launches) < policy.looks[0]:
        return True
    decision = _first_call(race)
    seconds = [float(facts[FIRST_CALL]) for facts in common(race)[1] if FIRST_CALL in facts]
    if decision is None or sum(seconds[policy.looks[0] :]) > policy.sampled_seconds:
        return False
    return decision.comparison.launches not in policy.looks or decision.outcome is Outcome.INCONCLUSIVE


def common(race: Race, other: int = 1) -> tuple[exact.Facts, exact.Facts, list[int]]:
    """Return the facts of both sides and the pair of zygotes, of each launch in which both took part."""
    both = [launch for launch in race.all_launches if launch.runs[0] and launch.runs[other]]
    before, now = ([run.facts for launch in both if (run := launch.runs[side]) is not None] for side in (0, other))
    return before, now, [launch.pair for launch in both]
