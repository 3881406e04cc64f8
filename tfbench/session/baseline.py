"""Recreate the side of a saved baseline, and judge cases by its saved times."""

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
from tfbench.sides.source_tree import Snapshot, materialise, snapshot
from tfbench.stats.prediction import evaluate
from tfbench.stats.thresholds import ignored, judged, policy_of
from tfbench.storage.baselines import Baseline, describe
from tfbench.storage.history import SessionRecord
from tfbench.worker.environment import VISIBLE, packages, settings

ALL, SUSPECTS, NEVER = CHOICES = ("all", "suspects", "never")
"""Cases to race again live: every case; those that saved times do not settle; none."""
VARIANTS, SIDES = "variants", "sides"
"""What raced each other while times were taken."""
CHANGED = "the benchmark's own code has changed since the baseline was saved"


def not_saved(saved: Baseline) -> Reason:
    """Return why a case that the baseline lacks has no comparison."""
    text = f"it is not in the baseline {saved.name!r}, so there is nothing to compare it with"
    return Reason(ReasonCode.NOT_IN_BASELINE, text)


# Recreating the side


def recreate_side(saved: Baseline, contender: Side, cache: Path, environments: Environments) -> Side | Reason:
    """Return a side with the baseline's source tree, packages and settings, or why that is impossible.

    Args:
        cache: Folder for recreated source trees.
        environments: Installs packages that differ from those of this process.
    """
    source = source_of(saved, contender, cache)
    if isinstance(source, Reason):
        return source
    try:
        executable = _executable(saved.environment, contender, environments)
    except SideError as error:
        return Reason(ReasonCode.NO_ENVIRONMENT, f"{source.spec}: its environment cannot be recreated: {error}")
    there, now = dict(saved.environment.settings), {**settings(), **contender.env}
    there |= {name: contender.env[name] for name in VISIBLE if name in contender.env and name not in there}
    unset = tuple(name for name in now if name not in there)
    return replace(source, executable=executable, env=there, code=code_of_saved(saved), unset=unset)


def code_of_saved(saved: Baseline) -> Snapshot:
    """Return the code that a baseline was measured with. Without git, the run that measured it stands for its code."""
    tree = saved.tree or f"session:{saved.context.session or saved.saved}"
    return Snapshot(tree, saved.environment.commit, saved.environment.dirty)


def source_of(saved: Baseline, contender: Side, cache: Path) -> Side | Reason:
    """Return a side with the baseline's source tree and the contender's interpreter, or why that is impossible.

    Args:
        cache: Folder for recreated source trees.
    """
    spec = describe(saved)
    here = snapshot(contender.root)
    if here is not None and here.tree == saved.tree:
        return Side("baseline", contender.executable, contender.root, spec)
    if not saved.tree:
        text = f"{spec} was saved outside version control, so its code cannot be recreated; save it in a git checkout"
        return Reason(ReasonCode.NO_SOURCE, text)
    try:
        root, tree_redirect = materialise(contender.root, saved.tree, cache)
    except SideError as error:
        return Reason(ReasonCode.NO_SOURCE, f"{spec}: {error}")
    return Side("baseline", contender.executable, root, spec, tree_redirect=tree_redirect)


def _executable(saved: EnvironmentInfo, contender: Side, environments: Environments) -> str:
    """Return an interpreter with the baseline's packages; the contender's own if that has the same."""
    if saved.packages == packages() and minor(saved.python) == minor(platform.python_version()):
        return contender.executable
    environments.prefer([], minor(saved.python))
    return environments.get([f"{name}=={version}" for name, version in saved.packages.items()]).executable


def environment_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """Return the differences in Python's minor version, packages and settings, one phrase each."""
    other_python = minor(saved.python) != minor(now.python)
    found = [f"Python {saved.python} there, {now.python} here"] if other_python else []
    found += _differences(saved.packages, now.packages, "not installed")
    return found + _differences(saved.settings, now.settings, "not set")


def machine_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """Return the differences of the machines, one phrase each. They affect saved times, not live races."""
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
    """Tell whether the benchmark's own code differs from the saved one; false if either is unknown."""
    before = saved.samples[case.name].case.source
    return bool(before and case.source and before != case.source)


def clock(sample: Sample) -> float | None:
    """Return the GPU's median clock rate during the launches in MHz; ``None`` if no GPU was monitored."""
    clocks = [run.facts[GPU_CLOCK] for run in sample.runs if GPU_CLOCK in run.facts]
    return median(clocks) if clocks else None


