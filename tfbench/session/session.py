"""Assemble one run, and carry it out."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.selection import parse_device
from tfbench.metrics.contracts import with_shares
from tfbench.model.case import JSON, MODULES, TIME, Case
from tfbench.model.measurement import Ratio, StoredRounds
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.model.report import DECIDED, Outcome, Report, Skip, SuiteVerdict
from tfbench.policy import Policy
from tfbench.race.lanes import Lanes, Processors
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.timer import Phase, Stopwatch, timer
from tfbench.session import results as case_results
from tfbench.session import strategies
from tfbench.session.profiling import BASELINE, CONTENDER, Profiles
from tfbench.session.races import Races
from tfbench.session.record import RunMeasurements, RunRecorder
from tfbench.session.request import CaseResult, Progress, RunProgress, RunRequest
from tfbench.session.resume import ChangedOnly, Journal, drawn
from tfbench.sides.environments import Environments, kept
from tfbench.sides.source_tree import code_files, edited_files, working_code
from tfbench.sides.spec import WORKING_TREE, Side
from tfbench.stats.verdict import CODES, FEWEST_CASES, classify_mean, mean_ratio
from tfbench.storage.baselines import describe
from tfbench.storage.history import Anchor
from tfbench.suite.shards import part

# Judge the mean time of all raced cases. Race them again until it is decided, and before a slower one fails the run


@dataclass
class SuiteGate:
    """The verdict of ``--gate-suite``. Its ``limit`` is the slowdown of the mean to find, as a fraction."""

    limit: float
    policy: Policy
    races: Races
    strategy: strategies.Strategy
    verdict: SuiteVerdict | None = field(default=None, init=False)
    """The verdict, once `judge` has made it."""

    def judge(self, final: Sequence[CaseResult]) -> SuiteVerdict:
        """Judge the cases that were raced against the baseline and can prevent a pass. A failure becomes a verdict `error`.

        Raises `KeyboardInterrupt` after Ctrl-C while the cases were raced again.
        """
        compared = [result for result in final if result.baseline and result.verdict and result.verdict.ratio]
        try:
            self.verdict = self._judge([result for result in compared if self.strategy.is_gated(result.case)])
        except Exception as error:
            reason, _ = case_results.reason_of(error)
            self.verdict = SuiteVerdict(self.limit, Outcome.ERROR, reason, len(compared))
        return self.verdict

    def _judge(self, raced: Sequence[CaseResult]) -> SuiteVerdict:
        cases = len(raced)
        ratios = [result.verdict.ratio for result in raced if result.verdict and result.verdict.ratio]
        first, _, passes = self._decided(raced, ratios)
        if first is None:
            reason = because(ReasonCode.FEW_CASES, cases=cases, needed=FEWEST_CASES)
            return SuiteVerdict(self.limit, Outcome.INCOMPARABLE, reason, cases)
        outcome, mean = classify_mean(first, self.limit), because(Note.MEAN, ratio=first, cases=cases, again=passes)
        if outcome is not Outcome.REGRESSED or not self.policy.confirm:
            return SuiteVerdict(self.limit, outcome, because(CODES[outcome], mean), cases, first)
        second, added, passes = self._decided(raced)
        if second is None:
            reason = because(ReasonCode.NOT_CONFIRMED, mean, because(Note.TOO_FEW_AGAIN))
            return SuiteVerdict(self.limit, Outcome.INCONCLUSIVE, reason, cases, first)
        if classify_mean(second, self.limit) is Outcome.REGRESSED:
            code, first_mean = ReasonCode.SLOWER, Note.FOUND_TWICE
        else:
            outcome, code, first_mean = Outcome.INCONCLUSIVE, ReasonCode.NOT_CONFIRMED, Note.FIRST_MEAN
        again = because(Note.MEAN, ratio=second, cases=added, again=passes if passes > 1 else 0)
        reason = because(code, again, because(first_mean, mean))
        return SuiteVerdict(self.limit, outcome, reason, added, second)

    def _decided(self, raced: Sequence[CaseResult], first: Sequence[Ratio] = ()) -> tuple[Ratio | None, int, int]:
        """Race all cases again until their mean is decided; return it, of how many cases, and how often they were raced.

        Each pass adds one ratio per case to the mean. The errors of these ratios are independent.

        Args:
            first: The ratios of the first races, which count as well; empty to confirm their mean by fresh ratios alone.
        """
        ratios, passes, added = list(first), 0, len(first)
        for _ in range(self.policy.suite_passes if self.policy.confirm else 0):
            mean = mean_ratio(ratios, 1 - self.policy.alpha)
            if ratios and (mean is None or classify_mean(mean, self.limit) is not Outcome.INCONCLUSIVE):
                break
            pairs = [(result.case, self.strategy.baseline_entrant(result.case)) for result in raced]
            again = [self.races.again(case, side, not first) for case, side in pairs if side is not None]
            more = [ratio for ratio in again if ratio is not None]
            if not more:
                break
            ratios += more
            passes += 1
            added = len(more)
        return mean_ratio(ratios, 1 - self.policy.alpha), added, passes


# Take each case of a run from pending to finished, whatever fails on the way


Group = tuple[Case, ...]
Step = Callable[[CaseResult, Sequence[Case]], CaseResult]
"""Adds to the result of a raced case; the second argument holds the measured cases of its group."""


@dataclass
class _CaseRun:
    case: Case
    group: list[_CaseRun]
    result: CaseResult | None = None
    """There once its verdict on time is final."""
    finished: bool = False
    """Whether its other metrics and its profiles are final too, or it was skipped."""


class CaseRuns:
    """The cases of a run with their states and results.

    Args:
        cases: All cases of the run; results follow their order, except that groups stay together.
        skips: Name of a case -> why it cannot run here.
        steps: What completes a raced case, in order; the keys name the rows that report a failed step.
        journal: Keeps each finished result. Those of an interrupted run are used if the whole group has one.
        launcher: Counts the seconds that cases cost, and leaves an environment once all its cases are finished.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        skips: Mapping[str, str],
        strategy: strategies.Strategy,
        steps: Mapping[str, Step],
        report: RunProgress,
        journal: Journal,
        launcher: ProcessLauncher,
    ) -> None:
        self._strategy = strategy
        self._steps = steps
        self._report = report
        self._launcher = launcher
        self._journal = journal
        self.seconds: dict[str, float] = defaultdict(float)
        """Name of a measured case -> what it has cost in this run. Cases of a group share what they need together."""
        groups: dict[str, list[_CaseRun]] = {}
        for case in cases:
            group = groups.setdefault(case.name if case.name in skips else strategy.group_of(case), [])
            group.append(_CaseRun(case, group))
        self._runs = {run.case.name: run for group in groups.values() for run in group}
        self._lock = threading.Lock()
        for name, reason in skips.items():
            run = self._runs[name]
            run.result, run.finished = strategy.skipped(run.case, reason), True
        for group in groups.values():
            if all(run.case.name in journal.earlier for run in group):
                for run in group:
                    run.result, run.finished = journal.earlier[run.case.name], True
        self._unfinished = Counter(run.case.env for run in self._runs.values() if not run.finished)
        report.done = len(self.final)
        if journal.earlier:
            journal.notes.append(f"{report.done - len(skips)} of {len(cases)} cases taken from the interrupted run")

    @property
    def groups(self) -> dict[str, Group]:
        """Name of a case that has not been measured -> the cases that are measured together with it."""
        waiting = {name: run for name, run in self._runs.items() if not run.group[0].finished}
        return {name: tuple(member.case for member in run.group) for name, run in waiting.items()}

    @property
    def final(self) -> list[CaseResult]:
        """The results of all cases whose verdict on time is final."""
        return [run.result for run in self._runs.values() if run.result is not None]

    @property
    def all(self) -> list[CaseResult]:
        """A result for each case of the run: a case without a final verdict on time is an error."""
        return [run.result or case_results.not_measured(run.case) for run in self._runs.values()]

    def has_compared(self) -> bool:
        """Tell whether the time of a case has been compared."""
        return any(result.verdict and result.verdict.outcome in DECIDED for result in self.final)

    def skip(self, case: Case, reason: str) -> None:
        """Note that pytest skipped a case before it was measured; a final result stays."""
        if self._runs[case.name].result is not None:
            return
        try:
            result = self._strategy.skipped(case, reason, mark=True)
        except Exception as error:
            result = case_results.failed(case, error)
        self._advance(self._runs[case.name], result, finished=True)

    def fail(self, case: Case, why: str) -> None:
        """Note that pytest ended a case before it was measured; a final result stays."""
        if self._runs[case.name].result is None:
            self._advance(self._runs[case.name], case_results.not_measured(case, why), finished=True)

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case; measures it if that has not happened yet.

        A failure becomes a verdict `error` and keeps everything known before it.
        Raises `KeyboardInterrupt` after Ctrl-C; partial results are kept.
        """
        run = self._runs[case.name]
        if not run.finished:
            with self._paid_by(run.group):  # the first of them probes all
                if run.result is None:
                    self._race(run)
                self._finish(run)
        assert run.result is not None
        return run.result

    @contextmanager
    def _paid_by(self, runs: Sequence[_CaseRun]) -> Iterator[None]:
        """Divide the seconds until the block ends equally among these cases."""
        began = self._launcher.stopwatch.seconds_of_cases
        try:
            yield
        finally:
            share = (self._launcher.stopwatch.seconds_of_cases - began) / len(runs)
            for run in runs:
                self.seconds[run.case.name] += share

    def _race(self, run: _CaseRun) -> None:
        pending = [member.case for member in run.group if member.result is None]  # pytest may have skipped some
        try:
            for result in self._strategy.race(run.case, pending):
                known = result if result.verdict else self._strategy.skipped(result.case, result.skip)
                self._advance(self._runs[result.case.name], known)
        except Exception as error:
            for member in run.group:
                if member.result is None:
                    self._advance(member, case_results.failed(member.case, error))

    def _finish(self, run: _CaseRun) -> None:
        measured = [member.case for member in run.group if member.result and member.result.sample is not None]
        assert run.result is not None
        for metric, step in self._steps.items():
            try:
                run.result = step(run.result, measured)
            except Exception as error:
                run.result = case_results.with_failure(run.result, metric, error)
                break
        with self._lock:
            self._journal.keep(run.result)
        self._advance(run, run.result, finished=True)

    def _advance(self, run: _CaseRun, result: CaseResult, finished: bool = False) -> None:
        """Set the result of a case. Counting all cases here would make long runs quadratic."""
        with self._lock:
            self._report.done += run.result is None
            self._unfinished[run.case.env] -= finished and not run.finished
            run.result, run.finished = result, finished
        if finished and not self._unfinished[run.case.env]:
            self._launcher.leave(run.case.env)


# Put one run together, answer it case by case, and report it


_UNREPORTED = ("cases", MODULES)
"""What is known of a started side beyond its environment. A report has the cases in its verdicts."""
_PROBED = (ReasonCode.OTHER_ENVIRONMENT, ReasonCode.SAME_CODE)
"""Reasons without times that leave the other metrics to be judged."""


class Session:
    """One run, put together in the order of the life of a case; later parts know earlier ones.

    ``cases`` are all cases of the run, in the order of the report.
    Raises `TfbenchError` if an option names a side, baseline or GPU that is not available. No process was started.
    """

    strategy: strategies.Strategy

    def __init__(self, request: RunRequest, cases: Sequence[Case], progress: Progress = lambda progress: None) -> None:
        strategies.check_anchor(request)
        self.request, self.cases, policy = request, cases, request.policy
        self._report = report = RunProgress(progress, len(cases))
        stopwatch = Stopwatch()
        self.recorder = RunRecorder(request)
        self.interrupted = False
        """Whether the user pressed Ctrl-C, or pytest was ended in another way."""
        self.edited: list[str] = []
        """Files of code that were edited during the run, once it has come to its end."""
        if request.save_baseline:
            self.recorder.store.saved.check_can_save(request.save_baseline)
        with ExitStack() as held:
            # Sides: this working tree, and what it is compared with.
            self.gpus = GpuSession(*parse_device(request.device), policy, request.require_gpu)
            held.callback(self.gpus.close)
            environments = held.enter_context(Environments(kept(), report))
            monitor = self.gpus.gpu_monitor
            self.launcher = launcher = ProcessLauncher(request.suite, policy, request.processors, monitor, stopwatch)
            held.callback(launcher.close)
            self._files = code_files(request.root)
            env, code = self.gpus.environment, working_code(request.root)
            slowdown, yardstick = request.inject_slowdown, request.suite.yardstick
            self.contender = contender = Side(
                "contender", request.executable, request.root, "", env, slowdown, code=code, yardstick=yardstick
            )
            self.saved = saved = self.recorder.store.saved.fetch(request.baseline) if request.baseline else None
            if saved is not None and not request.resume:
                self.recorder.store.drop_candidate(request.baseline)
            with stopwatch.phase(Phase.STARTING):
                other = strategies.baseline_side(request, saved, contender, environments)
            baseline, unmade = (None, other) if isinstance(other, Reason) else (other, None)
            if request.against and baseline is not None:
                launcher.check(baseline, cases)

            # Cases without a race: they cannot run here, or an interrupted run has finished them.
            skips = {case.name: reason for case in cases if (reason := self.gpus.skip_reason(case))}
            self._live = [contender, *([baseline] if baseline else [])]
            self.journal = Journal(request, cases, self._live, saved.saved if saved else "")

            # Strategy and races, which confirm a change themselves.
            prober = Prober(launcher, policy, files=request.changed_only)
            self._checker = checker = case_results.MetricChecker(prober, policy, cases, request.sharing)
            self.starter = starter = strategies.SideStarter(request, launcher, checker, self.gpus.machine, report)
            self._races = races = Races(request, launcher, contender, request.sharing, report)
            if saved is not None:
                how = request, contender, starter, races, baseline
                self.strategy = strategies.SavedBaselineStrategy(*how, saved, unmade)
            elif baseline is not None:
                spared = ChangedOnly(drawn(cases, request.seed), lambda: self.runs.has_compared(), checker.executed)
                rule = spared if request.changed_only else None
                self.strategy = strategies.LiveSideStrategy(request, contender, starter, races, baseline, rule)
            else:
                self.strategy = strategies.Strategy(request, contender, starter, races, None)

            # Probes, contracts and profiles complete the result of a raced case.
            self.profiles = Profiles(request, launcher, monitor, self.strategy, contender, report)
            steps: dict[str, Step] = {
                case_results.PROBES: stopwatch.phase(Phase.PROBING)(self._probe),
                "imports": stopwatch.phase(Phase.PROBING)(self._judge_imports),
                "limits": lambda result, _: case_results.limited(result, policy, self._races.sharing),
                "contracts": self._race_claims,
                "device": stopwatch.phase(Phase.PROFILING)(self.profiles.with_device),
                "profile": stopwatch.phase(Phase.PROFILING)(self.profiles.with_profiles),
                "gate": self.strategy.gated,
            }
            self.runs = CaseRuns(cases, skips, self.strategy, steps, report, self.journal, launcher)
            waiting = self.runs.groups
            starter.unbuilt = [case for case in cases if case.shared and case.name in waiting]
            self._lanes: Lanes[Group] | None = None
            self.suite_gate = SuiteGate(request.gate_suite, policy, races, self.strategy)
            self._held = held.pop_all()

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case, see `CaseRuns.result`. The first call starts the lanes, if there are several.

        Raises `KeyboardInterrupt` after Ctrl-C. The races of all lanes have ended, and partial results are kept.
        """
        with self._interruptible():
            if len(self.request.lane_processors) > 1 and (group := self._groups.get(case.name)):
                self._opened().wait_for(group)
            return self.runs.result(case)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Note that the user pressed Ctrl-C in this block, stop the lanes, and pass it on."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            self._finish_lanes(stop=True)
            raise

    @cached_property
    def _groups(self) -> dict[str, Group]:
        """Name of a case -> its group."""
        return self.runs.groups

    def _opened(self) -> Lanes[Group]:
        """Return the lanes, which measure cases ahead of the tests that ask for them."""
        if self._lanes is None:
            timer()  # watched once, while nothing runs
            groups, request = list(dict.fromkeys(self._groups.values())), self.request
            how = self._measure, self._apart, request.lanes_ahead, self.launcher.stopwatch.waiting
            self._lanes = Lanes(groups, request.lane_processors, *how)
        return self._lanes

    def _measure(self, group: Group, lane: Processors) -> None:
        self.launcher.stopwatch.restart()
        with self.launcher.on(lane):
            for case in group:
                self.runs.result(case)

    def _apart(self, group: Group) -> bool:
        """Whether a group needs the machine for itself, or may not be measured at all."""
        narrowest = min(len(lane.every) for lane in self.request.lane_processors)
        return any(
            case.cpus not in range(1, narrowest + 1)
            or case.alone
            or case.name in self.request.uncertain
            or self.launcher.on_gpu([Entrant(case, self.contender)])
            for case in group
        )

    def _finish_lanes(self, stop: bool = False) -> None:
        """Have lanes begin no other races, as after ``-x``, and finish the present ones, or ``stop`` them at once."""
        if self._lanes is not None:
            if stop:
                self.launcher.stop()
            self._lanes.close()

    def _probe(self, result: CaseResult, measured: Sequence[Case]) -> CaseResult:
        """Add the verdicts on the metrics that a probing launch reads.

        All measured cases of the group are probed together. Raises `SideError` if a side does not start.
        """
        verdict, checker = result.verdict, self._checker
        if verdict is None or (result.sample is None and verdict.reason.code not in _PROBED):
            return result
        self._report(f"{result.case.workload}: other metrics")
        checked = checker.checked(result, self.contender, self.strategy.baseline_values(result), measured)
        if self.request.save_baseline and checked.metric_values is not None:
            # A baseline must know which of them differ between launches.
            values = checker.stable(result.case, self.contender, checked.metric_values)
            checked = replace(checked, metric_values=values)
        return case_results.with_covered(case_results.with_model(checked))

    def _judge_imports(self, result: CaseResult, measured: Sequence[Case]) -> CaseResult:
        """Add the verdicts on what the file of a case imports. Raises `SideError` if a zygote does not start."""
        there = self.strategy.baseline_entrant(result.case)
        rows = self._races.imports(result.case, there) if result.baseline is not None and there is not None else []
        return replace(result, metrics=(*result.metrics, *rows))

    def _race_claims(self, result: CaseResult, _measured: Sequence[Case]) -> CaseResult:
        """Add the verdicts on contracts about other variants' times, unless the variants have raced each other.

        Raises `SideError` if a side does not start.
        """
        case = result.case
        named = [claim.levels for claim in case.claims_on(TIME)]
        if not named or result.variant_result is not None or result.sample is None:
            return result
        others = [other for other in self.cases if other.group == case.group and other.variant in named]
        return replace(result, metrics=(*result.metrics, *self._races.claims(case, others)))

    @property
    def notes(self) -> list[str]:
        """What the user should know besides the verdicts, so far."""
        parts = (self.gpus, self.launcher, self.strategy, self.profiles, self.journal, self.recorder)
        return [note for part in parts for note in part.notes]

    def judge_suite(self) -> SuiteVerdict | None:
        """Judge the mean of all cases, if the user asked for it and did not interrupt the run. The report has the verdict.

        Raises `KeyboardInterrupt` after Ctrl-C.
        """
        with self._interruptible():
            self._finish_lanes(stop=self.interrupted)
            wanted = self.request.gate_suite and not self.interrupted
            return self.suite_gate.judge(self.runs.final) if wanted else None

    def conclude(self) -> None:
        """Find out which cases the other side would run and this run lacks, unless the user interrupted it.

        Raises `TfbenchError` if the other side's benchmarks cannot be collected.
        """
        self._finish_lanes()
        if self.contender.code is not None:
            self.edited[:] = edited_files(self.request.root, self._files)
        if not self.interrupted:
            self.strategy.conclude()
            if self.journal.earlier and not self.launcher.environment(self.contender):
                # An interrupted run has measured all cases. The report has to say what its sides are all the same.
                self.starter.start(self.cases[:1], *self._live)

    def report(self, complete: bool = False) -> Report:
        """Build the report: it has a row for each case that was due, whatever is known so far."""
        results = [*self.runs.all, *self.request.uncollected]
        variants = [result.variant_result for result in results if result.variant_result]
        missing = self.strategy.missing()
        phases = self.launcher.stopwatch.seconds
        return Report(
            policy=self.request.policy.as_json(), sides=self._sides(),
            verdicts=(*(row for result in results for row in result.rows), *missing),
            variant_results=with_shares(variants, "gpu" if self.gpus.gpus else "cpu"),
            skips=tuple(Skip.about(result.case, reason=result.skip) for result in results if result.verdict is None),
            wall_seconds=self.launcher.stopwatch.wall_seconds,
            seconds_by_phase={phase.value: seconds for phase, seconds in phases.items()},
            seconds_by_case=dict(self.runs.seconds), seed=self.request.seed, interrupted=self.interrupted,
            due=(*(result.case.name for result in results), *(row.case.name for row in missing)), complete=complete,
            suite=self.suite_gate.verdict, shard=self._part(), yardstick=self.strategy.yardstick_changes,
            profiles=tuple(profile for result in results for profile in result.profiles),
            rounds=tuple(StoredRounds.of_sample(sample, side) for result in results for side, sample in ((BASELINE, result.baseline), (CONTENDER, result.sample)) if sample is not None and sample.runs ),
        )  # fmt: skip

    def _part(self) -> JSON | None:
        """Return the ``shard`` object of the report, if the run measures a part of a suite."""
        names, request = [case.name for case in self.cases], self.request
        if request.part is not None:
            return request.part.of_cases(names)
        return part(request.shard, request.suite_names, names) if request.shard else None

    def _sides(self) -> dict[str, JSON]:
        content = {
            side.name: {
                "spec": side.spec or WORKING_TREE,
                "root": str(side.root),
                "slowdown": side.slowdown,
                **(asdict(side.code) if side.code else {}),
                "import_seconds": self.launcher.import_seconds(side),
                **{key: fact for key, fact in self.launcher.environment(side).items() if key not in _UNREPORTED},
                **self.gpus.as_json(),
            }
            for side in self._live
        }
        if (saved := self.saved) is not None:
            unmade = {"spec": describe(saved), "slowdown": 0.0, **asdict(strategies.code_of_saved(saved))}
            content[BASELINE] = content.get(BASELINE, unmade) | {"saved": saved.name}
        return content

    def remember(self) -> Path | None:
        """Record the run, unless it was interrupted or its code was edited. Raises as `RunRecorder.remember`."""
        return None if self.interrupted or self.edited else self.recorder.remember(self.measurements())

    def measurements(self) -> RunMeasurements:
        """Return what the run has measured so far, and where."""
        described = self.launcher.environment(self.contender)
        environment = self.starter.environment_info(self.contender) if described else None
        saved = self.saved.saved if self.saved else ""
        return RunMeasurements(self.runs.final, environment, described.get(MODULES, ()), self._anchor(), saved)

    def _anchor(self) -> Anchor | None:
        """Return the side that the ratios of this run's history refer to, if it started."""
        baseline = self.strategy.baseline
        if not self.request.history or baseline is None or not self.launcher.environment(baseline):
            return None
        return strategies.anchor_of(baseline, self.starter.environment_info(baseline), self.saved)

    def close(self) -> None:
        """End every process, and release the GPUs."""
        self._finish_lanes(stop=True)
        self.journal.close(complete=not self.interrupted and len(self.runs.final) == len(self.cases))
        self._held.close()

    @contextmanager
    def avoid_worker_cpus(self) -> Iterator[None]:
        """Move this process to processors that the workers do not use, if there are any, until the block ends."""
        before = os.sched_getaffinity(0)
        lanes = self.request.lane_processors
        used = {cpu for lane in lanes for cpu in lane.every} if len(lanes) > 1 else {*self.request.processors.one}
        if others := before - used:
            os.sched_setaffinity(0, others)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
