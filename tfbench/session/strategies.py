"""Decide what each case races against: the other variants, a live side, or the side of a saved baseline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from tfbench.model import Case, MetricValues, Outcome, Reason, Verdict
from tfbench.race.interfaces import Entrant
from tfbench.session.baseline import (
    ALL,
    CHANGED,
    SIDES,
    VARIANTS,
    SavedTimeFilter,
    changed_since,
    describe,
    environment_differences,
    machine_differences,
    not_saved,
)
from tfbench.session.metric_checks import ReferenceSide
from tfbench.session.missing import missing
from tfbench.session.races import RaceResults, Races
from tfbench.session.reason_codes import ReasonCode
from tfbench.session.request import CaseResult, ProgressReporter, RunRequest
from tfbench.session.side_starter import SideStarter
from tfbench.sides.counterparts import Counterparts, benchmarks_of
from tfbench.sides.side import Side
from tfbench.storage.baselines import Baseline
from tfbench.storage.history import History


class Strategy(ABC):
    """What the cases of a run race against, chosen once at its start."""

    way = VARIANTS
    """What the run times: ``variants`` racing each other, or two ``sides``."""
    rival: Side | None = None
    """The side that the contender races against, if any."""

    def __init__(self, request: RunRequest, contender: Side, starter: SideStarter, races: Races) -> None:
        self.notes: list[str] = []
        self._request = request
        self._contender = contender
        self._starter = starter
        self._races = races

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

    def missing(self) -> list[Verdict]:
        """Return a verdict for each case that the other side has and this run lacks."""
        return []


class VariantStrategy(Strategy):
    """Race the variants of each workload against each other."""

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        self._starter.start(group, self._contender)
        return self._races.variants(group)


class LiveSideStrategy(Strategy):
    """Race each case against its counterpart on a live side.

    Args:
        cases: All cases of the run, to be matched with the cases of another source tree.
    """

    way = SIDES

    def __init__(
        self,
        request: RunRequest,
        contender: Side,
        starter: SideStarter,
        races: Races,
        rival: Side,
        cases: Sequence[Case],
        report: ProgressReporter,
    ) -> None:
        super().__init__(request, contender, starter, races)
        self.rival: Side = rival
        self._cases = cases
        self._report = report
        self._counterparts: Counterparts | None = None
        """The cases of the rival's source tree, if it has its own."""

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        if self.rival.tree_redirect and self._counterparts is None:
            self._collect_rival()
        self._starter.start(group, self._contender, self.rival)
        there = self._counterpart(case)
        if there is None:
            text = f"{self.rival.spec} does not have it, so there is nothing to compare it with"
            return self._races.alone(case, Reason(ReasonCode.NOT_IN_BASELINE, text))
        note = f"it is called {there.name} there" if there.name != case.name else ""
        return self._races.sides(case, self.rival, note, there)

    def _collect_rival(self) -> None:
        """Collect the benchmarks of the rival's source tree, whose files its zygotes must import."""
        self._report(f"collecting the benchmarks of {self.rival.spec}")
        request = self._request
        before = benchmarks_of(self.rival, request.selection, request.paths, request.collect_command)
        self._counterparts = Counterparts(before, self._cases)
        self.rival = replace(self.rival, files=tuple(dict.fromkeys(name.partition("::")[0] for name in before)))

    def _counterpart(self, case: Case) -> Case | None:
        return self._counterparts.of(case) if self._counterparts else case

    def rival_entrant(self, case: Case) -> Entrant | None:
        there = self._counterpart(case)
        return Entrant(there, self.rival) if there else None

    def reference_side(self, result: CaseResult) -> ReferenceSide | None:
        if (there := self._counterpart(result.case)) is None:
            return None
        rival, here = (self._starter.environment_info(side) for side in (self.rival, self._contender))
        return ReferenceSide(
            side=self.rival,
            case=there,
            facts=[run.facts for run in result.rival.runs] if result.rival else [],
            differences=environment_differences(rival, here),
        )

    def missing(self) -> list[Verdict]:
        if self._counterparts is None:
            return []
        gone = self._counterparts.gone(self._request.collected)
        return missing(
            self._request,
            gone,
            f"in {self._request.against} but no longer collected; was it deleted, or renamed and changed?",
        )


class SavedBaselineStrategy(Strategy):
    """Judge cases against a saved baseline: by a live race of its recreated side, by its saved times, or by both.

    Args:
        saved: The baseline.
        recreated: The baseline's side, or why it cannot be recreated; ``None`` under ``--replay never``.
        sharing: Number of cases that share the run's alpha.
    """

    def __init__(
        self,
        request: RunRequest,
        contender: Side,
        starter: SideStarter,
        races: Races,
        saved: Baseline,
        recreated: Side | Reason | None,
        history: History,
        sharing: int,
    ) -> None:
        super().__init__(request, contender, starter, races)
        self.saved = saved
        self.rival = recreated if isinstance(recreated, Side) else None
        self._unmade = recreated if isinstance(recreated, Reason) else None
        self._history = history
        self._sharing = sharing
        self._filter: SavedTimeFilter | None = None
        """Made when the contender has started, whose environment it needs."""
        if self.rival and request.replay == ALL:
            self.way = SIDES

    def race(self, case: Case, group: Sequence[Case]) -> RaceResults:
        self._starter.start(group, self._contender)
        if self._filter is None:
            self._filter = self._make_filter()
            if self.rival and self._filter.differences:
                self.way = SIDES  # saved times settle nothing here, so every case is a suspect
        if self.way == SIDES:
            return self.replay(case)
        raced = self._races.variants(group)
        settled, suspects = self._filter.settle(raced.settled)
        return replace(raced, settled=settled, suspects=suspects)

    def _make_filter(self) -> SavedTimeFilter:
        records, unreadable = self._history.read()
        self.notes += unreadable
        here, policy = self._starter.environment_info(self._contender), self._request.policy
        return SavedTimeFilter(self.saved, records, here, policy, self._sharing, self.rival is not None, self._unmade)

    def replay(self, case: Case) -> RaceResults:
        assert self.rival is not None
        if case.name not in self.saved.samples:
            return self._races.alone(case, not_saved(self.saved))
        self._starter.start([case], self.rival)
        recreated = self._starter.environment_info(self.rival)
        if differences := environment_differences(self.saved.environment, recreated):
            text = f"{describe(self.saved)} could not be recreated as it was: {'; '.join(differences)}"
            verdict = Verdict(case, Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_ENVIRONMENT, text))
            return RaceResults([CaseResult(case, verdict)])
        return self._races.sides(case, self.rival, CHANGED if changed_since(self.saved, case) else "")

    def reference_side(self, result: CaseResult) -> ReferenceSide:
        """Compare with the saved metrics, and with the memory of the live race if there was one."""
        saved, case = self.saved, result.case
        sample = result.rival or saved.samples.get(case.name)
        here = self._starter.environment_info(self._contender)
        changed = [CHANGED] if case.name in saved.samples and changed_since(saved, case) else []
        return ReferenceSide(
            metric_values=saved.metric_values.get(case.name, MetricValues()),
            facts=[run.facts for run in sample.runs] if sample else [],
            differences=[*environment_differences(saved.environment, here), *changed],
            machines=machine_differences(saved.environment, here),
        )

    def missing(self) -> list[Verdict]:
        gone = [sample.case for name, sample in self.saved.samples.items() if name not in self._request.collected]
        return missing(
            self._request,
            gone,
            f"in the baseline {self.saved.name!r} but no longer collected; was it deleted or renamed?",
        )