# Judging by saved times


class SavedTimeFilter:
    """Judges cases by their saved times, which is possible only on the same machine in the same environment.

    Args:
        records: All recorded sessions; sessions that are not comparable are ignored.
        now: The environment info of this run, in which variants race each other.
        cases: Cases of the whole run, which share its alpha.
        live: Whether cases that saved times do not settle can be raced live.
        unmade: Why the baseline's side could not be recreated; ``None`` if it was, or was not needed.
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
        def differences(environment: EnvironmentInfo) -> list[str]:
            return machine_differences(environment, now) + environment_differences(environment, now)

        self.saved = saved
        self.differences = differences(saved.environment)
        """Differences between the baseline's machine and environment and the current ones."""
        self._policy = policy
        self._cases = cases
        self._live = live
        self._unmade = unmade
        self._records = [
            one
            for one in records
            if one.context.session != saved.context.session
            and (one.context.policy, one.context.way) == (policy.name, VARIANTS)
            and not differences(one.context.environment)
        ]

    def settle(self, results: Sequence[CaseResult]) -> tuple[list[CaseResult], list[CaseResult]]:
        """Split results of races between variants into those that saved times settle and suspects.

        A result without a variant result is settled already, by a race of sides or by a failure.
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
        """Add to an open verdict why the case was not raced, or how to race it."""
        more = self._unmade.message if self._unmade else ""
        if verdict.outcome is Outcome.INCONCLUSIVE:
            more = more or "race it with --replay all"
        if verdict.outcome not in (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE) or not more:
            return verdict
        return replace(verdict, reason=Reason(verdict.reason.code, f"{verdict.reason.message}; {more}"))

    def evaluate(self, case: Case, sample: Sample, wall_seconds: float) -> Verdict:
        """Return the verdict on a case that this run measured together with the other variants."""
        if (refused := self._refused(case, sample)) is not None:
            outcome, reason = refused
            return Verdict(case, outcome, reason, launches=len(sample.runs), wall_seconds=wall_seconds)
        before = self.saved.samples[case.name]
        own, others = [before.floors], list[tuple[float, ...]]()
        for one in self._records:
            floors = one.floors_of_same_code(case.name)
            if floors and one.sources.get(case.name) == case.source:
                same_code = one.context.tree and one.context.tree == self.saved.tree
                (own if same_code else others).append(floors)
        policy = policy_of(self._policy, case, before.case)
        decision = evaluate(sample.floors, own, others, (before.seconds, sample.seconds), policy, self._cases)
        assert decision.outcome is not None
        notes = [decision.reason.message, ignored(case, policy.step_time)]
        return Verdict(
            case=judged(case, self._policy.step_time, policy.step_time),
            outcome=decision.outcome,
            reason=Reason(decision.reason.code, "; ".join(filter(None, notes))),
            ratio=decision.comparison.ratio,
            launches=decision.comparison.launches,
            rounds=decision.comparison.rounds,
            wall_seconds=wall_seconds,
        )

    def _refused(self, case: Case, sample: Sample) -> tuple[Outcome, Reason] | None:
        """Return why the saved times cannot be compared with these, if so."""
        spec, context = describe(self.saved), self.saved.context
        if self.differences:
            text = f"{spec} is of another machine or environment: {'; '.join(self.differences)}"
            return Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_MACHINE, text)
        if changed_since(self.saved, case):
            text = f"{CHANGED}, so its saved times cannot be compared"
            return Outcome.INCOMPARABLE, Reason(ReasonCode.BENCHMARK_CHANGED, text)
        before, now = clock(self.saved.samples[case.name]), clock(sample)
        if before and now and abs(now / before - 1) > self._policy.gpu_clock_drift:
            text = f"{spec} was measured with the GPU at {before:.0f} MHz, and now it runs at {now:.0f} MHz"
            fix = "lock its clock with sudo nvidia-smi -lgc RATE"
            return Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_CLOCK, f"{text}: {fix}")
        if (context.policy, context.way) != (self._policy.name, VARIANTS):
            how = f"policy {context.policy or 'unknown'}{' and against another side' * (context.way == SIDES)}"
            text = f"{spec} was measured with {how}, so its times are not comparable with those of this run"
            return Outcome.INCONCLUSIVE, Reason(ReasonCode.OTHER_METHOD, text)
        return None
