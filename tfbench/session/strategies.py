"""Decide what each case races against: the other variants, a live side, or the side of a saved baseline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tfbench.model import Case, MetricValues, Outcome, Reason, ReasonCode, Verdict
from tfbench.race.interfaces import Entrant
from tfbench.race.stopwatch import Phase
from tfbench.session.baseline import (
    ALL,
    CHANGED,
    SIDES,
    VARIANTS,
    SavedTimeFilter,
    changed_since,
    environment_differences,
    machine_differences,
    not_saved,
)
from tfbench.session.changed_only import ChangedOnly
from tfbench.session.metric_checks import ReferenceSide
from tfbench.session.missing import missing
from tfbench.session.races import RaceResults, Races
from tfbench.session.request import CaseResult, ProgressReporter, RunRequest
from tfbench.session.side_starter import SideStarter
from tfbench.sides.counterparts import Counterparts, benchmarks_of
from tfbench.sides.side import Side
from tfbench.storage.baselines import Baseline, describe
from tfbench.storage.histories import AnyHistory


@dataclass
class Strategy(ABC):
    """What the cases of a run race against, chosen once at its start."""

    request: RunRequest
    contender: Side
    starter: SideStarter
    races: Races
    notes: list[str] = field(default_factory=list, init=False)

    @property
    def way(self) -> str:
        """What the run times: ``variants`` that race each other, or two ``sides``."""
        return VARIANTS

    @property
    def rival(self) -> Side | None:
        """The side that the contender races against, if any."""
        return None

    @property
    def saved_at(self) -> str:
        """When the baseline that the cases are compared with was saved, ``""`` without one."""
        return ""

    def group_of(self, case: Case) -> str:
        """Name the group of cases that one race measures."""
        return case.group if self.way == VARIANTS else case.name

    @abstractmethod
    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        """Race this case, with its whole group where variants race each other.

        Raises:
            SideError: A side does not start.
        """

    def replay(self, case: Case) -> RaceResults:
        """Race a suspect live.

        Raises:
            SideError: A side does not start.
        """
        raise NotImplementedError("only a saved baseline leaves suspects")

    def rival_entrant(self, case: Case) -> Entrant | None:
        """Return the case's counterpart on the rival side, if there is a rival."""
        return Entrant(case, self.rival) if self.rival else None

    def reference_side(self, result: CaseResult) -> ReferenceSide | None:
        """Return what the other metrics of a case are compared with, ``None`` without a counterpart."""
        return None

    def skipped(self, case: Case, reason: str) -> CaseResult:
        """Return the result of a case that cannot run here, and not on a live side either."""
        return CaseResult(case, skip=reason or "no reason given")

    def skipped_by_mark(self, case: Case, reason: str) -> CaseResult:
        """Return the result of a case that pytest skips here; the other side may run it.

        Raises:
            SideError: The other side's benchmarks cannot be collected.
        """
        return self.skipped(case, reason)

    def conclude(self) -> None:  # noqa: B027 - variants have no other side
        """Find out what `missing` needs, also in a run that raced nothing.

        Raises:
            SideError: The other side's benchmarks cannot be collected.
        """

    def missing(self) -> list[Verdict]:
        """Return a verdict for each case that the other side would run and this run lacks, as far as it is known."""
        return []


class VariantStrategy(Strategy):
    """Race the variants of each workload against each other."""

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        self.starter.start(group, self.contender)
        return self.races.variants(group)


