"""Race entrants, launch after launch, until the evidence decides or the policy's budget is spent."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import LaunchDisturbed
from tfbench.model import ONCE, Case, Effect, Launch, Plan, Reason, Run
from tfbench.policy import Policy, Thresholds
from tfbench.protocol.messages import Prepared
from tfbench.race.interfaces import Clock, Entrant, Failure, Launcher, OpenLaunch
from tfbench.race.launch import run_launch
from tfbench.race.schedule import make_plan, one_sample, planned_seconds, with_even_slices
from tfbench.stats.allocation import best_rounds
from tfbench.stats.interval import Floats, launch_effect, log_ratios
from tfbench.stats.thresholds import policy_of
from tfbench.stats.throughput import log_items_ratio
from tfbench.stats.verdict import Decision, decide, launches_needed


@dataclass(frozen=True)
class RaceConfig:
    """Settings of a race besides the policy."""

    cases: int
    """Cases of the whole run, which share its alpha."""
    pairs: Sequence[int]
    """Pairs of zygotes that the launches come from in turn."""
    first_calls: Callable[[Race], bool] = lambda race: False
    """Tells whether the first calls of two sides are judged, too, and need another launch."""
    confirms: bool = False
    """Whether this race confirms a change in the time of an iteration that another one has found."""


def pairs_of(entrants: Sequence[Entrant], policy: Policy, second: bool = False) -> range:
    """Return the pairs of zygotes that these entrants can race from, within the policy's limit of live zygotes.

    Args:
        second: Whether to return others than those of a first race.
    """
    pools = len({(entrant.side.name, entrant.case.env) for entrant in entrants})
    first = policy.zygotes if second else 0
    return range(first, first + policy.pairs(pools))


class Race:
    """A race of several entrants against a reference. Its state is readable at any time, also after an interruption.

    The reference is the first entrant that works. An entrant leaves the race once its comparison is decided.
    A single entrant is measured in ``alone_launches``.
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        launcher: Launcher,
        policy: Policy,
        config: RaceConfig,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.entrants = tuple(entrants)
        self.policy = policy
        self.config = config
        self.launches: list[Launch] = []
        self.failures: dict[int, Failure] = {}
        self.decisions: dict[int, Decision] = {}
        self._launcher = launcher
        self._clock = clock
        self._rng = rng
        self._iteration: dict[int, float] = {}
        self._untimed: dict[int, float] = {}
        self._opened = 0
        """Number of launches opened so far, including discarded ones."""
        self._ahead: OpenLaunch | None = None
        """The next launch, which has made its first calls."""
        self._preparing = 0.0
        """Seconds that all launches took to prepare."""
        self._once = False
        self.short_launches: list[Launch] = []
        """Brief launches, which sample the metrics other than time. Their times do not count."""
        self.disturbed: list[str] = []
        """Reasons of the discarded launches, in time order."""

    # State

    @property
    def working(self) -> list[int]:
        """Indices of the entrants that have not failed."""
        return [index for index in range(len(self.entrants)) if index not in self.failures]

    @property
    def reference(self) -> int | None:
        """The entrant that the others are compared with."""
        return next(iter(self.working), None)

    @property
    def undecided(self) -> list[int]:
        """Working entrants whose comparison with the reference is not decided."""
        return [
            index
            for index in self.working
            if index != self.reference and (index not in self.decisions or self.decisions[index].outcome is None)
        ]

    def runs(self, entrant: int) -> list[Run]:
        """Return the runs of this entrant, one per launch."""
        return [run for launch in self.launches if (run := launch.runs[entrant]) is not None]

    def effects(self, entrant: int, other: int | None = None) -> list[Effect]:
        """Return the effects of this entrant against the other one or the reference, one per launch."""
        reference = self.reference if other is None else other
        found = []
        for launch in self.launches:
            mine, theirs = launch.runs[entrant], None if reference is None else launch.runs[reference]
            if mine is not None and theirs is not None:
                effect = launch_effect(theirs.seconds, mine.seconds, launch.pair)
                if not self._share_side(entrant, reference):
                    effect = replace(effect, value=effect.value - log_items_ratio(theirs, mine))
                found.append(effect)
        return found

    def share_zygote(self, entrant: int, other: int | None) -> bool:
        """Return whether two entrants are forked from the same zygotes; ``None`` stands for the first entrant."""
        # Side and environment are the key of a pool of zygotes.
        mine, theirs = self.entrants[entrant].case, self.entrants[other or 0].case
        return self._share_side(entrant, other) and mine.env == theirs.env

    def _share_side(self, entrant: int, other: int | None) -> bool:
        return self.entrants[entrant].side.name == self.entrants[other or 0].side.name

    @property
    def all_launches(self) -> list[Launch]:
        """The launches whose times count, then the short ones."""
        return [*self.launches, *self.short_launches]

    @property
    def wall_seconds(self) -> float:
        """Wall time of all launches, without the start of zygotes."""
        return sum(launch.wall_seconds for launch in self.all_launches)

    def rounds(self, entrant: int) -> int:
        """Return the number of rounds of this entrant so far."""
        return sum(len(run.seconds) for run in self.runs(entrant))

    # Racing

    def start(self) -> None:
        """Start the zygotes of the launches up to the first look, which all take place, at the same time.

        Raises:
            SideError: A zygote does not start.
        """
        self._launcher.start_pairs(self.entrants, self.config.pairs[: self.policy.looks[0]])

    def run(self, progress: Callable[[Race], None] = lambda race: None) -> None:
        """Race until every comparison is decided, or the policy's looks or seconds are used up.

        Args:
            progress: Called after every launch.
        """
        limit = self.policy.case_seconds * max(1, len(self.entrants) - 1)
        try:
            while len(self.working) >= self._least and not self._finished() and not self.abort_reason:
                if launch := self._launch(sorted({self.working[0], *self.undecided})):
                    self.launches.append(launch)
                self._look(limit)
                progress(self)
        finally:
            if self._ahead:
                self._ahead.kill()
                self._ahead = None

    def extend(self, launches: int, progress: Callable[[Race], None] = lambda race: None) -> None:
        """Race short launches until there are ``launches`` of all kinds, an entrant fails or disturbances are too many.

        Args:
            progress: Called after every launch.
        """
        while len(self.all_launches) < launches and not self.failures and self._can_be_disturbed:
            if launch := self._launch(self.working, brief=True):
                self.short_launches.append(launch)
            progress(self)

    @property
    def _least(self) -> int:
        """Fewest entrants of a launch. One side of a pair proves no difference, one variant is worth measuring."""
        return min(2, len({entrant.side.name for entrant in self.entrants}))

    def _launch(self, active: Sequence[int], brief: bool = False) -> Launch | None:
        """Race these entrants once, from the next pair of zygotes; ``None`` if the launch does not count."""
        together = brief or self._first_calls_count
        try:
            opened, self._ahead = self._ahead, None
            if opened is None:
                opened = self._open()
                self._ahead = self._open() if together and not brief and self._another_follows else None
            launch, failures = run_launch(
                self.entrants, active, opened, self._launcher.stopwatch, self._plan, self._clock, self._rng, self._least,
                brief, together, self._ahead,
            )  # fmt: skip
        except LaunchDisturbed as error:
            self.disturbed.append(str(error))
            return None
        if failures and self.reference in failures:
            self.decisions.clear()  # they compared with another reference
        self.failures.update(failures)
        return launch

    def _open(self) -> OpenLaunch:
        """Open a launch from the next pair of zygotes."""
        pair = self.config.pairs[self._opened % len(self.config.pairs)]
        self._opened += 1
        return self._launcher.open(self.entrants, pair)

    @property
    def _another_follows(self) -> bool:
        """Whether the launch after the next one is certain to take place, with first calls that are compared."""
        return len(self.launches) + 2 <= self.policy.looks[0] and self.config.first_calls(self)

    @property
    def _first_calls_count(self) -> bool:
        """Whether the next launch needs first calls: it tells whether the step runs once, or they are still to be decided."""
        return not self.all_launches or self._once or self.config.first_calls(self)

    @property
    def _can_be_disturbed(self) -> bool:
        """Whether the race survives one more disturbance."""
        return len(self.disturbed) < self.policy.disturbed_launches

    @property
    def abort_reason(self) -> str:
        """Reason for giving up the race: the last of too many disturbances, ``""`` if there were not too many."""
        return self.disturbed[-1] if len(self.disturbed) > self.policy.disturbed_launches else ""

    def thresholds(self, entrant: int) -> Thresholds:
        """Return those of the entrant's case; the stricter ones, if its reference is the case on another side.

        A change that sets looser thresholds is thus judged by those that it replaces.
        """
        others = [] if self._share_side(entrant, self.reference) else [self.entrants[self.reference or 0].case]
        return self.thresholds_of(self.entrants[entrant].case, *others)

    def thresholds_of(self, *cases: Case) -> Thresholds:
        """Return the stricter ones of these cases, the policy's without any.

        They are for a step that is repeated, or for one that runs once per launch.
        """
        own = policy_of(self.policy, *cases)
        return own.once if self._once else own.step_time

    def conclude(self) -> None:
        """Decide the open comparisons from the present evidence, after an interruption."""
        self._look(-1.0)

    def _finished(self) -> bool:
        if len(self.working) == 1:
            return len(self.launches) >= self.policy.alone_launches
        return not self.undecided

    def _plan(self, prepared: Mapping[int, Prepared], seconds: float) -> Plan:
        for index, ready in prepared.items():
            self._iteration.setdefault(index, ready.iteration)
            if ready.untimed is not None:
                self._untimed.setdefault(index, ready.untimed)
        iteration = {index: self._iteration[index] for index in sorted(prepared)}
        self._once = any(ready.facts.get(ONCE) for ready in prepared.values())
        if self._once:
            return one_sample(self.entrants)
        on_device = any(ready.on_device for ready in prepared.values())
        waiting = [ready.waiting for ready in prepared.values()]
        most = self.policy.sliced_waiting * self.policy.tolerance
        sliceable = all(share is not None and share <= most for share in waiting)
        self._preparing += seconds
        each = self._preparing / self._opened  # a launch may have prepared for the next one as well
        works_on = any(ready.works_on for ready in prepared.values())
        plan = make_plan(self.entrants, iteration, self.policy, on_device, each, sliceable, self._untimed, works_on)
        if self.launches:
            plan = self._allocated(plan, planned_seconds(plan, iteration) / plan.rounds)
        return with_even_slices(plan)

    def _allocated(self, plan: Plan, round_seconds: float) -> Plan:
        """Return the plan with the rounds that lower the error of an open comparison most per second."""
        rounds = [max(len(run.seconds) for run in launch.runs if run) for launch in self.launches]
        starts = [
            launch.wall_seconds - count * round_seconds for launch, count in zip(self.launches, rounds, strict=True)
        ]
        start = max(sum(starts) / len(starts), round_seconds)
        best = [
            best_rounds(ratios, self.thresholds(entrant).launch_deviation, start, round_seconds)
            for entrant in self.undecided
            if (ratios := self._log_ratios(entrant))
        ]
        least, most = self.policy.rounds_allocated
        if len(self.launches) < self.policy.looks[0]:
            most = 1.0
        wanted = min(max(max(best, default=plan.rounds), least * plan.rounds), most * plan.rounds)
        return replace(plan, rounds=max(self.policy.rounds_min, round(wanted)))

    def _log_ratios(self, entrant: int) -> list[Floats]:
        """Return the log-ratios of the rounds of an entrant to those of the reference, an array per launch."""
        pairs = ((launch.runs[entrant], launch.runs[self.reference or 0]) for launch in self.launches)
        return [log_ratios(theirs.seconds, mine.seconds) for mine, theirs in pairs if mine and theirs]

    def _look(self, limit: float) -> None:
        """Decide the open comparisons, finally if the race has taken ``limit`` seconds."""
        for entrant in self.undecided:
            effects = self.effects(entrant)
            last = self.wall_seconds > limit or len(effects) >= self.policy.looks[-1]
            if effects and (last or len(effects) in self.policy.looks):
                decision = self._decide(entrant, effects, last)
                if decision.outcome is None and (cost := self._hopeless(entrant, effects, limit)):
                    decision = self._decide(entrant, effects, True)
                    text = f"{decision.reason.message}; {cost}"
                    decision = replace(decision, reason=Reason(decision.reason.code, text))
                self.decisions[entrant] = decision

    def _decide(self, entrant: int, effects: Sequence[Effect], final: bool) -> Decision:
        usual = self.thresholds(entrant)
        return decide(
            effects,
            self.rounds(entrant),
            self.policy,
            cases=self.config.cases,
            shared_zygote=self.share_zygote(entrant, self.reference),
            final=final,
            thresholds=usual.confirming() if self.config.confirms else usual,
        )

    def _hopeless(self, entrant: int, effects: Sequence[Effect], limit: float) -> str:
        """Return what a decision would cost, if it is out of reach; ``""`` if it is not."""
        needed = launches_needed(effects, self.thresholds(entrant), self.policy.clip)
        done, each = len(self.launches), self.wall_seconds / len(self.all_launches)
        reach = min(self.policy.looks[-1], done + (limit - self.wall_seconds) / max(each, 1e-9))
        if needed <= self.policy.hopeless * reach:
            return ""
        return f"a decision would take about {needed:.0f} launches, {needed * each:.0f} s"
