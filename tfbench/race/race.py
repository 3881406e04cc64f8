"""Race entrants, launch after launch, until the evidence decides or the policy's budget is spent."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from tfbench.errors import BenchmarkError, LaunchDisturbed
from tfbench.model import BESIDE, ONCE, STATISTICS, WAITED, Effect, Launch, Outcome, Plan, Run, Statistic
from tfbench.model.reasons import Reason, ReasonCode, because
from tfbench.model.words import LARGEST
from tfbench.policy import Policy, Thresholds, preset
from tfbench.protocol import Prepared
from tfbench.race import launch as launching
from tfbench.race.process_launch import ProcessLaunch
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.timer import Phase
from tfbench.stats import verdict
from tfbench.stats.alpha_spending import policy_of
from tfbench.stats.interval import log_ratios
from tfbench.stats.rounds import best_rounds, log_items_ratio, scatter, shifts

MISJUDGED = 8.0
"""If a call takes longer than this many calls of the launches so far, by what the warm-up of the first one found, later
launches are planned by those. A warm-up that ends in slow first calls, such as compilation, finds a step of 1 ms to
take 0.5 s. A busy machine alone lengthens its calls by less."""
ROUNDS_ALLOCATED = (0.5, 2.0)
"""Fewest and most rounds of later launches, as factors of the usual number. Within them, a launch has the number that
lowers the error most per second by what the launches so far show. More only after the first look, which decides most
cases. On recorded rounds this gains 13% of the time, 10% on a busy machine. Three launches often misjudge the best
number by a factor of two, and factors of 4 gain less."""
SLICED_WAITING = 0.25
"""Not if a step waits longer than this fraction of the tolerance, since processor time lacks what it waits. Threads
that hand over to each other take up to 0.5% of a step for that, on both sides alike."""
SLICED_MEAN_WAITING = 0.01
"""Nor if its calls wait longer than this fraction of their processor time on average. The limit above is for the median
call, which does not see that few calls wait. The first launch takes turns to see that."""
EQUAL_CALLS_SCATTER = 2.0
"""If launches differ by more than this factor of what is usual and what their rounds explain, both sides make equally
many calls before the rounds of later launches. Both then have the same batches in the same rounds, where batches differ
in size. Not from the first launch on, because on a busy machine one side catches up with 27 ms of calls in the
median."""
EQUAL_CALLS_ERROR = 0.5
"""Or if the rounds of a launch leave an error of more than this share of the tolerance, as where every tenth call takes
longer: out of step, the sides then differ in most rounds."""
TAIL_ROUNDS = 300
"""Rounds of each side that the launches up to the first look have together, if `TAIL_LAUNCH_SECONDS` allows them. Of
two calls in a hundred that are slow, 60 rounds contain at least one in 70% of the races. With
150, `quick` leaves unchanged code open in an eighth of the races if 2% of its calls take sixty times as long."""
TAIL_LAUNCH_SECONDS = 0.75
"""The rounds of a launch may take this long to reach `TAIL_ROUNDS`. Steps above 5 ms have fewer, and their reason says
how rare slow calls can be without being seen."""
RARE_LAUNCH_SECONDS = 1.5
"""The rounds of a launch may take this long to reach ``rare_calls``, where they can: a step of 1 ms has 1.4 s of rounds
instead of 0.3 s."""
TAIL_ALPHA, MEAN_ALPHA = 0.25, 0.05
"""Shares of the alpha of a first race that are spent on the tail and on the mean, the rest on the median. A second race
asks only what the first one found, at the whole alpha: the products of both stages add up to the square of the alpha at
most."""

# Race entrants, launch after launch, until the evidence decides or the policy's budget is spent


@dataclass(frozen=True)
class Steps:
    """What the preparations of launches have shown about the steps of a race, by entrant. Launches are planned by it."""

    iteration: Mapping[int, float] = field(default_factory=dict)
    """Seconds of one iteration."""
    untimed: Mapping[int, float] = field(default_factory=dict)
    """Seconds of untimed work around an iteration, of the entrants that have any."""
    once: bool = False
    """Whether the steps run once in a launch."""
    works_on: bool = False
    """Whether threads have worked on after a turn in a launch so far. In another launch they may rest, with full buffers."""
    seen_working_on: frozenset[int] = frozenset()
    """Entrants whose threads have worked on after a turn in at least one launch."""
    preparing: float = 0.0
    """Seconds that all launches took to prepare."""

    @property
    def lasting(self) -> Steps:
        """What holds for another race of the same entrants: how to plan blocks of threads that work ahead."""
        return Steps(self.iteration, works_on=True) if self.works_on else Steps()


@dataclass(frozen=True)
class RaceConfig:
    """Settings of a race besides the policy."""

    cases: int
    """Cases of the whole run, which share its alpha."""
    pairs: Sequence[int]
    """Pairs of zygotes that the launches come from in turn."""
    first_calls: Callable[[Race], bool] = lambda race: False
    """Tells whether the first calls of two sides are judged, too, and need another launch."""
    confirms: Statistic | None = None
    """What this race confirms, if another one has found a change in the time of an iteration: it asks that alone."""
    patience: int = 0
    """Launches before the race may end because a decision is out of reach. What a race confirms may show as late as it showed
    first, such as slow calls that are rare."""
    steps: Steps = Steps()
    """What another race of the same entrants has shown, see `Steps.lasting`."""


def pairs_of(entrants: Sequence[launching.Entrant], policy: Policy, second: bool = False) -> range:
    """Return the pairs of zygotes that these entrants can race from, within the policy's limit of live zygotes.

    A ``second`` race has other pairs than the first.
    """
    pools = len({(entrant.side.name, entrant.case.env) for entrant in entrants})
    first = policy.zygotes if second else 0
    return range(first, first + policy.pairs(pools))


def _waits(launch: Launch) -> list[float]:
    """Return what share of their processor time the steps of a launch have waited, where that is known."""
    return [run.facts[WAITED] for run in launch.runs if run and WAITED in run.facts]


_Basis = tuple[int | None, bool]
"""The reference, and whether threads that work on are stopped: launches of another basis say nothing about a decision."""


@dataclass(eq=False)
class Race:
    """A race of several entrants against a reference. Its state is readable at any time, also after an interruption.

    The reference is the first entrant that works. An entrant leaves the race once its comparison is decided.
    A single entrant is measured in ``alone_launches``.

    Launches and decisions are only ever added. Both belong to a basis, and those of the present one count. So a decision
    has its launches at any time: what makes launches no measure makes their decisions none.
    """

    entrants: Sequence[launching.Entrant]
    launcher: ProcessLauncher
    policy: Policy
    config: RaceConfig
    clock: launching.Clock
    rng: random.Random
    failures: dict[int, launching.Failure] = field(default_factory=dict, init=False)
    disturbed: list[str] = field(default_factory=list, init=False)
    """Reasons of the discarded launches, in time order."""
    steps: Steps = field(init=False)
    """What the launches so far have shown about the steps."""
    _raced: list[tuple[Launch, bool | None]] = field(default_factory=list, init=False)
    """All launches, in time order, each with whether threads that work on were stopped between turns; ``None`` if its times do
    not count."""
    _decided: dict[_Basis, dict[int, verdict.Decision]] = field(default_factory=dict, init=False)
    """The newest decision about each entrant."""
    _proved: dict[tuple[_Basis, int, Statistic], verdict.Decision] = field(default_factory=dict, init=False)
    """The first look that proved an entrant unchanged or improved by a statistic, while another one is open."""
    _opened: int = field(default=0, init=False)
    """Number of launches opened so far, including discarded ones."""
    _ahead: ProcessLaunch | None = field(default=None, init=False)
    """The next launch, which has made its first calls."""

    def __post_init__(self) -> None:
        self.steps = self.config.steps

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
    def _basis(self) -> _Basis:
        return self.reference, self.steps.works_on

    @property
    def launches(self) -> list[Launch]:
        """The launches whose times count, in time order."""
        return [launch for launch, stopped in self._raced if stopped is self.steps.works_on]

    @property
    def short_launches(self) -> list[Launch]:
        """The other launches, most of them brief ones, which sample the metrics other than time."""
        return [launch for launch, stopped in self._raced if stopped is not self.steps.works_on]

    @property
    def decisions(self) -> Mapping[int, verdict.Decision]:
        """The newest decision about each entrant, against the present reference and from launches whose times count."""
        return self._decided.get(self._basis, {})

    @property
    def undecided(self) -> list[int]:
        """Working entrants whose comparison with the reference is not decided."""
        decided = {index for index, decision in self.decisions.items() if decision.outcome is not None}
        return [index for index in self.working if index not in decided and index != self.reference]

    def runs(self, entrant: int) -> list[Run]:
        """Return the runs of this entrant, one per launch."""
        return [run for launch in self.launches if (run := launch.runs[entrant]) is not None]

    def effects(self, entrant: int, other: int | None = None, statistic: Statistic = Statistic.MEDIAN) -> list[Effect]:
        """Return the effects of this entrant against the other one or the reference, one per launch."""
        reference = self.reference if other is None else other
        effects = []
        for launch in self.launches:
            mine, theirs = launch.runs[entrant], None if reference is None else launch.runs[reference]
            if mine is not None and theirs is not None:
                effect = verdict.effect_of(statistic, theirs, mine, launch.pair)
                if not self._share_side(entrant, reference):
                    effect = replace(effect, value=effect.value - log_items_ratio(theirs, mine))
                effects.append(effect)
        return effects

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

    @property
    def limit(self) -> float:
        """Seconds that the launches may take: `case_seconds`, or what `case_launches` of a long step take."""
        each = self.wall_seconds / max(1, len(self.all_launches))
        return max(self.policy.case_seconds, self.policy.case_launches * each) * max(1, len(self.entrants) - 1)

    @property
    def is_long(self) -> bool:
        """Whether the launches of a long step may take more than the policy's time limit."""
        return bool(self.all_launches) and self.limit > self.policy.case_seconds * max(1, len(self.entrants) - 1)

    def rounds(self, entrant: int) -> int:
        """Return the number of rounds of this entrant so far."""
        return sum(len(run.seconds) for run in self.runs(entrant))

    # Racing

    def start(self) -> None:
        """Start the zygotes of all launches up to the first look at once. Raises `SideError` if one does not start."""
        self.launcher.start_pairs(self.entrants, self.config.pairs[: self.policy.looks[0]])

    def run(self, progress: Callable[[Race], None] = lambda race: None) -> None:
        """Race until every comparison is decided, or the policy's looks or seconds are used up.

        ``progress`` is called after every launch.
        """
        with self._ending_ahead():
            while len(self.working) >= self._least and not self.abort_reason:
                if not (self.undecided or (len(self.working) == 1 and len(self.launches) < self.policy.alone_launches)):
                    break
                self._launch(sorted({self.working[0], *self.undecided}))
                self._look(self.limit)
                progress(self)

    def extend(self, launches: int, progress: Callable[[Race], None] = lambda race: None, brief: bool = True) -> None:
        """Race short launches until there are ``launches`` of all kinds, an entrant fails or disturbances are too many.

        Unless they are to be ``brief``, they warm the step up, too.

        ``progress`` is called after every launch.
        """
        most = self.policy.disturbed_launches
        with self._ending_ahead():
            while len(self.all_launches) < launches and not self.failures and len(self.disturbed) < most:
                self._launch(self.working, brief=brief)
                progress(self)

    @contextmanager
    def _ending_ahead(self) -> Iterator[None]:
        """End the launch that was opened ahead if none of the block has used it."""
        try:
            yield
        finally:
            if self._ahead:
                self._ahead.kill()
                self._ahead = None

    @property
    def _least(self) -> int:
        """Fewest entrants of a launch. One side of a pair proves no difference, one variant is worth measuring."""
        return min(2, len({entrant.side.name for entrant in self.entrants}))

    def _launch(self, active: Sequence[int], brief: bool = False) -> None:
        """Race these entrants once, from the next pair of zygotes.

        If an entrant breaks during its set-up, the others go on. A brief launch is for the first call and the peak of
        memory, so it warms nothing up and has one round.
        """
        # It tells whether the step runs once, or first calls are still to be decided.
        together = brief or not self.all_launches or self.steps.once or self.config.first_calls(self)
        opened, self._ahead = self._ahead, None
        launch, failures, stopwatch = None, dict[int, launching.Failure](), self.launcher.stopwatch
        try:
            if opened is None:
                opened = self._open()
                # The launch after this one is certain to take place, with first calls that are compared.
                certain = len(self.launches) + 2 <= self.policy.looks[0] and self.config.first_calls(self)
                self._ahead = self._open() if together and not brief and certain else None
            began = self.clock()
            with stopwatch.phase(Phase.PREPARING):
                order = self.rng.sample(list(active), len(active))
                ready = opened.prepare(order, brief, together, self._ahead, self._scatters)
            prepared = {entrant: result for entrant, result in ready.items() if isinstance(result, Prepared)}
            failures |= {entrant: result for entrant, result in ready.items() if not isinstance(result, Prepared)}
            if len({bool(result.facts.get(ONCE)) for result in prepared.values()}) > 1:
                error = BenchmarkError("one side measures its step once (bench.once), and the other one repeatedly")
                failures |= dict.fromkeys(prepared, error)
            elif len(prepared) >= self._least:
                self.steps = self._shown_by(prepared, self.clock() - began, brief)
                plan = self._plan(prepared, brief)
                with stopwatch.phase(Phase.ROUNDS):
                    seconds = opened.rounds(plan, launching.orders(sorted(prepared), plan.turns, self.rng))
                runs: list[Run | None] = [None] * len(self.entrants)
                for index, times in seconds.items():
                    runs[index] = Run(tuple(times), plan.iterations[index], prepared[index].facts)
                launch = Launch(opened.pair, tuple(runs), self.clock() - began)
        except launching.EntrantFailed as error:
            failures[error.entrant] = error.failure
        except LaunchDisturbed as error:
            self.disturbed.append(str(error))
            return
        finally:
            if opened is not None:
                opened.kill()
        self.failures.update(failures)
        if launch is not None:
            # The times of a sliced launch lack what it has waited.
            lacking = plan.sliced and max(_waits(launch), default=0.0) > SLICED_MEAN_WAITING
            self.add(launch, times=not (brief or lacking))

    def add(self, launch: Launch, times: bool = True) -> None:
        """Add a launch, whose ``times`` count or not, to the evidence."""
        self._raced.append((launch, self.steps.works_on if times else None))

    def _open(self) -> ProcessLaunch:
        pair = self.config.pairs[self._opened % len(self.config.pairs)]
        self._opened += 1
        return self.launcher.open(self.entrants, pair)

    @property
    def abort_reason(self) -> str:
        """Reason for giving up the race: the last of too many disturbances, ``""`` if there were not too many."""
        return self.disturbed[-1] if len(self.disturbed) > self.policy.disturbed_launches else ""

    def thresholds(self, entrant: int) -> Thresholds:
        """Return those of the entrant's case; the stricter ones, if its reference is the case on another side.

        A change that loosens its own thresholds is thus judged by the thresholds before it.
        """
        return self._step_time(self._policy_of(entrant))

    @property
    def usual(self) -> Thresholds:
        """Those of a case without own ones."""
        return self._step_time(self.policy)

    def _step_time(self, policy: Policy) -> Thresholds:
        return policy.once if self.steps.once else policy.step_time

    def _policy_of(self, entrant: int, policy: Policy | None = None) -> Policy:
        others = [] if self._share_side(entrant, self.reference) else [self.entrants[self.reference or 0].case]
        return policy_of(policy or self.policy, self.entrants[entrant].case, *others)

    def conclude(self) -> None:
        """Decide the open comparisons from the present evidence, after an interruption."""
        self._look(-1.0)

    def _shown_by(self, prepared: Mapping[int, Prepared], seconds: float, brief: bool) -> Steps:
        """Return what is known about the steps after a preparation that took so many seconds.

        A brief launch has warmed nothing up, so it tells neither how long a call takes nor whether threads work ahead.
        """
        before = self.steps
        once = any(ready.facts.get(ONCE) for ready in prepared.values())
        known = replace(before, once=once, preparing=before.preparing + seconds)
        if brief:
            return known
        seen = {index for index, ready in prepared.items() if ready.works_on}
        # On a busy machine, threads that are about to rest may seem to work ahead. So later launches, which would all be
        # lost, count if all entrants show it, or one of them has shown it before.
        early = len(self.launches) < self.policy.looks[0] or len(seen) == len(prepared)
        works_on = before.works_on or bool(seen & before.seen_working_on or (seen and early))
        # Calls that found their results ready, and launches whose threads worked in the turns of others, are no measure.
        lasting = before.works_on == works_on
        iteration = dict(before.iteration) if lasting else {}
        untimed = dict(before.untimed)
        for index, ready in prepared.items():
            iteration.setdefault(index, ready.iteration)
            if ready.untimed is not None:
                untimed.setdefault(index, ready.untimed)
            if lasting and (runs := self.runs(index)):
                typical = fmean if works_on else median  # most calls may find their results ready
                found = median(typical(run.seconds) for run in runs)
                if iteration[index] > MISJUDGED * found:
                    iteration[index] = found
        seen_so_far = before.seen_working_on | seen
        return replace(known, iteration=iteration, untimed=untimed, works_on=works_on, seen_working_on=seen_so_far)

    def _plan(self, prepared: Mapping[int, Prepared], brief: bool = False) -> Plan:
        """Return the plan of a launch with this preparation. It changes nothing."""
        if self.steps.once:
            return launching.one_sample(self.entrants)
        known = self.steps.iteration
        iteration = {index: known.get(index, prepared[index].iteration) for index in sorted(prepared)}
        on_device = any(ready.on_device for ready in prepared.values())
        waiting = [ready.waiting for ready in prepared.values()]
        most = SLICED_WAITING * self.policy.tolerance
        # A step may wait in few of its calls, which the median of the warm-up does not show, and processor time lacks what
        # it waits. So the first launch of a long step takes turns, and all of them do once it has waited.
        waited = [share for launch in self.all_launches for share in _waits(launch)]
        rarely = bool(waited) and max(waited) <= SLICED_MEAN_WAITING
        sliceable = all(share is not None and share <= most for share in waiting) and rarely
        each = self.steps.preparing / self._opened  # a launch may have prepared for the next one as well
        waits = any(ready.waits for ready in prepared.values())
        plan = launching.make_plan(
            self.entrants, iteration, self.policy, on_device, each, sliceable, self.steps.untimed, self.steps.works_on,
            waits,
        )  # fmt: skip
        if brief:
            return replace(plan, rounds=1, blocks=1)
        round_seconds = launching.planned_seconds(plan, iteration) / plan.rounds
        if any(set(self._judged(entrant)) & {Statistic.TAIL, Statistic.MEAN} for entrant in prepared):
            # Enough rounds to see calls that are rarely slow.
            plan = replace(plan, rounds=max(plan.rounds, self._rounds_wanted(plan, round_seconds)))
        if self.launches:
            plan = self._allocated(plan, round_seconds)
        return launching.with_whole_turns(plan)

    def _rounds_wanted(self, plan: Plan, round_seconds: float) -> int:
        """Rounds of a launch of which the launches up to the first look have enough to see slow calls, where they are cheap."""
        rounds, looks = max(1.0, len(self.working) / 2) / max(round_seconds, 1e-9), self.policy.looks[0]
        rare = math.ceil(self.policy.rare_calls / looks / max(1, min(filter(None, plan.iterations), default=1)))
        tail = min(math.ceil(TAIL_ROUNDS / looks), math.floor(TAIL_LAUNCH_SECONDS * rounds))
        return max(tail, rare if rare <= RARE_LAUNCH_SECONDS * rounds else 0)

    def _allocated(self, plan: Plan, round_seconds: float) -> Plan:
        """Return the plan with the rounds that lower the error of an open comparison most per second."""
        rounds = [max(len(run.seconds) for run in launch.runs if run) for launch in self.launches]
        start = fmean(launch.wall_seconds for launch in self.launches) - fmean(rounds) * round_seconds
        start = max(start, round_seconds)
        best = [
            best_rounds(effects, rounds, self.thresholds(entrant).launch_deviation, start, round_seconds)
            for entrant in self.undecided
            if len(effects := self.effects(entrant, statistic=self._open_statistic(entrant))) == len(rounds)
        ]
        least, most = ROUNDS_ALLOCATED
        if len(self.launches) < self.policy.looks[0]:
            least, most = max(least, min(1.0, self._rounds_wanted(plan, round_seconds) / plan.rounds)), 1.0
        if any(map(self._shifts, self.undecided)):
            least = max(least, max(rounds) / plan.rounds)
            most = max(least, most)
        wanted = min(max(max(best, default=plan.rounds), least * plan.rounds), most * plan.rounds)
        return replace(plan, rounds=max(min(self.policy.rounds_min, plan.rounds), round(wanted)))

    @property
    def _scatters(self) -> bool:
        """Return whether the launches of two sides differ by much more than is usual and their rounds explain, or rounds do."""
        if len({entrant.case.variant for entrant in self.entrants}) > 1:
            return False
        effects = [self.effects(entrant) for entrant in self.undecided]
        usual, most = self.usual.launch_deviation, EQUAL_CALLS_ERROR * self.usual.tolerance
        return any(
            len(some) > 1 and (scatter(some, usual) > EQUAL_CALLS_SCATTER or verdict.pooled(some)[0].error > most)
            for some in effects
        )

    def _shifts(self, entrant: int) -> bool:
        """Return whether the ratio changes within launches, so that later ones must not be shorter."""
        pairs = [(launch.runs[entrant], launch.runs[self.reference or 0]) for launch in self.launches]
        ratios = [log_ratios(theirs.seconds, mine.seconds) for mine, theirs in pairs if mine and theirs]
        return shifts(ratios, self.thresholds(entrant).minimum_effect)

    def _look(self, limit: float) -> None:
        """Decide the open comparisons, finally if the race has taken ``limit`` seconds."""
        for entrant in self.undecided:
            launches = len(self.effects(entrant))
            last = self.wall_seconds > limit or launches >= self.policy.looks[-1]
            if launches and (last or launches in self.policy.looks):
                decision = self._decide(entrant, last)
                if decision.outcome is None and self._hopeless(entrant, limit):
                    decision = self._decide(entrant, True)
                if decision.outcome is Outcome.INCONCLUSIVE:
                    decision = replace(decision, reason=self._with_cost(entrant, decision.reason))
                self._decided.setdefault(self._basis, {})[entrant] = decision

    def _judged(self, entrant: int) -> tuple[Statistic, ...]:
        """Return what is judged about the time of this entrant."""
        if self.config.confirms:
            return (self.config.confirms,)
        if self.steps.once or self._share_side(entrant, self.reference):
            # A launch has one sample, or variants are compared, whose calls may well be unlike.
            return (Statistic.MEDIAN,)
        return STATISTICS[self._policy_of(entrant).statistic]

    def _open_statistic(self, entrant: int) -> Statistic:
        """Return what the next launches have to decide about this entrant."""
        judged = self._judged(entrant)
        return next((one for one in judged if (self._basis, entrant, one) not in self._proved), judged[-1])

    def _decide(self, entrant: int, final: bool) -> verdict.Decision:
        decision, thresholds = self._by_time(entrant, final), self._thresholds(entrant, Statistic.MEDIAN)
        if Statistic.TAIL in self._judged(entrant):
            effects = verdict.pooled(self.effects(entrant, statistic=Statistic.MEAN))
            mean = verdict.compare(effects, self.rounds(entrant), self._terms(entrant, Statistic.TAIL, MEAN_ALPHA))
            decision = verdict.with_mean(decision, mean, effects, self._thresholds(entrant, Statistic.TAIL), final)
        sides = self.runs(self.reference or 0), self.runs(entrant)
        if verdict.leaves_work(sides[1], thresholds) and all(BESIDE in run.facts for run in (*sides[0], *sides[1])):
            effects = verdict.pooled(self.effects(entrant, statistic=Statistic.WHOLE))
            whole = verdict.compare(effects, self.rounds(entrant), self._terms(entrant, Statistic.MEDIAN))
            decision = verdict.with_work_beside(decision, whole, thresholds, sides, final)
        return verdict.with_settings(verdict.with_retraces(decision, sides[1]), *sides)

    def _by_time(self, entrant: int, final: bool) -> verdict.Decision:
        first, *others = (self._by(entrant, statistic, final) for statistic in self._judged(entrant))
        if others:
            return verdict.with_tail(first, others[0], self._thresholds(entrant, Statistic.TAIL), final, TAIL_ROUNDS)
        if self._has_slow_calls(entrant, first.statistic):
            return verdict.of_tail(first) if first.statistic is Statistic.TAIL else verdict.of_mean(first)
        return first

    def _terms(self, entrant: int, noise: Statistic, share: float = 1.0) -> verdict.Terms:
        """Return how this entrant is compared, with the noise of a statistic."""
        shared, thresholds = self.share_zygote(entrant, self.reference), self._thresholds(entrant, noise)
        return verdict.Terms(self.policy, self.config.cases, shared, thresholds, share)

    def _has_slow_calls(self, entrant: int, statistic: Statistic) -> bool:
        """Return whether a statistic is about slow calls beside the median: the tail, or the mean if it does not decide alone."""
        alone = STATISTICS[self._policy_of(entrant).statistic]
        return statistic is Statistic.TAIL or (statistic is Statistic.MEAN and statistic not in alone)

    def _thresholds(self, entrant: int, statistic: Statistic, policy: Policy | None = None) -> Thresholds:
        own = self._policy_of(entrant, policy)
        usual = own.tail_time if self._has_slow_calls(entrant, statistic) else self._step_time(own)
        return usual.confirming() if self.config.confirms else usual

    def _by(self, entrant: int, statistic: Statistic, final: bool) -> verdict.Decision:
        """Decide by one statistic. What an earlier look has proved stays proved, unless the case regresses."""
        effects = self.effects(entrant, statistic=statistic)
        share = 1.0
        if len(self._judged(entrant)) > 1:
            share = TAIL_ALPHA if statistic is Statistic.TAIL else 1 - TAIL_ALPHA - MEAN_ALPHA
        evidence, rounds = effects if statistic is Statistic.MEDIAN else verdict.pooled(effects), self.rounds(entrant)
        decision = verdict.decide(evidence, rounds, self._terms(entrant, statistic, share), final)
        tail = decision.comparison.ratio if statistic is Statistic.TAIL else None
        decision = replace(decision, statistic=statistic, tail=tail)
        if decision.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED):
            return self._proved.setdefault((self._basis, entrant, statistic), decision)
        if decision.outcome is Outcome.REGRESSED:
            return decision
        return self._proved.get((self._basis, entrant, statistic), decision)

    def _hopeless(self, entrant: int, limit: float) -> bool:
        """Return whether a decision is out of reach."""
        done, each = len(self.launches), self.wall_seconds / len(self.all_launches)
        reach = min(self.policy.looks[-1], done + (limit - self.wall_seconds) / max(each, 1e-9))
        return done >= self.config.patience and self._needed(entrant, self.policy) > self.policy.hopeless * reach

    def _needed(self, entrant: int, policy: Policy) -> float:
        """Estimate the launches that a decision takes by the thresholds of a policy."""
        statistic = self._open_statistic(entrant)
        effects = self.effects(entrant, statistic=statistic)
        return verdict.launches_needed(effects, self._thresholds(entrant, statistic, policy), policy.clip)

    def _with_cost(self, entrant: int, reason: Reason) -> Reason:
        """Return the reason of an open case with what a decision would cost, if more launches can decide it."""
        if reason.code not in (ReasonCode.NOT_DECIDED, ReasonCode.TAIL_NOT_DECIDED) or not reason.facts:
            return reason
        strict, done, each = preset("strict"), len(self.launches), self.wall_seconds / len(self.all_launches)
        needed, more = self._needed(entrant, self.policy), max(done, self._needed(entrant, strict))
        # What should have sufficed by the estimate has not, because the interval is wider.
        needed = 2.0 * done if 0 < needed <= done else needed
        cost: dict[str, Any] = {
            "policy": self.policy.name,
            "needed": min(needed, LARGEST),
            "seconds": min(needed * each, LARGEST),
        }
        reach = min(strict.looks[-1], strict.case_seconds / max(each, 1e-9))
        if needed and self.policy.minimum_effect > strict.minimum_effect and more <= reach:
            cost["strict"] = (more, more * each)
        return because(ReasonCode(reason.code), *reason.notes, **{**reason.facts, **cost})