@dataclass
class LiveSideStrategy(Strategy):
    """Race each case against its counterpart on a live side.

    Args:
        side: The live side.
        cases: All cases of the run, to be matched with the cases of another source tree.
    """

    side: Side
    cases: Sequence[Case]
    report: ProgressReporter
    changed_only: ChangedOnly | None = None
    """What spares races of cases with the same code, if the user asks for it."""
    counterparts: Counterparts | None = field(default=None, init=False)
    """The cases of the live side's source tree, if it has its own."""

    @property
    def way(self) -> str:
        return SIDES

    @property
    def rival(self) -> Side:
        return self.side

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        self._collect_side()
        self.starter.start(group, self.contender, self.side)
        there = self._counterpart(case)
        if there is None:
            text = f"{self.side.spec} does not have it, so there is nothing to compare it with"
            return self.races.alone(case, Reason(ReasonCode.NOT_IN_BASELINE, text))
        if (rule := self.changed_only) is not None:
            spared = rule.spares(case, self.side, there, self._differences())
            self.notes[:] = sorted(rule.notes)
            if spared:
                return RaceResults([CaseResult(case, Verdict(case, Outcome.NEW, spared))])
        note = f"it is called {there.name} there" if there.name != case.name else ""
        return self.races.sides(case, self.side, note, there)

    def _collect_side(self) -> None:
        """Collect the benchmarks of the live side's source tree, if it has one, whose files its zygotes must import."""
        if not self.side.tree_redirect or self.counterparts is not None:
            return
        self.report(f"collecting the benchmarks of {self.side.spec}")
        request = self.request
        with self.starter.launcher.stopwatch.phase(Phase.STARTING):
            before = benchmarks_of(self.side, request.selection, request.collect_command, request.policy.start_seconds)
        self.counterparts = Counterparts(before, request.suite_cases, request.collected)
        names = [there.name for case in self.cases if (there := self.counterparts.of(case))]
        self.side = replace(self.side, files=tuple(dict.fromkeys(name.partition("::")[0] for name in names)))

    def skipped_by_mark(self, case: Case, reason: str) -> CaseResult:
        self._collect_side()
        if self.counterparts is None or not self.counterparts.runs(case):
            return self.skipped(case, reason)
        return _skipped_here(case, f"{self.side.spec} runs it", reason)

    def _counterpart(self, case: Case) -> Case | None:
        return self.counterparts.of(case) if self.counterparts else case

    def rival_entrant(self, case: Case) -> Entrant | None:
        there = self._counterpart(case)
        return Entrant(there, self.side) if there else None

    def reference_side(self, result: CaseResult) -> ReferenceSide | None:
        if (there := self._counterpart(result.case)) is None:
            return None
        return ReferenceSide(
            side=self.side,
            case=there,
            facts=[run.facts for run in result.rival.runs] if result.rival else [],
            differences=self._differences(),
        )

    def _differences(self) -> list[str]:
        rival, here = (self.starter.environment_info(side) for side in (self.side, self.contender))
        return environment_differences(rival, here)

    def conclude(self) -> None:
        self._collect_side()

    def missing(self) -> list[Verdict]:
        if self.counterparts is None:
            return []
        against = self.request.against
        return missing(
            self.request,
            self.counterparts.gone(self.request.known),
            f"in {against} but no longer collected; was it deleted, or renamed and changed?",
            f"{against} runs it under the same options, and it is deselected here; {_DESELECTING}",
        )


