"""Assemble one run, and carry it out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tfbench.gpus.monitor import GpuSession
from tfbench.metrics.roofline import with_shares
from tfbench.model import (
    JSON,
    Case,
    Outcome,
    Ratio,
    Reason,
    ReasonCode,
    Report,
    Skip,
    StoredRounds,
    SuiteVerdict,
    Verdict,
)
from tfbench.policy import Policy
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.timer import Phase, Stopwatch
from tfbench.session.case_runs import CaseRuns, OtherMetrics
from tfbench.session.profiling import BASELINE, CONTENDER, Profiles
from tfbench.session.races import Races
from tfbench.session.record import RunMeasurements, RunRecorder
from tfbench.session.request import CaseResult, Progress, ProgressReporter, RunRequest
from tfbench.session.results import PROBES, MetricChecker, reason_of
from tfbench.session.resume import ChangedOnly, Resumption, drawn
from tfbench.session.strategies import (
    NEVER,
    LiveSideStrategy,
    SavedBaselineStrategy,
    SideStarter,
    Strategy,
    VariantStrategy,
    anchor_of,
    check_anchor,
    code_of_saved,
    recreate_side,
    source_of,
)
from tfbench.sides.environments import Environments, kept
from tfbench.sides.source_tree import working_code
from tfbench.sides.spec import Side, parse
from tfbench.stats.prediction import FEWEST, classify_mean, mean_ratio
from tfbench.storage.baselines import Layout, describe
from tfbench.storage.history import Anchor
from tfbench.suite.shards import part

# Judge the mean time of all raced cases. Race them again until it is decided, and before a slower one fails the run


_CODES = {
    Outcome.REGRESSED: ReasonCode.SLOWER,
    Outcome.IMPROVED: ReasonCode.FASTER,
    Outcome.UNCHANGED: ReasonCode.WITHIN_TOLERANCE,
    Outcome.INCONCLUSIVE: ReasonCode.NOT_DECIDED,
}


@dataclass(frozen=True)
class _Mean:
    """A mean, of how many cases, and how often they were raced again for it."""

    mean: Ratio | None
    cases: int
    passes: int


class SuiteGate:
    """The verdict of ``--gate-suite``.

    Args:
        limit: The slowdown of the mean to find, as a fraction.
    """

    def __init__(self, limit: float, policy: Policy, races: Races, strategy: Strategy) -> None:
        self._limit = limit
        self._policy = policy
        self._races = races
        self._strategy = strategy

    def verdict(self, results: Sequence[CaseResult]) -> SuiteVerdict:
        """Judge the cases that were raced against the baseline. A failure becomes a verdict `error`.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C while the cases were raced again.
        """
        raced = [one for one in results if one.baseline is not None and one.verdict is not None and one.verdict.ratio]
        try:
            return self._judge(raced)
        except Exception as error:
            reason, _ = reason_of(error)
            return SuiteVerdict(self._limit, Outcome.ERROR, reason, len(raced))

    def _judge(self, raced: Sequence[CaseResult]) -> SuiteVerdict:
        cases = len(raced)
        first = self._decided(raced, [one.verdict.ratio for one in raced if one.verdict and one.verdict.ratio])
        if first.mean is None:
            text = f"{cases} cases were raced against the baseline, and a mean needs {FEWEST}"
            return SuiteVerdict(self._limit, Outcome.INCOMPARABLE, Reason(ReasonCode.FEW_CASES, text), cases)
        outcome, text = self._outcome(first.mean), self._described(first.mean, cases, first.passes)
        if outcome is not Outcome.REGRESSED or not self._policy.confirm:
            return SuiteVerdict(self._limit, outcome, Reason(_CODES[outcome], text), cases, first.mean)
        second = self._decided(raced)
        if second.mean is None:
            text = f"{text}; too few cases could be raced again to confirm it"
            reason = Reason(ReasonCode.NOT_CONFIRMED, text)
            return SuiteVerdict(self._limit, Outcome.INCONCLUSIVE, reason, cases, first.mean)
        if self._outcome(second.mean) is Outcome.REGRESSED:
            code, what = ReasonCode.SLOWER, "found twice, the first time as"
        else:
            outcome, code = Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED
            what = "fresh launches did not confirm what came first:"
        again = self._described(second.mean, second.cases, second.passes if second.passes > 1 else 0)
        return SuiteVerdict(self._limit, outcome, Reason(code, f"{again}; {what} {text}"), second.cases, second.mean)

    def _decided(self, raced: Sequence[CaseResult], first: Sequence[Ratio] = ()) -> _Mean:
        """Race all cases again until their mean is decided.

        Each pass adds one ratio per case to the mean. The errors of these ratios are independent.

        Args:
            first: The ratios of the first races, which count as well; empty to confirm their mean by fresh ratios alone.
        """
        ratios, passes, added = list(first), 0, len(first)
        for _ in range(self._policy.suite_passes if self._policy.confirm else 0):
            mean = self._mean(ratios)
            if ratios and (mean is None or self._outcome(mean) is not Outcome.INCONCLUSIVE):
                break
            more = [ratio for one in raced if (ratio := self._again(one, confirms=not first)) is not None]
            if not more:
                break
            ratios += more
            passes += 1
            added = len(more)
        return _Mean(self._mean(ratios), added, passes)

    def _again(self, raced: CaseResult, confirms: bool) -> Ratio | None:
        baseline = self._strategy.baseline_entrant(raced.case)
        return self._races.again(raced.case, baseline, confirms) if baseline is not None else None

    def _outcome(self, mean: Ratio) -> Outcome:
        return classify_mean(mean, self._limit)

    def _mean(self, ratios: Sequence[Ratio]) -> Ratio | None:
        return mean_ratio(ratios, 1 - self._policy.alpha)

    @staticmethod
    def _described(mean: Ratio, cases: int, again: int) -> str:
        times = f", raced again {again} time{'s' if again > 1 else ''}," if again else ""
        interval = f"interval {mean.low - 1:+.2%} to {mean.high - 1:+.2%} at {mean.confidence:.0%} confidence"
        return f"the mean of {cases} cases{times} is {mean.center - 1:+.2%} ({interval})"


# Wire one run together: sides, strategy, races, other metrics, profiles; then report and record it


class Session:
    """Answers one `RunRequest`, case by case; a race starts when the first of its cases is asked for.

    Args:
        cases: All cases of the run, in the order of the report.

    Raises:
        TfbenchError: An option names a side, baseline or GPU that is not available. No process was started.
    """

    def __init__(self, request: RunRequest, cases: Sequence[Case], progress: Progress = lambda progress: None) -> None:
        self.request = request
        self._cases = cases
        self._stopwatch = Stopwatch()
        self._interrupted = False
        self._suite: SuiteVerdict | None = None
        report = ProgressReporter(progress, len(cases))
        self._environments = Environments(kept(), report)
        self._gpu_session = GpuSession(request.device, request.gpus, request.policy, request.require_gpu)
        check_anchor(request)
        self._launcher = ProcessLauncher(
            request.suite, request.policy, request.processors, self._gpu_session.gpu_monitor, self._stopwatch
        )
        self._recorder = RunRecorder(request)
        env = {**request.env, **self._gpu_session.environment}
        code = working_code(request.root)
        self._contender = Side("contender", request.executable, request.root, "", env, request.slowdown, code=code)
        checker = MetricChecker(
            Prober(self._launcher, request.policy, files=request.changed_only), request.policy, cases
        )
        self._starter = SideStarter(request, self._launcher, checker, self._gpu_session.machine, report)
        sharing = max(len(cases), request.sharing)
        races = Races(request, self._launcher, self._contender, sharing, report)
        with self._stopwatch.phase(Phase.STARTING):
            self._strategy = self._choose_strategy(races, checker, sharing, report)
        self._suite_gate = SuiteGate(request.suite_limit, request.policy, races, self._strategy)
        if request.save:
            self._recorder.baselines.check_can_save(request.save)
        others = OtherMetrics(checker, races, self._strategy, self._contender, cases, report, bool(request.save))
        self._profiles = Profiles(
            request, self._launcher, self._gpu_session.gpu_monitor, self._strategy, self._contender, report
        )
        sides = [self._contender, *([self._strategy.baseline] if self._strategy.baseline else [])]
        self._resumption = Resumption(request, cases, sides, self._strategy.saved_at)
        steps = {
            PROBES: self._stopwatch.phase(Phase.PROBING)(others.probe),
            "contracts": others.race_claims,
            "device": self._stopwatch.phase(Phase.PROFILING)(self._profiles.with_device),
            "profile": self._stopwatch.phase(Phase.PROFILING)(self._profiles.with_profiles),
            "journal": self._resumption.keep,
        }
        skips = {case.name: reason for case in cases if (reason := self._gpu_session.skip_reason(case))}
        known = {*skips, *self._resumption.earlier}
        self._starter.unbuilt = [case for case in cases if case.shared and case.name not in known]
        self._runs = CaseRuns(
            cases,
            skips,
            self._strategy,
            steps,
            report,
            self._resumption.earlier,
            self._launcher.keep_only,
            lambda: self._stopwatch.seconds_of_cases,
        )

    def _choose_strategy(
        self, races: Races, checker: MetricChecker, sharing: int, report: ProgressReporter
    ) -> Strategy:
        request, contender, trees = self.request, self._contender, Layout(self.request.folder).trees
        if request.baseline:
            saved = self._recorder.baselines.fetch(request.baseline)
            recreated = None
            if request.replay != NEVER:
                recreated = recreate_side(saved, contender, trees, self._environments)
            history = self._recorder.history
            source = partial(source_of, saved, contender, trees)
            return SavedBaselineStrategy(
                request, contender, self._starter, races, saved, recreated, history, sharing, source
            )
        if request.against:
            baseline = parse(request.against, contender, trees, self._environments)
            self._launcher.check(baseline, self._cases)
            spared = None
            if request.changed_only:
                sample = drawn(self._cases, request.policy.changed_only_share, request.seed)
                spared = ChangedOnly(contender, sample, checker.executed)
            return LiveSideStrategy(request, contender, self._starter, races, baseline, self._cases, report, spared)
        return VariantStrategy(request, contender, self._starter, races)

    @property
    def notes(self) -> list[str]:
        """What the user should know besides the verdicts, so far."""
        return (
            self._gpu_session.notes
            + self._launcher.notes
            + self._strategy.notes
            + self._profiles.notes
            + self._resumption.notes
            + self._recorder.notes
        )

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case; measures it if that has not happened yet. See `CaseRuns.result`."""
        try:
            return self._runs.result(case)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def skip(self, case: Case, reason: str) -> None:
        """Note that pytest skipped a case before it was measured."""
        self._runs.skip(case, reason)

    def fail(self, case: Case, why: str) -> None:
        """Note that pytest ended a case before it was measured."""
        self._runs.fail(case, why)

    def judge_suite(self) -> SuiteVerdict | None:
        """Judge the mean of all cases, if the user asked for it, and add the verdict to the report.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        if self.request.suite_limit:
            try:
                self._suite = self._suite_gate.verdict(self._runs.final)
            except KeyboardInterrupt:
                self._interrupted = True
                raise
        return self._suite

    def conclude(self) -> None:
        """Find out which cases the other side would run and this run lacks, unless the user interrupted it.

        Raises:
            TfbenchError: The other side's benchmarks cannot be collected.
        """
        if not self._interrupted:
            self._strategy.conclude()

    def missing(self) -> list[Verdict]:
        """Return a verdict for each case that the other side would run and this run lacks, so far."""
        return self._strategy.missing()

    def report(self, complete: bool = False) -> Report:
        """Build the report: it has a row for each case that was due, whatever is known so far.

        Args:
            complete: Whether the run has come to its end.
        """
        results = [*self._runs.all, *self.request.uncollected]
        missing = self.missing()
        phases = self._stopwatch.seconds
        return Report(
            policy=self.request.policy.as_json(),
            sides=self._sides(),
            verdicts=(*(row for result in results for row in result.rows), *missing),
            variant_results=with_shares([result.variant_result for result in results if result.variant_result]),
            skips=tuple(Skip(result.case, result.skip) for result in results if result.verdict is None),
            wall_seconds=self._stopwatch.wall_seconds,
            seconds_by_phase={phase.value: seconds for phase, seconds in phases.items()},
            seconds_by_case=dict(self._runs.seconds),
            seed=self.request.seed,
            interrupted=self._interrupted,
            due=(*(result.case.name for result in results), *(row.case.name for row in missing)),
            complete=complete,
            suite=self._suite,
            shard=self._part(),
            profiles=tuple(profile for result in results for profile in result.profiles),
            rounds=tuple(
                StoredRounds.of_sample(sample, side)
                for result in results
                for side, sample in ((BASELINE, result.baseline), (CONTENDER, result.sample))
                if sample is not None and sample.runs
            ),
        )

    def _part(self) -> JSON | None:
        """Return the ``shard`` object of the report, if the run measures a part of a suite."""
        names, request = [case.name for case in self._cases], self.request
        if request.job is not None:
            return request.job.of_cases(names)
        return part(request.shard, request.suite_names, names) if request.shard else None

    def _sides(self) -> dict[str, JSON]:
        sides = {
            "contender": self._contender,
            **({"baseline": self._strategy.baseline} if self._strategy.baseline else {}),
        }
        found = {
            name: {
                "spec": side.spec or "working tree",
                "root": str(side.root),
                "slowdown": side.slowdown,
                **(asdict(side.code) if side.code else {}),
                "import_seconds": self._launcher.import_seconds(side),
                **self._starter.described.get(name, {}),
                **self._gpu_session.as_json(),
            }
            for name, side in sides.items()
        }
        if BASELINE not in found and isinstance(self._strategy, SavedBaselineStrategy):
            saved = self._strategy.saved
            found[BASELINE] = {"spec": describe(saved), "slowdown": 0.0, **asdict(code_of_saved(saved))}
        return found

    def save(self) -> Path:
        """Save the contender's samples as the baseline that the user named.

        Raises:
            BaselineError: A case failed, there is no sample, or the file cannot be written.
        """
        return self._recorder.save(self._measurements())

    def remember(self) -> Path | None:
        """Record the run for later runs, see `RunRecorder.remember`. An interrupted run is not recorded.

        Raises:
            TfbenchError, OSError: A file cannot be written.
        """
        if self._interrupted:
            return None
        return self._recorder.remember(self._measurements(), self.request.baseline)

    def _measurements(self) -> RunMeasurements:
        started = self._contender.name in self._starter.described
        if not started and self._resumption.earlier:
            self._starter.start(self._cases[:1], self._contender)
            started = True
        environment = self._starter.environment_info(self._contender) if started else None
        return RunMeasurements(self._runs.final, self._strategy.way, environment, self._anchor())

    def _anchor(self) -> Anchor | None:
        """Return the side that the ratios of this run's history refer to, if it started."""
        baseline = self._strategy.baseline
        if self.request.history is None or baseline is None or baseline.name not in self._starter.described:
            return None
        saved = self._strategy.saved if isinstance(self._strategy, SavedBaselineStrategy) else None
        return anchor_of(baseline, self._starter.environment_info(baseline), saved)

    def close(self) -> None:
        """End every process, and release the GPUs."""
        self._resumption.close(complete=len(self._runs.final) == len(self._cases))
        self._launcher.close()
        self._environments.close()
        self._gpu_session.close()

    @contextmanager
    def avoid_worker_cpus(self) -> Iterator[None]:
        """Move this process to processors that the workers do not use, if there are any, until the block ends."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        if others := before - set(self.request.processors.one):
            os.sched_setaffinity(0, others)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
