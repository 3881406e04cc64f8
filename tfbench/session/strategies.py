"""Decide what a case races against: a side, a baseline, other variants."""

from __future__ import annotations

import platform
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from tfbench.errors import BenchmarkError, SideError, UsageError
from tfbench.facts import OPTION, PYTHON_OPTIONS, VISIBLE, packages, settings
from tfbench.model import Case, EnvironmentInfo, MetricValues, Outcome, Verdict, YardstickChange, function_name
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.timer import Phase
from tfbench.session.options import NEVER
from tfbench.session.races import Races
from tfbench.session.request import CaseResult, RunProgress, RunRequest, missing
from tfbench.session.results import NO_BASELINE, BaselineValues, MetricChecker, skipped_on_one_side, ungated, untimed
from tfbench.session.resume import ChangedOnly
from tfbench.sides.counterparts import Counterparts, Listing, benchmarks_of
from tfbench.sides.environments import Environments, installed, minor, other_requirements
from tfbench.sides.source_tree import Snapshot, is_pinned, snapshot
from tfbench.sides.spec import UNPINNED, Side, as_committed, of_tree, parse, parts_of
from tfbench.sides.yardstick import changes_of, judged_tree, own_files, same_but_imports
from tfbench.storage.baselines import Baseline, Layout, describe
from tfbench.storage.history import Anchor, json_digest

# Check and identify the anchor of a history: the baseline side that every run of it races against


def check_anchor(request: RunRequest) -> None:
    """Refuse a run of a history whose baseline side is another one tomorrow.

    Raises `UsageError` if a part of the specification moves, or both sides are the same.
    """
    if not request.history or not request.against:
        return
    parts = parts_of(request.against)
    if parts == ["self"]:
        raise UsageError("--history: a race against self has no anchor; name a tag, a version or a baseline")
    for part in parts:
        kind, _, revision = part.partition(":")
        if part in UNPINNED:
            raise UsageError(f"--history: {part} is another version tomorrow; pin the anchor, such as {part}==VERSION")
        if kind == "git" and not is_pinned(request.root, revision):
            raise UsageError(f"--history: {part} is no tag or commit, and may move; pin the anchor, such as git:v1.0")


def anchor_of(side: Side, environment: EnvironmentInfo, saved: Baseline | None) -> Anchor:
    """Identify a baseline side by its source tree, Python, packages and settings, whatever machine it runs on.

    ``saved`` is the baseline that the side was recreated from, if any.
    """
    if saved is not None:
        environment = saved.environment
    tree = saved.tree if saved is not None else side.judged.tree if side.judged else ""
    content = [tree, minor(environment.python), dict(environment.packages), dict(environment.settings)]
    return Anchor(describe(saved) if saved is not None else side.spec, json_digest(content))


# Recreate the side of a saved baseline


def not_saved(saved: Baseline) -> Reason:
    """Return why a case that the baseline lacks has no comparison."""
    return because(ReasonCode.NOT_IN_BASELINE, because(Note.NOT_SAVED, name=saved.name))


def baseline_side(
    request: RunRequest, saved: Baseline | None, contender: Side, environments: Environments
) -> Side | Reason | None:
    """Return the side that the contender races, or why a saved one cannot be recreated; ``None`` without one.

    The side of ``saved`` is recreated, unless the user asks for ``--replay never``.
    Raises `UsageError` or `SideError` if the specification names no side, or one that cannot be made.
    """
    trees = Layout(request.folder).trees
    if saved is not None:
        return None if request.replay == NEVER else recreate_side(saved, contender, trees, environments)
    return parse(request.against, contender, trees, environments) if request.against else None