@dataclass
class SavedBaselineStrategy(Strategy):
    """Judge cases against a saved baseline: by a live race of its recreated side, by its saved times, or by both.

    Args:
        saved: The baseline.
        recreated: The baseline's side, or why it cannot be recreated; ``None`` under ``--replay never``.
        sharing: Number of cases that share the run's alpha.
    """

    saved: Baseline
    recreated: Side | Reason | None
    history: AnyHistory
    sharing: int
    source: Callable[[], Side | Reason]
    """Returns a side with the baseline's source tree, or why that is impossible."""
    time_filter: SavedTimeFilter | None = field(default=None, init=False)
    """Made when the contender has started, since it needs the contender's environment."""
    _selected: Callable[[str], bool] | None = field(default=None, init=False)
    """Tells whether the baseline's tree selects a case that is deselected here; ``None`` as long as it is not known."""
    _unknown: str = field(default="", init=False)
    """Why that cannot be told."""

    @property
    def rival(self) -> Side | None:
        return self.recreated if isinstance(self.recreated, Side) else None

    @property
    def saved_at(self) -> str:
        return self.saved.saved

    @property
    def way(self) -> str:
        # In another environment saved times settle nothing, so every case is a suspect from the start.
        differs = self.time_filter is not None and bool(self.time_filter.differences)
        return SIDES if self.rival and (self.request.replay == ALL or differs) else VARIANTS

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        self.starter.start(group, self.contender)
        if self.time_filter is None:
            self.time_filter = self._make_filter()
        if self.way == SIDES:
            return self.replay(case)
        raced = self.races.variants(group)
        settled, suspects = self.time_filter.settle(raced.settled)
        return replace(raced, settled=settled, suspects=suspects)

    def _make_filter(self) -> SavedTimeFilter:
        records, unreadable = self.history.read()
        self.notes += unreadable
        here, policy = self.starter.environment_info(self.contender), self.request.policy
        unmade = self.recreated if isinstance(self.recreated, Reason) else None
        return SavedTimeFilter(self.saved, records, here, policy, self.sharing, self.rival is not None, unmade)

    def replay(self, case: Case) -> RaceResults:
        assert self.rival is not None
        if case.name not in self.saved.samples:
            return self.races.alone(case, not_saved(self.saved))
        self.starter.start([case], self.rival)
        recreated = self.starter.environment_info(self.rival)
        if differences := environment_differences(self.saved.environment, recreated):
            text = f"{describe(self.saved)} could not be recreated as it was: {'; '.join(differences)}"
            verdict = Verdict(case, Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_ENVIRONMENT, text))
            return RaceResults([CaseResult(case, verdict)])
        known = self.saved.samples[case.name].case
        there = replace(case, thresholds=known.thresholds, statistic=known.statistic)
        return self.races.sides(case, self.rival, CHANGED if changed_since(self.saved, case) else "", there)

    def reference_side(self, result: CaseResult) -> ReferenceSide:
        """Compare with the saved metrics, and with the memory of the live race if there was one."""
        saved, case = self.saved, result.case
        sample = result.rival or saved.samples.get(case.name)
        here = self.starter.environment_info(self.contender)
        changed = [CHANGED] if case.name in saved.samples and changed_since(saved, case) else []
        return ReferenceSide(
            metric_values=saved.metric_values.get(case.name, MetricValues()),
            facts=[run.facts for run in sample.runs] if sample else [],
            differences=[*environment_differences(saved.environment, here), *changed],
            machines=machine_differences(saved.environment, here),
        )

    def skipped(self, case: Case, reason: str) -> CaseResult:
        if case.name not in self.saved.samples:
            return super().skipped(case, reason)
        return _skipped_here(case, f"measured in the baseline {self.saved.name!r}", reason)

    def conclude(self) -> None:
        request = self.request
        if self._selected is not None or not self._absent.intersection(request.collected):
            return  # no doubt, so the tree need not be collected
        side = self.source()
        if isinstance(side, Reason):
            self._unknown = side.message
            self._selected = lambda name: True
        elif not side.tree_redirect:
            self._selected = lambda name: False  # the same code is deselected on both sides
        else:
            there = benchmarks_of(side, request.selection, request.collect_command, request.policy.start_seconds)
            self._selected = lambda name: name not in there or there[name].selected

    @property
    def _absent(self) -> set[str]:
        """Names of the saved cases that this run does not measure."""
        return {name for name in self.saved.samples if self.request.selection.has(name)} - self.request.known

    def missing(self) -> list[Verdict]:
        selected, collected = self._selected or (lambda name: False), self.request.collected
        gone = [name for name in self._absent if name not in collected or selected(name)]
        saved = f"the baseline {self.saved.name!r}"
        why = f"{saved} has it and its code runs it under the same options, and it is deselected here; {_DESELECTING}"
        if self._unknown:
            why = f"{saved} has it, it is deselected here, and whether its code runs it is unknown: {self._unknown}"
        return missing(
            self.request,
            [self.saved.samples[name].case for name in gone],
            f"in {saved} but no longer collected; was it deleted or renamed?",
            why,
        )


_DESELECTING = "was it marked, or does a conftest.py or an option in the configuration leave it out?"


def _skipped_here(case: Case, other: str, reason: str) -> CaseResult:
    text = f"skipped here, and {other}: {reason}"
    return CaseResult(case, Verdict(case, Outcome.INCOMPARABLE, Reason(ReasonCode.SKIPPED_ON_ONE_SIDE, text)))
