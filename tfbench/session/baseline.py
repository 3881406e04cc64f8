"""How the cases of a saved baseline are judged: its side made again and raced, or its times held against earlier ones."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tfbench.errors import SideError
from tfbench.metrics.catalog import GPU_CLOCK
from tfbench.model import Case, EnvironmentInfo, Outcome, Reason, ReasonCode, Sample, Verdict
from tfbench.policy import Policy
from tfbench.session.request import CaseResult
from tfbench.sides.environments import Environments
from tfbench.sides.interpreters import minor
from tfbench.sides.side import Side
from tfbench.sides.source_tree import materialise, snapshot
from tfbench.stats.prediction import evaluate
from tfbench.storage.baselines import Baseline
from tfbench.storage.history import SessionRecord
from tfbench.worker.environment import VISIBLE, packages, settings

ALL, SUSPECTS, NEVER = CHOICES = ("all", "suspects", "never")
"""What is raced again: every case; those that saved times do not settle; none."""
VARIANTS, SIDES = "variants", "sides"
"""What raced each other when times were taken."""


def not_saved(saved: Baseline) -> Reason:
    """Why a case has no comparison."""
    text = f"it is not in the baseline {saved.name!r}, so there is nothing to compare it with"
    return Reason(ReasonCode.NOT_IN_BASELINE, text)


def describe(saved: Baseline) -> str:
    """How a baseline is called in reasons."""
    return f"baseline {saved.name!r} of {saved.saved}"


# Making its side again


def recreate_side(saved: Baseline, contender: Side, cache: Path, environments: Environments) -> Side | Reason:
    """A side with the baseline's source tree, packages and settings, or why there can be none.

    Args:
        cache: Folder for source trees that have to be made.
        environments: Where packages are installed that are not those of this process.
    """
    spec = describe(saved)
    here = snapshot(contender.root)
    root, tree_redirect = contender.root, None
    if here is not None and here.tree == saved.tree:
        pass
    elif not saved.tree:
        text = f"{spec} was saved outside version control, so its code cannot be made again; save it in a git checkout"
        return Reason(ReasonCode.NO_SOURCE, text)
    else:
        try:
            made = materialise(contender.root, saved.tree, cache)
            root, tree_redirect = made.root, (made.top, made.instead)
        except SideError as error:
            return Reason(ReasonCode.NO_SOURCE, f"{spec}: {error}")
    try:
        executable = _executable(saved.environment, contender, environments)
    except SideError as error:
        return Reason(ReasonCode.NO_ENVIRONMENT, f"{spec}: its environment cannot be made again: {error}")
    there, now = dict(saved.environment.settings), {**settings(), **contender.env}
    there |= {name: contender.env[name] for name in VISIBLE if name in contender.env and name not in there}
    unset = tuple(name for name in now if name not in there)
    return Side("baseline", executable, root, spec, there, tree_redirect=tree_redirect, unset=unset)


def _executable(saved: EnvironmentInfo, contender: Side, environments: Environments) -> str:
    """An interpreter with the packages of a baseline: this one, where it has the same."""
    if saved.packages == packages() and minor(saved.python) == minor(platform.python_version()):
        return contender.executable
    environments.prefer([], minor(saved.python))
    return environments.get([f"{name}=={version}" for name, version in saved.packages.items()]).executable


def environment_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """How an environment is not the baseline's, one phrase each."""
    found = []
    if minor(saved.python) != minor(now.python):
        found.append(f"Python {saved.python} there, {now.python} here")
    found += _differences(saved.packages, now.packages, "not installed")
    found += _differences(saved.settings, now.settings, "not set")
    return found


def machine_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """How the machines differ, one phrase each; matters only to times that are not raced again."""
    found = _differences(saved.machine, now.machine, "unknown")
    if saved.python != now.python and minor(saved.python) == minor(now.python):
        found.append(f"Python {saved.python} there, {now.python} here")
    if saved.threads != now.threads:
        found.append(f"threads {saved.threads} there, {now.threads} here")
    return found