def recreate_side(saved: Baseline, contender: Side, cache: Path, environments: Environments) -> Side | Reason:
    """Return a side with the baseline's source tree, packages and settings, or why that is impossible.

    ``cache`` is the folder for recreated source trees. ``environments`` installs packages that differ from those here.
    """
    source = source_of(saved, contender, cache)
    if isinstance(source, Reason):
        return source
    try:
        executable = _executable(saved.environment, contender, environments)
    except SideError as error:
        return because(ReasonCode.NO_ENVIRONMENT, spec=source.spec, error=str(error))
    settings_then = saved.environment.settings.items()
    there = {name: value for name, value in settings_then if not name.startswith(OPTION) and name != PYTHON_OPTIONS}
    now = {**settings(), **contender.env}
    there |= {name: contender.env[name] for name in VISIBLE if name in contender.env and name not in there}
    unset = tuple(name for name in now if name not in there)
    return replace(source, executable=executable, env=there, code=code_of_saved(saved), unset=unset)


def code_of_saved(saved: Baseline) -> Snapshot:
    """Return the code that a baseline was measured with. Without git, the run that measured it stands for its code."""
    tree = saved.tree or f"session:{saved.context.session or saved.saved}"
    return Snapshot(tree, saved.environment.commit, saved.environment.dirty)


def source_of(saved: Baseline, contender: Side, cache: Path) -> Side | Reason:
    """Return a side with the baseline's source tree and the contender's interpreter, or why that is impossible."""
    spec = describe(saved)
    here = snapshot(contender.root)
    if here is not None and here.tree == saved.tree and not here.edited:
        return Side("baseline", contender.executable, contender.root, spec)
    if not saved.tree:
        return because(ReasonCode.NO_SOURCE, because(Note.UNVERSIONED, spec=spec))
    try:
        tree = judged_tree(contender.root, saved.tree, contender.yardstick, cache)
    except SideError as error:
        return because(ReasonCode.NO_SOURCE, spec=spec, error=str(error))
    return of_tree(Side("baseline", contender.executable, contender.root, spec), tree)


def _executable(saved: EnvironmentInfo, contender: Side, environments: Environments) -> str:
    """Return an interpreter with the baseline's packages; the contender's own if that has the same."""
    here = packages() | _versions(saved.packages, sys.executable)
    if saved.packages == here and minor(saved.python) == minor(platform.python_version()):
        return contender.executable
    wanted = [f"{name}=={version}" for name, version in saved.packages.items()]
    return environments.get(wanted, minor(saved.python)).executable


def _versions(names: Iterable[str], executable: str) -> dict[str, str]:
    there = installed(executable)
    return {name: there[name] for name in names if name in there}


def environment_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """Return the differences in Python's minor version, packages and settings, one phrase each.

    Raises `SideError` if the present interpreter does not list its packages.
    """
    texts = [f"Python {saved.python} there, {now.python} here"] if minor(saved.python) != minor(now.python) else []
    more = saved.packages.keys() - now.packages.keys()
    here = {**now.packages, **(_versions(more, now.executable) if more else {})}
    texts += _differences(saved.packages, here, "not installed")
    return texts + _differences(saved.settings, now.settings, "not set")


def machine_differences(saved: EnvironmentInfo, now: EnvironmentInfo) -> list[str]:
    """Return the differences of the machines, one phrase each. They affect saved times, not live races."""
    texts = _differences(saved.machine, now.machine, "unknown")
    if saved.python != now.python and minor(saved.python) == minor(now.python):
        texts.append(f"Python {saved.python} there, {now.python} here")
    if saved.threads != now.threads:
        texts.append(f"threads {saved.threads} there, {now.threads} here")
    return texts


