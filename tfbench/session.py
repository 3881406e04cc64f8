"""One question from start to end: entrants -> race -> comparison -> verdict -> store and report."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tfbench.errors import (
    BaselineError,
    BenchmarkError,
    BenchmarkSkipped,
    SideError,
    TfbenchError,
    WorkerDied,
    WorkerHung,
)
from tfbench.model import (
    JSON,
    Case,
    Outcome,
    Reason,
    Recipe,
    Report,
    Run,
    Sample,
    Skip,
    Standing,
    Verdict,
)  # fmt: skip
from tfbench.policy import Policy
from tfbench.race.contest import Contest
from tfbench.race.launcher import Entrant
from tfbench.race.processes import ProcessLauncher, Processors
from tfbench.race.sequential import Race, Terms
from tfbench.race.zygote import Suite
from tfbench.replay import Replay, replay
from tfbench.sides.side import Side
from tfbench.sides.spec import parse
from tfbench.sides.tree import Snapshot, snapshot
from tfbench.store.baselines import Baselines

Progress = Callable[["Step"], None]


@dataclass(frozen=True)
class Question:
    """What the user asked for."""

    root: Path
    suite: Suite
    policy: Policy
    processors: Processors
    executable: str
    folder: Path
    """Where baselines and made source trees are kept."""
    against: str = ""
    baseline: str = ""
    replay: str = "all"
    save: str = ""
    slowdown: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)
    require_gpu: bool = False
    seed: int = 0
    expected: tuple[str, ...] | None = None
    """Files and folders whose saved cases this run ought to have, or ``None`` for all of them."""
    present: frozenset[str] = frozenset()
    """Every case there is in those files, deselected ones included."""


@dataclass(frozen=True)
class Step:
    """How far the run is, for whoever draws it."""

    text: str
    race: Race | None = None
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Result:
    """What became of one case. One of ``verdict`` and ``skip`` is there."""

    case: Case
    verdict: Verdict | None = None
    skip: str = ""
    standing: Standing | None = None
    sample: Sample | None = None
    output: str = ""
    """What the broken process printed last."""


class Session:
    """Answers one `Question`, case by case; a race is run when the first of its cases is asked for."""

    def __init__(self, question: Question, progress: Progress = lambda step: None) -> None:
        self.question = question
        self._progress = progress
        self._clock = time.perf_counter
        self._began = self._clock()
        self._rng = random.Random(question.seed)
        self._launcher = ProcessLauncher(question.suite, question.policy, question.processors)
        self._baselines = Baselines(question.folder / "baselines")
        self._contender = Side("contender", question.executable, question.root, "", question.env, question.slowdown)
        self._results: dict[str, Result] = {}
        self._groups: dict[str, list[Case]] = {}
        self._recipes: dict[str, JSON] = {}
        self._started: SideError | None = None
        self._interrupted = False
        # What can be refused is refused before anything is started.
        self._trees = question.folder / "trees"
        self._rival = parse(question.against, self._contender, self._trees) if question.against else None
        self._saved = self._baselines.fetch(question.baseline) if question.baseline else None
        self._replay: Replay | None = None
        if question.save:
            self._baselines.check_name(question.save)

    # Asking

    def expect(self, cases: Sequence[Case]) -> None:
        """The cases of this run, in order; those of a group race each other unless sides are compared."""
        for case in cases:
            self._groups.setdefault(case.name if self.compares_sides else case.group, []).append(case)

    @property
    def compares_sides(self) -> bool:
        """Whether cases are judged against a baseline side, and not only against each other."""
        return self._rival is not None or self._saved is not None

    @property
    def cases(self) -> list[Case]:
        """Every case of the run."""
        return [case for group in self._groups.values() for case in group]

    def result(self, case: Case) -> Result:
        """What became of this case, raced now if it has not been."""
        if case.name not in self._results:
            group = self._groups[case.name if self.compares_sides else case.group]
            try:
                self._start(group)
                results = self._race_sides(case) if self.compares_sides else self._race_variants(group)
            except SideError as error:
                results = [self._broken(one, error) for one in group]
            except KeyboardInterrupt:
                self._interrupted = True
                raise
            self._results.update({result.case.name: result for result in results})
        return self._results[case.name]

    # Starting

    def _start(self, group: Sequence[Case]) -> None:
        if self._started is not None:
            raise self._started  # a side that does not start is told once for each case, and tried once
        policy = self.question.policy
        pairs = range(min(policy.zygotes, policy.looks[0]))  # the others are started when a race gets there
        sides = [self._contender, *([self._rival] if self._rival else [])]
        wanted = [(side, env) for side in sides for env in dict.fromkeys(case.env for case in group)]
        self._progress(Step("starting the measuring processes", None, len(self._results), len(self.cases)))
        try:
            self._launcher.ready(wanted, pairs)
            self._recipes.update({side.name: self._launcher.recipe(side) for side in sides})
            if self._saved is not None and self._replay is None:
                self._replay = self._prepare_replay()
                if self._replay.side is not None:
                    self._rival = self._replay.side
                    self._start(group)
            if (
                self.question.require_gpu
                and not self._results
                and not self._launcher.devices(self._contender).get("GPU")
            ):
                raise SideError("--require-gpu: TensorFlow sees no GPU; check nvidia-smi and tensorflow[and-cuda]")
        except SideError as error:
            self._started = error
            raise
        except BenchmarkError as error:
            self._started = SideError(f"{error}\n{error.output}")
            raise self._started from error

    def _prepare_replay(self) -> Replay:
        assert self._saved is not None
        return replay(self._saved, self._contender, self._recipe(None), self.question.replay, self._trees)

    def _recipe(self, tree: Snapshot | None) -> Recipe:
        described = self._recipes["contender"]
        return Recipe(
            python=described["python"],
            executable=described["executable"],
            packages=described["packages"],
            commit=tree.commit if tree else "",
            dirty=tree.dirty if tree else False,
            settings=described["settings"],
            cpus=self.question.processors.one,
            threads=len(self.question.processors.one),
            machine=described["machine"],
        )

    # Racing

    def _new_race(self, entrants: Sequence[Entrant]) -> Race:
        policy = self.question.policy
        terms = Terms(len(self.cases), range(policy.zygotes))
        return Race(entrants, self._launcher, policy, terms, self._clock, self._rng)

    def _run(self, race: Race | Contest, text: str) -> None:
        def tell(race: Race | None) -> None:
            self._progress(Step(text, race, len(self._results), len(self.cases)))

        tell(None)
        race.run(tell)

    def _race_variants(self, group: Sequence[Case]) -> list[Result]:
        ordered = sorted(group, key=lambda case: not case.reference)
        race = self._new_race([Entrant(case, self._contender) for case in ordered])
        try:
            self._run(race, group[0].workload)
        except KeyboardInterrupt:
            race.conclude()
            results = [self._of_variant(race, index) for index in range(len(ordered)) if race.runs(index)]
            self._results.update({result.case.name: result for result in results})
            raise
        return [self._of_variant(race, index) for index in range(len(ordered))]

    def _of_variant(self, race: Race, index: int) -> Result:
        case = race.entrants[index].case
        if (failure := race.failures.get(index)) is not None:
            return self._failed(case, failure)
        sample = Sample(case, tuple(race.runs(index)))
        decision = race.decisions.get(index)
        reference = race.entrants[race.reference if race.reference is not None else index].case
        standing = Standing(
            case=case,
            reference=reference.name,
            median_seconds=median(sample.seconds),
            ratio=decision.comparison.ratio if decision else None,
            outcome=decision.outcome if decision else None,
            launches=len(sample.runs),
            rounds=race.rounds(index),
            facts=_typical_facts(sample.runs),
        )
        reason = Reason("no-baseline", "measured; compared with the other variants only, as no baseline was asked for")
        return replace(self._new(case, race, index, reason), standing=standing)

    def _new(self, case: Case, race: Race, index: int, reason: Reason) -> Result:
        verdict = Verdict(
            case,
            Outcome.NEW,
            reason,
            launches=len(race.runs(index)),
            rounds=race.rounds(index),
            wall_seconds=race.wall_seconds,
        )
        return Result(case, verdict, sample=Sample(case, tuple(race.runs(index))))

    def _race_sides(self, case: Case) -> list[Result]:
        if self._saved is not None:
            if case.name not in self._saved.samples:
                race = self._new_race([Entrant(case, self._contender)])
                self._run(race, case.name)
                if race.failures:
                    return [self._failed(case, race.failures[0])]
                text = f"it is not in the baseline {self._saved.name!r}, so there is nothing to compare it with"
                return [self._new(case, race, 0, Reason("not-in-baseline", text))]
            assert self._replay is not None
            if self._replay.side is None:
                return [self._unraced(case, self._replay)]
        assert self._rival is not None
        entrants = [Entrant(case, self._rival), Entrant(case, self._contender)]
        contest = Contest(entrants, self._launcher, self.question.policy, len(self.cases), self._clock, self._rng)
        try:
            self._run(contest, case.name)
        except KeyboardInterrupt:
            if contest.decision is not None:
                self._results[case.name] = self._judged(case, contest)
            raise
        return [self._judged(case, contest)]

    # Judging

    def _judged(self, case: Case, contest: Contest) -> Result:
        if contest.failures:
            # The contender's own failure says more than that of the side it is compared with.
            entrant, failure = max(contest.failures.items())
            side = ("baseline", "contender")[entrant]
            if isinstance(failure, BenchmarkSkipped) and len(contest.failures) == 1:
                reason = Reason("skipped-on-one-side", f"the {side} side cannot run it: {failure}")
                return Result(case, Verdict(case, Outcome.INCOMPARABLE, reason))
            return self._failed(case, failure, f"on the {side} side: ")
        decision = contest.decision
        if decision is None or decision.outcome is None:
            raise BenchmarkError(f"{case.name}: the race ended without a decision")
        verdict = Verdict(
            case=case,
            outcome=decision.outcome,
            reason=decision.reason,
            ratio=decision.comparison.ratio,
            launches=contest.launches,
            rounds=contest.rounds,
            wall_seconds=contest.wall_seconds,
        )
        return Result(case, verdict, sample=Sample(case, tuple(contest.runs(1))))

    def _failed(self, case: Case, failure: TfbenchError, where: str = "") -> Result:
        if isinstance(failure, BenchmarkSkipped):
            return Result(case, skip=str(failure))
        reason = Reason(_code(failure), f"{where}{failure}")
        output = failure.output if isinstance(failure, BenchmarkError) else ""
        return Result(case, Verdict(case, Outcome.ERROR, reason), output=output)

    def _broken(self, case: Case, error: SideError) -> Result:
        headline, _, output = str(error).partition("\n")
        return Result(case, Verdict(case, Outcome.ERROR, Reason("side", headline)), output=output)

    def _unraced(self, case: Case, plan: Replay) -> Result:
        assert plan.reason is not None
        return Result(case, Verdict(case, plan.outcome, plan.reason))

    # Ending

    def missing(self) -> list[Verdict]:
        """Cases of the saved baseline that this run ought to have and has not."""
        if self._saved is None:
            return []
        question = self.question
        gone = []
        for name, sample in sorted(self._saved.samples.items()):
            if name in question.present or not _below(name.partition("::")[0], question.expected):
                continue
            text = f"the baseline {self._saved.name!r} has it and the suite has not: was it deleted or renamed?"
            gone.append(Verdict(sample.case, Outcome.MISSING, Reason("not-collected", text)))
        return gone

    def report(self) -> Report:
        """All that is known by now."""
        results = [self._results[case.name] for case in self.cases if case.name in self._results]
        return Report(
            policy=self.question.policy.as_json(),
            sides=self._sides(),
            verdicts=(*(result.verdict for result in results if result.verdict), *self.missing()),
            standings=tuple(result.standing for result in results if result.standing),
            skips=tuple(Skip(result.case, result.skip) for result in results if result.skip),
            wall_seconds=self._clock() - self._began,
            seed=self.question.seed,
            interrupted=self._interrupted,
        )

    def _sides(self) -> dict[str, JSON]:
        sides = {"contender": self._contender, **({"baseline": self._rival} if self._rival else {})}
        return {
            name: {
                "spec": side.spec or "working tree",
                "root": str(side.root),
                "slowdown": side.slowdown,
                **self._recipes.get(name, {}),
            }
            for name, side in sides.items()
        }

    def save(self) -> Path:
        """Save the contender's samples as the baseline that was asked for.

        Raises:
            BaselineError: A case failed, nothing was measured, or the file cannot be written.
        """
        failed = [
            result.case.name
            for result in self._results.values()
            if result.verdict is not None and result.verdict.outcome in (Outcome.REGRESSED, Outcome.ERROR)
        ]
        if failed:
            raise BaselineError(f"the baseline {self.question.save!r} was not saved: {failed[0]} did not pass")
        if self.question.slowdown:
            raise BaselineError(
                f"the baseline {self.question.save!r} was not saved: its times hold an injected slowdown"
            )
        samples = [result.sample for case in self.cases if (result := self._results.get(case.name)) and result.sample]
        if not samples:
            raise BaselineError(f"the baseline {self.question.save!r} was not saved: nothing was measured")
        tree = snapshot(self.question.root, self.question.save)
        return self._baselines.save(self.question.save, self._recipe(tree), tree.tree if tree else "", samples)

    def close(self) -> None:
        """End every process."""
        self._launcher.close()

    @contextmanager
    def away_from_workers(self) -> Iterator[None]:
        """Keep this process off the worker's processor meanwhile, where there is another one."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        if others := before - set(self.question.processors.one):
            os.sched_setaffinity(0, others)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def _below(file: str, paths: tuple[str, ...] | None) -> bool:
    return paths is None or any(path in (".", file) or file.startswith(f"{path}/") for path in paths)


def _code(failure: TfbenchError) -> str:
    return "died" if isinstance(failure, WorkerDied) else "hung" if isinstance(failure, WorkerHung) else "broken"


def _typical_facts(runs: Sequence[Run]) -> JSON:
    """Facts of a case: the same in every launch, except the first call, whose median is taken."""
    facts = dict(runs[0].facts)
    facts["first_call"] = median(run.facts["first_call"] for run in runs)
    return facts
