"""One question from start to end: entrants -> race -> comparison -> verdict -> store and report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tfbench.errors import BenchmarkError, SideError
from tfbench.gpus.session import GpuSession
from tfbench.metrics.roofline import with_shares
from tfbench.model import JSON, TIME, Case, EnvironmentInfo, Outcome, Reason, ReasonCode, Report, Skip, Verdict
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race
from tfbench.session.baseline import (
    ALL,
    CHANGED,
    NEVER,
    SIDES,
    VARIANTS,
    SavedTimeFilter,
    changed_since,
    describe,
    environment_differences,
    not_saved,
    recreate_side,
)
from tfbench.session.metric_checks import MetricChecker, reference_side_of
from tfbench.session.missing import missing
from tfbench.session.profiling import Profiles
from tfbench.session.races import Races
from tfbench.session.recorder import RunMeasurements, RunRecorder
from tfbench.session.request import CaseResult, Progress, RunProgress, RunRequest
from tfbench.session.results import broken, with_model
from tfbench.sides.counterparts import Counterparts, benchmarks_of
from tfbench.sides.environments import Environments, kept
from tfbench.sides.side import Side
from tfbench.sides.source_tree import Snapshot
from tfbench.sides.spec import parse
from tfbench.storage.layout import Layout
from tfbench.suite.shards import part


class Session:
    """Answers one `RunRequest`, case by case; a race is run when the first of its cases is asked for."""

    def __init__(self, request: RunRequest, progress: Progress = lambda progress: None) -> None:
        self.request = request
        self._progress = progress
        self._clock = time.perf_counter
        self._began = self._clock()
        self._gpu_session = GpuSession(request.device, request.gpus, request.policy, request.require_gpu)
        gpu_monitor, env = self._gpu_session.gpu_monitor, {**request.env, **self._gpu_session.environment}
        self._launcher = ProcessLauncher(request.suite, request.policy, request.processors, gpu_monitor)
        self._recorder = RunRecorder(request)
        self._contender = Side("contender", request.executable, request.root, "", env, request.slowdown)
        self._races = Races(
            request,
            self._launcher,
            self._contender,
            lambda: self._sharing,
            self._tell,
            self._keep,
        )
        self._profiles = Profiles(request, self._launcher, self._tell)
        self._results: dict[str, CaseResult] = {}
        self._suspects: dict[str, CaseResult] = {}
        """Cases that saved times did not settle, with what was measured of them."""
        self._judged: set[str] = set()
        """Cases whose other metrics were looked at."""
        self._metric_checker: MetricChecker | None = None
        self._there: Counterparts | None = None
        """Where the other side has a source tree of its own: its cases."""
        self._groups: dict[str, list[Case]] = {}
        self._described: dict[str, JSON] = {}
        self._failure: SideError | None = None
        self._interrupted = False
        self._notes: list[str] = []
        # What can be refused is refused before anything is started.
        trees = Layout(request.folder).trees
        self._environments = Environments(kept(), lambda text: progress(RunProgress(text)))
        self._rival = None
        if request.against:
            self._rival = parse(request.against, self._contender, trees, self._environments)
        self._saved = self._recorder.baselines.fetch(request.baseline) if request.baseline else None
        self._unmade: Reason | None = None
        if self._saved is not None and request.replay != NEVER:
            again = recreate_side(self._saved, self._contender, trees, self._environments)
            self._rival, self._unmade = (again, None) if isinstance(again, Side) else (None, again)
        self._time_filter: SavedTimeFilter | None = None
        if request.save:
            self._recorder.baselines.check_name(request.save)

    @property
    def notes(self) -> list[str]:
        """What the user ought to know beside the verdicts, by now."""
        return self._gpu_session.notes + self._launcher.notes + self._notes

    # Asking

    def expect(self, cases: Sequence[Case]) -> None:
        """The cases of this run, in order; those of a group race each other unless sides are compared."""
        for case in cases:
            if reason := self._gpu_session.skip_reason(case):
                self._results[case.name] = CaseResult(case, skip=reason)
            self._groups.setdefault(case.name if reason else self._group_of(case), []).append(case)

    def _group_of(self, case: Case) -> str:
        return case.group if self._way == VARIANTS else case.name

    @property
    def _way(self) -> str:
        """What is raced first: saved times can be judged only by times that were taken as they were."""
        raced = self._rival is not None and (self._saved is None or self.request.replay == ALL)
        return SIDES if raced else VARIANTS

    @property
    def cases(self) -> list[Case]:
        """Every case of the run."""
        return [case for group in self._groups.values() for case in group]

    @property
    def _sharing(self) -> int:
        """Cases that share the run's alpha, those of other shards included."""
        return max(len(self.cases), len(self.request.suite_cases))

    def result(self, case: Case) -> CaseResult:
        """What became of this case, raced now if it has not been."""
        group = self._groups.get(self._group_of(case), [case])
        try:
            if case.name not in self._results and case.name not in self._suspects:
                self._keep(self._race(case, group))
            if case.name not in self._results:
                measured, raced = self._suspects[case.name], self._race_saved(case)
                metrics = (*raced.metrics, *measured.metrics)
                self._results[case.name] = replace(
                    raced, sample=measured.sample, variant_result=measured.variant_result, metrics=metrics
                )
            if case.name not in self._judged:
                self._judged.add(case.name)
                result = self._with_other_metrics(self._results[case.name], group)
                rival = Entrant(self._counterpart(case) or case, self._rival) if result.rival and self._rival else None
                if (gpu_monitor := self._gpu_session.gpu_monitor) and case.levels.get("device") != "cpu":
                    result = self._profiles.with_device(result, Entrant(case, self._contender), gpu_monitor)
                self._results[case.name] = result = self._profiles.of(result, Entrant(case, self._contender), rival)
                if result.why and not result.failures:  # otherwise the failed test says it
                    self._notes.append(f"{case.name}: {result.why[0]}")
        except SideError as error:
            self._keep([broken(one, error) for one in group if one.name not in self._results])
        except KeyboardInterrupt:
            self._interrupted = True
            raise
        return self._results[case.name]

    def _keep(self, results: Sequence[CaseResult]) -> None:
        """Results that are final, and apart from them those of suspects."""
        settled, suspects = self._time_filter.settle(results) if self._time_filter else (results, [])
        self._results.update({result.case.name: result for result in settled})
        self._suspects.update({result.case.name: result for result in suspects})

    # Starting

    def _start(self, group: Sequence[Case], *sides: Side) -> None:
        """Start the sides that are not there yet, and ask once what they are made of.

        Raises:
            SideError: One of them does not start: told once for each case, and tried once.
        """
        if self._failure is not None:
            raise self._failure
        policy = self.request.policy
        pairs = range(min(policy.zygotes, policy.looks[0]))  # the others are started when a race gets there
        wanted = [(side, env) for side in sides for env in dict.fromkeys(case.env for case in group)]
        self._tell("starting the measuring processes")
        first = not self._described
        try:
            self._launcher.ready(wanted, pairs)
            self._described.update({side.name: self._launcher.environment(side) for side in sides})
            if first and self.request.require_gpu and not self._launcher.devices(self._contender).get("GPU"):
                raise SideError("--require-gpu: TensorFlow sees no GPU; check nvidia-smi and tensorflow[and-cuda]")
        except SideError as error:
            self._failure = error
            raise
        except BenchmarkError as error:
            self._failure = SideError(f"{error}\n{error.output}")
            raise self._failure from error
        if shared := [case for case in group if case.shared]:
            # Probing asks for it too, in several processes at once, and a race is timed from its first launch on.
            self._look(f"{shared[0].workload}: making what its launches share", shared, *sides)

    def _environment_info(self, side: str = "contender", tree: Snapshot | None = None) -> EnvironmentInfo:
        described = self._described[side]
        return EnvironmentInfo(
            python=described["python"],
            executable=described["executable"],
            packages=described["packages"],
            commit=tree.commit if tree else "",
            dirty=tree.dirty if tree else False,
            settings=described["settings"],
            cpus=self.request.processors.one,
            threads=len(self.request.processors.one),
            machine={**described["machine"], **self._gpu_session.machine},
        )

    # Racing

    def _race(self, case: Case, group: Sequence[Case]) -> list[CaseResult]:
        """The results of this case, and of those that are measured together with it; suspects are put aside."""
        if self._saved is None:
            if self._rival is None:
                self._start(group, self._contender)
                return self._races.variants(group)
            if self._rival.tree_redirect and self._there is None:
                self._rival = self._acquainted(self._rival)
            self._start(group, self._contender, self._rival)
            return [self._race_rival(case, self._rival)]
        self._start(group, self._contender)
        if self._time_filter is None:
            records, strange = self._recorder.history.read()
            self._notes += strange
            policy, live = self.request.policy, self._rival is not None
            self._time_filter = SavedTimeFilter(
                self._saved, records, self._environment_info(), policy, self._sharing, live, self._unmade
            )
        if self._way == SIDES or self._is_elsewhere:
            return [self._race_saved(case)]
        return self._races.variants(group)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether saved times settle nothing here, so that every case is a suspect."""
        return self._rival is not None and self._time_filter is not None and bool(self._time_filter.differences)

    def _race_saved(self, case: Case) -> CaseResult:
        """A case against the side of the saved baseline, made again."""
        assert self._saved is not None
        assert self._rival is not None
        if case.name not in self._saved.samples:
            return self._races.alone(case, not_saved(self._saved))
        self._start([case], self._rival)
        if differences := environment_differences(self._saved.environment, self._environment_info(self._rival.name)):
            text = f"{describe(self._saved)} could not be made again as it was: {'; '.join(differences)}"
            return CaseResult(case, Verdict(case, Outcome.INCOMPARABLE, Reason(ReasonCode.OTHER_ENVIRONMENT, text)))
        return self._races.sides(case, self._rival, CHANGED if changed_since(self._saved, case) else "")

    def _acquainted(self, rival: Side) -> Side:
        """The side, once it is known which benchmarks its source tree has."""
        self._tell(f"collecting the benchmarks of {rival.spec}")
        before = benchmarks_of(rival, self.request.selection, self.request.paths, self.request.collect_command)
        self._there = Counterparts(before, self.cases)
        return replace(rival, files=tuple(dict.fromkeys(name.partition("::")[0] for name in before)))

    def _counterpart(self, case: Case) -> Case | None:
        """The case as it is called on the other side, ``None`` if it is not there."""
        return self._there.of(case) if self._there else case

    def _race_rival(self, case: Case, rival: Side) -> CaseResult:
        """A case against a live side, which may have it under another name or not at all."""
        if (there := self._counterpart(case)) is not None:
            renamed = there.name != case.name
            return self._races.sides(case, rival, f"it is called {there.name} there" if renamed else "", there)
        text = f"{rival.spec} does not have it, so there is nothing to compare it with"
        return self._races.alone(case, Reason(ReasonCode.NOT_IN_BASELINE, text))

    # Other metrics

    @property
    def _checker(self) -> MetricChecker:
        if self._metric_checker is None:
            self._metric_checker = MetricChecker(
                Prober(self._launcher, self.request.policy), self.request.policy, self.cases
            )
        return self._metric_checker

    def _tell(self, text: str, race: Race | None = None) -> None:
        self._progress(RunProgress(text, race, len(self._results), len(self.cases)))

    def _look(self, text: str, cases: Sequence[Case], *sides: Side) -> None:
        self._tell(text)
        self._checker.look(cases, *sides)

    def _with_other_metrics(self, result: CaseResult, group: Sequence[Case]) -> CaseResult:
        """The result with the other metrics of the case; the cases of a group are probed together."""
        verdict = result.verdict
        if verdict is None or (result.sample is None and verdict.reason.code != ReasonCode.OTHER_ENVIRONMENT):
            return result
        measured = [case for case in group if (one := self._results.get(case.name)) and one.sample is not None]
        self._look(f"{result.case.workload}: other metrics", measured, self._contender)
        reference_side = reference_side_of(
            result, self._saved, self._rival, self._environment_info, self._counterpart(result.case)
        )
        result = with_model(self._checker.checked(result, self._contender, reference_side))
        return replace(result, metrics=(*result.metrics, *self._raced_claims(result)))

    def _raced_claims(self, result: CaseResult) -> list[Verdict]:
        """The rows of contracts on other variants' times, where it was not the variants that raced."""
        if result.variant_result is not None or result.sample is None or not result.case.claims_on(TIME):
            return []
        case = result.case
        named = [claim.levels for claim in case.claims_on(TIME)]
        others = [other for other in self.cases if other.group == case.group and other.variant in named]
        return self._races.claims(case, others)

    # Ending

    def missing(self) -> list[Verdict]:
        """Cases of the other side, saved or live, that this run ought to have and has not."""
        return missing(self.request, self._saved, self._there)

    def report(self) -> Report:
        """All that is known by now."""
        results, shard = self._finished, self.request.shard
        return Report(
            policy=self.request.policy.as_json(),
            sides=self._sides(),
            verdicts=(*(row for result in results for row in result.rows), *self.missing()),
            variant_results=with_shares([result.variant_result for result in results if result.variant_result]),
            skips=tuple(Skip(result.case, result.skip) for result in results if result.skip),
            wall_seconds=self._clock() - self._began,
            seed=self.request.seed,
            interrupted=self._interrupted,
            shard=part(shard, self.request.suite_cases, [case.name for case in self.cases]) if shard else None,
            profiles=tuple(profile for result in results for profile in result.profiles),
        )

    def _sides(self) -> dict[str, JSON]:
        sides = {"contender": self._contender, **({"baseline": self._rival} if self._rival else {})}
        return {
            name: {
                "spec": side.spec or "working tree",
                "root": str(side.root),
                "slowdown": side.slowdown,
                "import_seconds": self._launcher.import_seconds(side),
                **self._described.get(name, {}),
                **self._gpu_session.as_json(),
            }
            for name, side in sides.items()
        }

    # Keeping

    def save(self) -> Path:
        """Save the contender's samples as the baseline that was asked for.

        Raises:
            BaselineError: A case failed, nothing was measured, or the file cannot be written.
        """
        return self._recorder.save(self._measurements())

    def remember(self) -> Path | None:
        """Write down what is to be known of this run later, see `RunRecorder.remember`; nothing after an interruption."""
        return None if self._interrupted else self._recorder.remember(self._measurements(), self._saved)

    def _measurements(self) -> RunMeasurements:
        return RunMeasurements(
            results=self._finished,
            way=SIDES if self._is_elsewhere else self._way,
            environment=lambda tree: self._environment_info(tree=tree),
        )

    @property
    def _finished(self) -> list[CaseResult]:
        return [self._results[case.name] for case in self.cases if case.name in self._results]

    def close(self) -> None:
        """End every process."""
        self._launcher.close()
        self._environments.close()
        self._gpu_session.close()

    @contextmanager
    def avoid_worker_cpus(self) -> Iterator[None]:
        """Keep this process off the worker's processor meanwhile, where there is another one."""
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