def _differences(there: Mapping[str, str], here: Mapping[str, str], absent: str) -> list[str]:
    return [
        f"{name} {there.get(name, absent)} there, {here.get(name, absent)} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    ]


def changed_since(saved: Baseline, case: Case) -> bool:
    """Tell whether the benchmark's function or its file is other code than when it was saved; false if unknown."""
    known = saved.samples[case.name].case
    pairs = [(known.source, case.source)]
    if minor(saved.environment.python) == minor(platform.python_version()):  # digests of another Python may differ
        pairs.append((known.file, case.file))
    return any(before and now and before != now for before, now in pairs)


def not_raced(saved: Baseline, result: CaseResult, differences: Sequence[str], unmade: Reason | None) -> CaseResult:
    """Return the result of a case that did not race the baseline's side, with a verdict that no saved time decides.

    ``result`` comes from a race of variants. ``differences`` are those between the baseline's machine and environment and the
    current ones. ``unmade`` states why the baseline's side cannot be raced; ``None`` if the user did not ask for it.
    """
    case, verdict = result.case, result.verdict
    if verdict is None or result.sample is None or result.variant_result is None:
        return result  # it was skipped, or failed
    if case.name not in saved.samples:
        return replace(result, verdict=verdict.changed(reason=not_saved(saved)))
    outcome = Outcome.INCOMPARABLE
    if differences:
        reason = because(ReasonCode.OTHER_MACHINE, spec=describe(saved), differences=differences)
    elif changed_since(saved, case):
        reason = because(ReasonCode.BENCHMARK_CHANGED)
    else:
        outcome = Outcome.INCONCLUSIVE
        before, now = (min(sample.floors) for sample in (saved.samples[case.name], result.sample))
        reason = because(ReasonCode.SAVED_TIMES, before=before, now=now)
    why = unmade or (because(Note.RACE_ALL) if outcome is Outcome.INCONCLUSIVE else None)
    return replace(result, verdict=verdict.changed(outcome=outcome, reason=reason.noted(why)))


# Start the zygotes of sides, and learn what each side consists of


@dataclass
class SideStarter:
    """Start sides before their first race.

    ``machine`` has the properties of the machine's GPUs, for the environment info.
    """

    request: RunRequest
    launcher: ProcessLauncher
    checker: MetricChecker
    machine: Mapping[str, str]
    report: RunProgress
    unbuilt: Sequence[Case] = field(default=(), init=False)
    """Cases of the run whose shared set-ups have not been built yet."""
    failure: SideError | None = field(default=None, init=False)
    """Why no case can be measured, whatever its side."""
    lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    """Held while a side starts, or is looked at for the first time: the races of other lanes wait for it as well."""

    def start(self, cases: Sequence[Case], *sides: Side) -> None:
        """Start the missing zygotes of these sides, and ask each side for its environment.

        The first side is checked for GPUs when it starts.
        Raises `SideError` if a side does not start. The launcher makes no second attempt in the same environment.
        """
        with self.lock:
            if self.failure is not None:
                raise self.failure
            self.report("starting the measuring processes")
            try:
                self._start(cases, sides)
            except BenchmarkError as error:
                self.failure = SideError(f"{error}\n{error.output}")
                raise self.failure from error
            if any(case.shared for case in cases):
                self._build_shared(cases, sides)

    def _build_shared(self, cases: Sequence[Case], sides: Sequence[Side]) -> None:
        """Build the shared set-ups of these cases, and of all others in the run with the same settings, several at once.

        Otherwise a race would spend its time limit on building them. The first launch that needs a set-up builds it.
        """
        alike = [case for case in self.unbuilt if case.env == cases[0].env]
        self.unbuilt = [case for case in self.unbuilt if case.env != cases[0].env]
        shared = {case.name: case for case in (*cases, *alike) if case.shared}
        self.report("building shared set-ups")
        with self.launcher.stopwatch.phase(Phase.SHARED_SETUP):
            # One side after the other: two launches that need the same set-up would wait for each other.
            entrants = [Entrant(case, side) for side in sides for case in shared.values()]
            self.checker.look(entrants, lambda done: self.report(f"building shared set-ups: {done} launches done"))

    def _start(self, cases: Sequence[Case], sides: Sequence[Side]) -> None:
        policy, first = self.request.policy, not self.launcher.environment(sides[0])
        wanted = [(side, env) for side in sides for env in dict.fromkeys(case.env for case in cases)]
        # A race starts the other pairs when it needs them.
        entrants = [Entrant(cases[0], side) for side in sides]
        pairs = range(min(self.launcher.policy_of(policy, entrants).pairs(len(wanted)), policy.looks[0]))
        self.launcher.ready(wanted, pairs)
        if first and self.request.require_gpu and not self.launcher.devices(sides[0]).get("GPU"):
            self.failure = SideError("--require-gpu: TensorFlow sees no GPU; check nvidia-smi and tensorflow[and-cuda]")
            raise self.failure

    def environment_info(self, side: Side) -> EnvironmentInfo:
        """Describe the environment of a started side; its commit is left empty."""
        described = self.launcher.environment(side)
        cpus = self.launcher.cpus(Entrant(Case("", "", ""), side), self.request.processors)
        return EnvironmentInfo(
            python=described["python"], executable=described["executable"], packages=described["packages"], commit="",
            dirty=False, settings=described["settings"], cpus=cpus, threads=len(cpus),
            machine={**described["machine"], **self.machine},
        )  # fmt: skip


# Decide what each case races against: the other variants, a live side, or the side of a saved baseline


@dataclass
class Strategy:
    """What the cases of a run race against, chosen once at its start: the other variants of their workload, or a side."""

    request: RunRequest
    contender: Side
    starter: SideStarter
    races: Races
    baseline: Side | None
    """The side that the contender races against, if any."""
    notes: list[str] = field(default_factory=list, init=False)
    _raced_on: dict[str, Side] = field(default_factory=dict, init=False)
    """Name of a case -> its baseline side, where that has benchmark files of its own."""

    @cached_property
    def yardstick_changes(self) -> tuple[YardstickChange, ...]:
        """What differs between the baseline's own benchmarks and those raced on both sides."""
        tree = self.baseline.judged if self.baseline else None
        return tuple(changes_of(tree)) if tree else ()

    @cached_property
    def _with_own_files(self) -> Side | None:
        """The baseline side with its own benchmark files, as far as these differ from ours in their imports alone."""
        root, side = self.request.root, self.baseline
        assert side is not None
        assert side.judged is not None
        functions = defaultdict[str, set[str]](set)
        for known in self.request.suite_cases:
            functions[known.name.partition("::")[0]].add(function_name(known.name))
        if not (kept := own_files(side.judged, root, functions)):
            return None
        cache = Layout(self.request.folder).trees
        judged = judged_tree(root, side.judged.tree, self.contender.yardstick, cache, kept)
        return replace(of_tree(side, judged), name=f"{side.name} with its own files")

    def _on_own_files(self, case: Case, there: Case, broken: CaseResult, *notes: Reason) -> Iterable[CaseResult] | None:
        """Race a case that breaks on the other side alone with that side's own benchmark file.

        ``None`` if that may not stand for the working tree's. It may if the two are the same apart from imports and other
        test functions. Raises `SideError` if the tree cannot be written.
        """
        assert broken.verdict is not None
        file, tree = case.name.partition("::")[0], self.baseline.judged if self.baseline else None
        here = self.request.root / file
        if tree is None or not same_but_imports(tree.own_root / file, here, function_name(case.name)):
            return None
        with self.starter.lock:
            own = self._with_own_files
        if own is None:
            return None
        self.starter.start([case], own)
        self._raced_on[case.name] = own
        return self.races.sides(case, own, there, *notes, because(Note.OWN_FILE, broken.verdict.reason))

    def group_of(self, case: Case) -> str:
        """Name the group of cases that one race measures."""
        return case.name if self.baseline else case.group

    def race(self, case: Case, group: Sequence[Case]) -> Iterable[CaseResult]:
        """Race this case, with its whole group where variants race each other.

        Raises `SideError` if a side does not start.
        """
        self.starter.start(group, self.contender)
        return self.races.variants(group)

    def baseline_entrant(self, case: Case) -> Entrant | None:
        """Return the case's counterpart on the baseline side as it raced, if there is a baseline."""
        side = self._raced_on.get(case.name, self.baseline)
        return Entrant(self._counterpart(case), side) if side else None

    def _counterpart(self, case: Case) -> Case:
        """Return the case with its thresholds on the baseline side."""
        return case

    def baseline_values(self, result: CaseResult) -> BaselineValues | None:
        """Return what the other metrics of a case are compared with, ``None`` without a counterpart."""
        return None

    def gated(self, result: CaseResult, _: Sequence[Case] = ()) -> CaseResult:
        """Return the result with what must prevent no pass, as the mark of the case says here and on the other side.

        An improvement must prevent one with ``--fail-on-improvement``.
        """
        case = result.case
        if result.verdict is None or self.is_gated(case):
            if result.verdict and result.verdict.outcome is Outcome.IMPROVED and self.request.fail_on_improvement:
                return replace(result, verdict=result.verdict.noted(because(Note.UNWANTED)))
            return result
        first, *others = (ungated(row, case.ungated) for row in result.rows)
        return replace(result, verdict=first, metrics=tuple(others))

    def is_gated(self, case: Case) -> bool:
        """Tell whether a case can prevent a pass, as its mark says here and on the other side."""
        return not (case.ungated and (self._marked(case) or case).ungated)

    def _marked(self, case: Case) -> Case | None:
        """Return the case with its marks on the other side, ``None`` where that has none of its own.

        Raises `SideError` if the other side's benchmarks cannot be collected.
        """
        return None

    def skipped(self, case: Case, reason: str, mark: bool = False) -> CaseResult:
        """Return the result of a case that cannot run here, and not with these benchmarks on a live side either.

        Where a ``mark`` of pytest skips it, the other side may run it. Raises `SideError` if the other side's benchmarks
        cannot be collected.
        """
        return CaseResult(case, skip=reason or "no reason given")

    def _benchmarks_of(self, side: Side) -> Listing:
        request = self.request
        return benchmarks_of(side, request.selection, request.collect_command, request.policy.start_seconds)

    def conclude(self) -> None:
        """Find out what `missing` needs, also in a run that raced nothing.

        Raises `SideError` if the other side's benchmarks cannot be collected.
        """

    def missing(self) -> list[Verdict]:
        """Return a verdict for each case that the other side would run and this run lacks, as far as it is known."""
        return []


@dataclass
class LiveSideStrategy(Strategy):
    """Race each case against its counterpart on a live side.

    The benchmarks of the working tree race on both. The side's own ones tell which cases it has, and with which marks.
    """

    baseline: Side
    changed_only: ChangedOnly | None = None
    """What spares races of cases with the same code, if the user asks for it."""
    counterparts: Counterparts | None = field(default=None, init=False)
    """The cases of the live side's source tree, if it has its own."""
    _failed: SideError | None = field(default=None, init=False)
    """Why they cannot be collected, for all cases after the first one."""

    def race(self, case: Case, group: Sequence[Case]) -> Iterable[CaseResult]:
        self._collect_side()
        self.starter.start(group, self.contender, self.baseline)
        there, here = Entrant(self._counterpart(case), self.baseline), Entrant(case, self.contender)
        if self.changed_only and (spared := self.changed_only.spares(there, here, self._differences())):
            return [untimed(case, Outcome.NEW, spared)]
        repair = partial(self._repaired, case, there.case)
        return self.races.sides(case, self.baseline, there.case, *self._marks(case), repair=repair)

    def _marked(self, case: Case) -> Case | None:
        self._collect_side()
        return self.counterparts.known(case) if self.counterparts else None

    def _marks(self, case: Case) -> Iterator[Reason]:
        """Yield a note on each mark of the case that counts on both sides, although the other side's own differs."""
        there = self._marked(case) or case
        if there.cpus != case.cpus:
            yield because(Note.OTHER_MARK, mark="cpus", before=there.cpus or "all", now=case.cpus or "all")
        if there.env != case.env:
            before, now = (" ".join(map("=".join, one.env)) or "none" for one in (there, case))
            yield because(Note.OTHER_MARK, mark="variables", before=before, now=now)

    def _repaired(self, case: Case, there: Case, broken: CaseResult) -> Iterable[CaseResult] | None:
        """Race a case that breaks on the other side alone with the benchmark files of that side, if they may stand for ours.

        ``None`` if they may not, and the other side has the case.
        """
        if (raced := self._on_own_files(case, there, broken, *self._marks(case))) is not None:
            return raced
        if self.counterparts is not None and not self.counterparts.has(case):
            assert broken.verdict is not None
            breaks = because(Note.BREAKS_THERE, broken.verdict.reason)
            return self.races.alone(case, because(ReasonCode.ADDED, breaks, spec=self.baseline.spec))
        return None

    def _collect_side(self) -> None:
        """Collect the benchmarks of the live side's own source tree, if it has one."""
        with self.starter.lock:
            if self._failed is not None:
                raise self._failed
            if not self.baseline.tree_redirect or self.counterparts is not None:
                return
            self.starter.report(f"collecting the benchmarks of {self.baseline.spec}")
            request = self.request
            with self.starter.launcher.stopwatch.phase(Phase.STARTING):
                try:
                    before = self._benchmarks_of(self.baseline)
                except SideError as error:
                    self._failed = SideError(f"{error.headline}; it was not tried again")
                    raise
                self.counterparts = Counterparts(before, request.suite_cases, request.collected, request.root)
            if before.gate not in ((), request.gate):  # without a file of this run, the tree has not been collected
                mine, theirs = map(" ".join, (request.gate, before.gate))
                altered = f"its configuration has {mine}, and that of {self.baseline.spec} has {theirs}"
                self.notes.append(f"this change alters its own gate: {altered}; review it, or give options yourself")
            if changed := other_requirements(as_committed(self.baseline).root, request.root):
                text = f"{', '.join(changed)}: not as in {self.baseline.spec}, but both sides run with what is installed here"
                self.notes.append(f"{text}; race the packages with --against NAME==VERSION")

    def skipped(self, case: Case, reason: str, mark: bool = False) -> CaseResult:
        if mark:
            self._collect_side()
        if not (self.counterparts and self.counterparts.runs(case) and (mark or self._runs_there(case))):
            return super().skipped(case, reason)
        return skipped_on_one_side(case, because(Note.SKIPPED_HERE, spec=self.baseline.spec, why=reason))

    def _runs_there(self, case: Case) -> bool:
        """Tell whether the other side runs its own benchmark, in case the change has made it skip itself."""
        there = self._marked(case)
        if there is None or not self.yardstick_changes:
            return False
        own = replace(as_committed(self.baseline), name="the other side as committed")
        self.starter.start([there], own)
        (found,) = self.races.alone(there, NO_BASELINE, own)
        return found.verdict is not None and found.verdict.outcome is Outcome.NEW

    def _counterpart(self, case: Case) -> Case:
        return self.counterparts.of(case) if self.counterparts else case

    def baseline_values(self, result: CaseResult) -> BaselineValues | None:
        verdict = result.verdict
        if verdict is not None and verdict.reason.code is ReasonCode.ADDED:
            return None
        return BaselineValues(entrant=self.baseline_entrant(result.case), differences=self._differences())

    def _differences(self) -> list[str]:
        baseline, here = (self.starter.environment_info(side) for side in (self.baseline, self.contender))
        return environment_differences(baseline, here)

    def conclude(self) -> None:
        self._collect_side()
        if self.counterparts is None:
            return
        listing, launcher = self.counterparts.listing, self.starter.launcher
        if broken := tuple(place for place in listing.broken if place not in listing.seen and place.endswith(".py")):
            own = replace(as_committed(self.baseline), name="the unlisted files of the other side", files=broken)
            launcher.ready([(own, ())], [0])
            broken = tuple(listing.unlisted(launcher.environment(own).get("cases", ())))
            launcher.release(own)
        if files := broken:
            fix = "let pytest find its imports in the same way, such as by the option pythonpath of the configuration file"
            text = f"{files[0]} is imported by its measuring processes, and not by the pytest that lists its cases"
            raise SideError(f"{self.baseline.spec}: {text}; {fix}")

    def missing(self) -> list[Verdict]:
        if self.counterparts is None:
            return []
        against = self.request.against
        return missing(
            self.request,
            self.counterparts.gone(self.request.known),
            because(ReasonCode.NOT_COLLECTED, because(Note.GONE, spec=against)),
            because(ReasonCode.DESELECTED_HERE, because(Note.RUNS_THERE, spec=against)),
        )


@dataclass
class SavedBaselineStrategy(Strategy):
    """Judge cases against a saved baseline by a live race of its recreated side, or leave their times undecided.

    ``unmade`` is why the baseline's side cannot be recreated; ``None`` if it is, and under ``--replay never``.
    """

    saved: Baseline
    unmade: Reason | None
    _selected: Collection[str] | None = field(default=None, init=False)
    """Cases that are deselected here, and that the baseline's tree selects; ``None`` as long as they are not known."""
    _unknown: Reason | None = field(default=None, init=False)
    """Why that cannot be told."""

    def race(self, case: Case, group: Sequence[Case]) -> Iterable[CaseResult]:
        self.starter.start(group, self.contender)
        if self.baseline is not None:
            return self._race_again(case, self.baseline)
        saved, here = self.saved.environment, self.starter.environment_info(self.contender)
        differences = machine_differences(saved, here) + environment_differences(saved, here)
        return (not_raced(self.saved, one, differences, self.unmade) for one in self.races.variants(group))

    def _race_again(self, case: Case, baseline: Side) -> Iterable[CaseResult]:
        if case.name not in self.saved.samples:
            return self.races.alone(case, not_saved(self.saved))
        self.starter.start([case], baseline)
        recreated = self.starter.environment_info(baseline)
        if differences := environment_differences(self.saved.environment, recreated):
            spec = describe(self.saved)
            reason = because(ReasonCode.OTHER_ENVIRONMENT, spec=spec, differences=differences)
            return [untimed(case, Outcome.INCOMPARABLE, reason)]
        known = self.saved.samples[case.name].case
        statistic = (not case.statistic and self.request.statistic) or known.statistic
        there = replace(case, thresholds=known.thresholds, statistic=statistic)
        return self.races.sides(case, baseline, there, repair=partial(self._on_own_files, case, there))

    def baseline_values(self, result: CaseResult) -> BaselineValues:
        """Compare with the saved metrics, and with the saved memory unless a race has judged it."""
        saved, case = self.saved, result.case
        sample = saved.samples.get(case.name)
        here = self.starter.environment_info(self.contender)
        changed = sample is not None and changed_since(saved, case)
        if changed and self.baseline is not None:  # the saved values are those of another benchmark
            return BaselineValues(entrant=self.baseline_entrant(case))
        return BaselineValues(
            metric_values=saved.metric_values.get(case.name, MetricValues()),
            facts=[run.facts for run in sample.runs] if sample else [],
            differences=[*environment_differences(saved.environment, here), *[Note.BENCHMARK_CHANGED] * changed],
            machines=machine_differences(saved.environment, here),
        )

    def skipped(self, case: Case, reason: str, mark: bool = False) -> CaseResult:
        if case.name not in self.saved.samples:
            return super().skipped(case, reason)
        return skipped_on_one_side(case, because(Note.SKIPPED_NOW, name=self.saved.name, why=reason))

    def conclude(self) -> None:
        deselected = self._absent & self.request.collected
        if self._selected is not None or not deselected:
            return  # no doubt, so the tree need not be collected
        side = source_of(self.saved, self.contender, Layout(self.request.folder).trees)
        if isinstance(side, Reason):
            self._unknown, self._selected = side, deselected
        elif not side.tree_redirect:
            self._selected = ()  # the same code is deselected on both sides
        else:
            self._selected = deselected - self._benchmarks_of(side).deselected

    def _marked(self, case: Case) -> Case | None:
        sample = self.saved.samples.get(case.name)
        return sample.case if sample else None

    @property
    def _absent(self) -> set[str]:
        """Names of the saved cases that this run does not measure."""
        return {name for name in self.saved.samples if self.request.selection.has(name)} - self.request.known

    def missing(self) -> list[Verdict]:
        gone = (self._absent - self.request.collected).union(self._selected or ())
        expected = Note.MAY_HAVE_RUN if self._unknown else Note.RAN_THEN
        return missing(
            self.request,
            [self.saved.samples[name].case for name in gone],
            because(ReasonCode.NOT_COLLECTED, because(Note.GONE_SINCE, name=self.saved.name)),
            because(ReasonCode.DESELECTED_HERE, because(expected, self._unknown, name=self.saved.name)),
        )