def _differences(there: Mapping[str, str], here: Mapping[str, str], absent: str) -> list[str]:
    return [
        f"{name} {there.get(name, absent)} there, {here.get(name, absent)} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    ]


def changed_since(saved: Baseline, case: Case) -> bool:
    """Whether the benchmark's own code is another than when it was saved; no, where that is not known."""
    before = saved.samples[case.name].case.source
    return bool(before and case.source and before != case.source)


def clock(sample: Sample) -> float | None:
    """MHz at which a GPU ran while a case was timed; ``None`` if no GPU was watched."""
    clocks = [run.facts[GPU_CLOCK] for run in sample.runs if GPU_CLOCK in run.facts]
    return median(clocks) if clocks else None


CHANGED = "the benchmark's own code has changed since the baseline was saved"


# Judging without racing


class SavedTimeFilter:
    """Judges cases by their saved times, which need the same machine and environment.

    Args:
        records: Every session that is known; those that are not comparable are left out.
        now: The recipe of this run, whose times are taken where variants race each other.
        cases: Cases of the whole run, which share its alpha.
        live: Whether what saved times do not settle can be raced.
        unmade: Why it cannot be, if somebody tried.
    """

    def __init__(
        self,
        saved: Baseline,
        records: Sequence[SessionRecord],
        now: EnvironmentInfo,
        policy: Policy,
        cases: int,
        live: bool,
        unmade: Reason | None,
    ) -> None:
        self.saved = saved
        self.differences = machine_differences(saved.environment, now) + environment_differences(saved.environment, now)
        """How this machine and environment are not the baseline's."""
        self._policy = policy
        self._cases = cases
        self._live = live
        self._unmade = unmade
        self._records = [
            one
            for one in records
            if one.context.session != saved.context.session
            and (one.context.policy, one.context.way) == (policy.name, VARIANTS)
            and not machine_differences(one.context.environment, now)
            + environment_differences(one.context.environment, now)
        ]

    def settle(self, results: Sequence[CaseResult]) -> tuple[list[CaseResult], list[CaseResult]]:
        """What saved times settle of cases that were measured beside other variants, and the suspects.

        Results that a race of sides or a failure has settled are left as they are.
        """
        settled, suspects = [], []
        for result in results:
            case, verdict = result.case, result.verdict
            if verdict is None or result.sample is None or result.variant_result is None:
                settled.append(result)
            elif case.name not in self.saved.samples:
                settled.append(replace(result, verdict=replace(verdict, reason=not_saved(self.saved))))
            else:
                judged = self.evaluate(case, result.sample, verdict.wall_seconds)
                if judged.outcome is Outcome.UNCHANGED or not self._live:
                    settled.append(replace(result, verdict=self._explained(judged)))
                else:
                    suspects.append(result)
        return settled, suspects

    def _explained(self, verdict: Verdict) -> Verdict:
        """With why it was not raced, or how to, where saved times did not settle it."""
        more = self._unmade.message if self._unmade else ""
        if verdict.outcome is Outcome.INCONCLUSIVE:
            more = more or "race it with --replay all"
        if verdict.outcome not in (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE) or not more:
            return verdict
        return replace(verdict, reason=Reason(verdict.reason.code, f"{verdict.reason.message}; {more}"))

    def evaluate(self, case: Case, sample: Sample, wall_seconds: float) -> Verdict:
        """The verdict on a case that was measured just now, beside the other variants of its workload."""
        if (refused := self._refused(case, sample)) is not None:
            outcome, reason = refused
            return Verdict(case, outcome, reason, launches=len(sample.runs), wall_seconds=wall_seconds)
        here = [one for one in self._records if case.name in one.floors and one.sources.get(case.name) == case.source]
        own = [one.floors[case.name] for one in here if one.context.tree and one.context.tree == self.saved.tree]
        others = [one.floors[case.name] for one in here if not one.context.tree or one.context.tree != self.saved.tree]
        decision = evaluate(
            sample.floors,
            [self.saved.samples[case.name].floors, *own],
            others,
            len(sample.seconds),
            self._policy,
            self._cases,
        )
        assert decision.outcome is not None
        return Verdict(
            case=case,
            outcome=decision.outcome,
            reason=decision.reason,
            ratio=decision.comparison.ratio,
            launches=decision.comparison.launches,
            rounds=decision.comparison.rounds,
            wall_seconds=wall_seconds,
        )

    def _refused(self, case: Case, sample: Sample) -> tuple[Outcome, Reason] | None:
        spec, context = describe(self.saved), self.saved.context
        if self.differences:
            text = f"{spec} is of another machine or environment: {'; '.join(self.differences)}"
            return Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_MACHINE, text)
        if changed_since(self.saved, case):
            return Outcome.INCOMPARABLE, Reason(
                ReasonCode.BENCHMARK_CHANGED, f"{CHANGED}, so its saved times say nothing"
            )
        before, now = clock(self.saved.samples[case.name]), clock(sample)
        if before and now and abs(now / before - 1) > self._policy.gpu_clock_drift:
            text = f"{spec} was measured with the GPU at {before:.0f} MHz, and now it runs at {now:.0f} MHz"
            return Outcome.INCOMPARABLE, Reason(
                ReasonCode.OTHER_CLOCK, f"{text}: lock its clock with sudo nvidia-smi -lgc RATE"
            )
        if (context.policy, context.way) != (self._policy.name, VARIANTS):
            how = f"policy {context.policy or 'unknown'}{' and against another side' * (context.way == SIDES)}"
            text = f"{spec} was measured with {how}, so its times are not like these"
            return Outcome.INCONCLUSIVE, Reason(ReasonCode.OTHER_METHOD, text)
        return None
