"""Search the version that changed a case."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version
from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.errors import SideError, TfbenchError, UsageError
from tfbench.model import FIRST_CALL, JSON, PEAK_HOST_MEMORY, TIME, Case, Outcome, Ratio
from tfbench.model.formats import plain
from tfbench.model.words import duration, times
from tfbench.policy import Policy
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.report.profile import changes_of
from tfbench.report.screen import COLOURS, add_row, folded, right, table
from tfbench.session.profiling import Explainer, explained
from tfbench.sides.environments import between, last_patches
from tfbench.sides.source_tree import commits
from tfbench.sides.spec import TENSORFLOWS, Side, is_package, of_version, parts_of
from tfbench.suite.axes import case_words
from tfbench.untrusted import command, plural, render_json
from tfbench.versions.changes import COUNTED, RACED, Defaults, Difference, difference

# Bisect a row of versions or commits for one case: its points, its races and its result


class Point(NamedTuple):
    """A version or a commit."""

    label: str
    spec: str
    about: str = ""
    """The subject of a commit."""
    skipped: bool = False
    """Whether there are releases between the point before it and this one."""


def max_steps(count: int) -> int:
    """Return the most points that a search of ``count`` points asks for, if all can be judged."""
    return max(0, count - 2).bit_length()


@dataclass(frozen=True)
class BisectStep:
    """The result of racing a case at one point against the good end."""

    point: int
    outcome: Outcome | None
    """``None`` if the case cannot run there."""
    reason: str
    ratio: Ratio | None = None
    launches: int = 0
    wall_seconds: float = 0.0
    again: bool = False
    """Whether this is the second race, with more launches, after an inconclusive first one."""

    @property
    def bad(self) -> bool | None:
        """Whether the point is slower than the good end; ``None`` if the race does not show it."""
        shown = {Outcome.REGRESSED: True, Outcome.UNCHANGED: False, Outcome.IMPROVED: False}
        return shown.get(self.outcome) if self.outcome else None


@dataclass
class BisectResult:
    """The races of a case in time order: a binary search in points 0 to ``count`` - 1, the first good and the last bad.

    It asks for each point at most once, and for at most ceil(log2(n - 1)) of n points if all can be judged.
    """

    case: Case
    count: int
    steps: list[BisectStep] = field(default_factory=list)
    """The first step races the bad end."""
    word: str = "slower"
    """What a bad point is called."""
    failure: str = ""
    """Why the good end cannot run the case, which ends the search."""

    @property
    def bad_end(self) -> BisectStep | None:
        """The race of the bad end."""
        return self.steps[0] if self.steps else None

    @property
    def is_slower(self) -> bool | None:
        """Whether the bad end is slower; ``None`` if its race does not show it."""
        return self.bad_end.bad if self.bad_end else None

    @property
    def suspects(self) -> range:
        """The points that can be the first bad one: exactly one if the point before it could be judged."""
        good = max((step.point for step in self.steps if step.bad is False), default=0)
        return range(good + 1, min((step.point for step in self.steps if step.bad), default=self.count - 1) + 1)

    @property
    def good(self) -> int:
        """The last point known to be good."""
        return self.suspects.start - 1

    @property
    def next(self) -> int | None:
        """The point to race next, or ``None`` if the search is over or pointless."""
        raced = {step.point for step in self.steps}
        left = [point for point in self.suspects[:-1] if point not in raced]
        return left[len(left) // 2] if left and self.is_slower and not self.failure else None

    @property
    def first_bad(self) -> int | None:
        """The first bad point, ``None`` unless exactly one suspect is left."""
        return self.suspects[0] if self.is_slower and self.next is None and len(self.suspects) == 1 else None

    @property
    def found(self) -> BisectStep | None:
        """The race of the first bad point."""
        return next((step for step in self.steps if step.point == self.first_bad), None)

    @property
    def is_answered(self) -> bool:
        """Whether the case is not slower, or its first bad point is known."""
        return self.is_slower is False or self.first_bad is not None


# List the released versions, or the commits, between two ends


SETTING = re.compile(r"self|env:.*|python(==|:).*")
"""A part of a specification that has no releases."""


def points_between(good: str, bad: str, root: Path, all_releases: bool = False) -> list[Point]:
    """Return the points from the good to the bad end, both included.

    Versions are those of the package in which the specifications differ, TensorFlow by default. If they span more
    than two minor versions, only the last release of each counts, unless ``all_releases``. An end is a version, a
    specification with one, or a revision of the checkout that contains ``root``. Nothing lies between two ends that
    differ in settings or the Python alone, or between a release and a nightly.

    Raises:
        UsageError: The ends are of two kinds, are equal, differ in more than a version, or no path connects them.
        SideError: A revision does not exist, or the versions cannot be read from the network.
    """
    specs = [of_version(version) for version in (good, bad)]
    ends = f"--good {good} and --bad {bad}"
    ours, theirs = map(parts_of, specs)
    if sorted(ours) == sorted(theirs):
        raise UsageError(f"{ends} are the same; give two")
    common = [part for part in ours if part in theirs and _is_fixed(part)]
    mine, other = ("+".join(part for part in parts if part not in common) for parts in (ours, theirs))
    settings = all(SETTING.fullmatch(part) for part in filter(None, f"{mine}+{other}".split("+")))
    (package, _, first), (same, _, last) = mine.partition("=="), other.partition("==")
    if settings or ({package, same} < set(TENSORFLOWS) and package != same and "tf-nightly" in (package, same)):
        return [Point(_setting(specs[0], common), specs[0]), Point(_setting(specs[1], common), specs[1])]
    fixed = [any(map(_is_fixed, rest.split("+"))) for rest in (mine, other)]
    if not any(fixed):
        found = commits(root, mine.removeprefix("git:"), other.removeprefix("git:"))
        if len(found) < 2:
            raise UsageError(f"{ends} are the same commit; give two")
        return [Point(commit[:10], "+".join([f"git:{commit}", *common]), about) for commit, about in found]
    if mine and other and not all(fixed) and "+" not in mine + other:
        raise UsageError(f"{ends}: one is a version and the other a revision; give two of a kind")
    if "+" in mine + other or package != same:
        raise UsageError(f"{ends} must differ in the version of one package, or in the revision, and in nothing else")
    if not (first and last):
        raise UsageError(f"{ends}: the newest {package} is no end; name its version, such as {package}==VERSION")
    try:
        if Version(first) == Version(last):
            raise UsageError(f"{ends} are the same version; give two")
        every = versions = between(package, first, last)
    except InvalidVersion as wrong:
        raise UsageError(f"--good {good}, --bad {bad}: {wrong}") from None
    if not all_releases and len({(version.major, version.minor) for version in map(Version, versions)}) > 2:
        versions = last_patches(versions)
    places = [every.index(version) for version in versions]
    skipped = [False, *(place - before > 1 for before, place in itertools.pairwise(places))]
    specs = ["+".join([f"{package}=={version}", *common]) for version in versions]
    return [Point(*point) for point in zip(versions, specs, [""] * len(versions), skipped, strict=True)]


def _is_fixed(part: str) -> bool:
    """Tell whether a part of a specification is a setting or a package, and so no revision."""
    return bool(SETTING.fullmatch(part)) or is_package(part)


def _setting(spec: str, common: Sequence[str]) -> str:
    """Label an end by what only it has, or by all if the other end only adds to it."""
    return "+".join(part for part in spec.split("+") if part.strip() not in common) or spec


# Bisect cases: race the good end against points in between until two neighbours differ


RETRY = 3
"""An inconclusive step is raced again with this many times the launches, from twice the zygotes. A wrong decision there makes
the answer wrong, and an inconclusive one only leaves it open."""


def patient(policy: Policy) -> Policy:
    """Return the policy for a race that was inconclusive: more launches and zygotes."""
    last = policy.looks[-1]
    more = {round(last * (1 + (RETRY - 1) * share)) for share in (0.25, 0.5, 1)}
    looks, seconds = (*policy.looks, *sorted(more - {last})), RETRY * policy.case_seconds
    zygotes, alive = 2 * policy.zygotes, 2 * policy.zygotes_alive
    return replace(policy, looks=looks, zygotes=zygotes, zygotes_alive=alive, case_seconds=seconds)


@dataclass
class Study:
    """Bisects cases for a metric, and finds what changed at their first bad points.

    Races are in waves: all cases whose next point is the same race while its side exists.
    ``points`` are in order, the good end first and the bad end last. ``make`` creates the side of a specification under a
    name, and raises `SideError` if it cannot. ``tell`` is called with the current activity.
    """

    points: Sequence[Point]
    make: Callable[[str, str], Side]
    launcher: ProcessLauncher
    policy: Policy
    metric: str
    tell: Callable[[str], None]
    changes: dict[str, Sequence[Sequence[str]]] = field(default_factory=dict, init=False)
    """Case -> the changes of its graphs and counts."""
    causes: dict[str, list[str]] = field(default_factory=dict, init=False)
    """Case -> the cause, and what supports it."""
    _alive: Sequence[Side] = field(default=(), init=False)
    _comparisons: int = field(default=0, init=False)
    """Races of all cases, at most. Every one can produce a false positive."""

    def __post_init__(self) -> None:
        defaults = Defaults(self.launcher, self.policy, self.tell)
        self._explainer = Explainer(self.launcher, self.policy, self.tell, defaults)

    @property
    def announcement(self) -> str:
        """The points, and how many races a case may take."""
        labels = [point.label for point in self.points]
        if len(labels) > _SHOWN:
            labels[2:-2] = [f"… {len(labels) - 4} more …"]
        return f"{' '.join(labels)}: at most {plural(self._races, 'race')} per case"

    @property
    def _races(self) -> int:
        return 1 + max_steps(len(self.points))

    def run(self, cases: Sequence[Case]) -> list[BisectResult]:
        """Return the result of each case. A case that is not slower at the bad end has one step.

        Raises `SideError` if the good or the bad end cannot be created.
        """
        self._comparisons = len(cases) * self._races
        good = self._side(0)
        word = "slower" if self.metric in (TIME, FIRST_CALL) else "worse"
        results = [BisectResult(case, len(self.points), word=word) for case in cases]
        self._wave(results, len(self.points) - 1, good, self._side(-1))
        while wave := sorted({point for result in results if (point := result.next) is not None}):
            for point in wave:
                wanting = [result for result in results if result.next == point]
                try:
                    side = self._side(point)
                except SideError as error:
                    for result in wanting:
                        result.steps.append(BisectStep(point, None, error.headline))
                else:
                    self._wave(wanting, point, good, side)
        self.launcher.release(good)
        return results

    def _side(self, point: int) -> Side:
        return self.make(self.points[point].spec, self.points[point].label)

    def _wave(self, results: Sequence[BisectResult], point: int, good: Side, side: Side) -> None:
        label = self.points[point].label
        for number, result in enumerate(results):
            self.tell(f"{label}: {result.case.short_name} ({number}/{len(results)})")
            step = self._race(result, point, good, side, self._policy(result))
            if step.outcome is Outcome.INCONCLUSIVE:
                self.tell(f"{label}: once more, with more launches")
                step = replace(self._race(result, point, good, side, patient(self._policy(result))), again=True)
            result.steps.append(step)
        self.launcher.release(side)

    def _policy(self, result: BisectResult) -> Policy:
        """Return the policy by which no point passes as unchanged that has more than half of the bad end's slowdown.

        The tolerance of the run may be larger than that slowdown. A bad point would then pass in every second race.
        """
        end = result.bad_end
        if self.metric != TIME or end is None or end.ratio is None:
            return self.policy
        half = (end.ratio.center - 1) / 2
        effect, tolerance = min(self.policy.minimum_effect, half / 2), min(self.policy.tolerance, half)
        return replace(self.policy, minimum_effect=effect, tolerance=tolerance)

    def _race(self, result: BisectResult, point: int, good: Side, side: Side, policy: Policy) -> BisectStep:
        try:
            comparison = self.compare(result.case, good, side, policy)
        except SideError as error:
            return BisectStep(point, None, error.headline)
        if failure := comparison.failures.get(1):
            return BisectStep(point, None, failure.headline)
        if failure := comparison.failures.get(0):
            result.failure = f"the good end cannot run it: {failure.headline}"
            return BisectStep(point, None, result.failure)
        return BisectStep(
            point, comparison.outcome, comparison.reason, comparison.ratio, comparison.launches, comparison.seconds
        )

    def compare(self, case: Case, good: Side, side: Side, policy: Policy) -> Difference:
        """Compare a case on two sides. Raises `SideError` if a process does not start."""
        sides = Entrant(case, good), Entrant(case, side)
        return difference(self.launcher, policy, self.metric, sides, self._comparisons)

    def explain(self, result: BisectResult, with_causes: bool) -> RenderableType | None:
        """Return what changed from the last good to the first bad point, and the cause; ``None`` without that point."""
        if (first := result.first_bad) is None or result.found is None:
            return None
        self.tell("reading what changed")
        try:
            good, bad = self._side(result.good), self._side(first)
            sides = Entrant(result.case, good), Entrant(result.case, bad)
            explanation = explained(Prober(self.launcher, self.policy), *sides)
        except TfbenchError as error:
            return Text(f"{result.case.short_name}: the changes could not be read: {error}")
        for side in (side for side in self._alive if side not in (good, bad)):
            self.launcher.release(side)
        self._alive = good, bad
        self.changes[result.case.name] = [change.cells for change in explanation.metrics]
        title = f"what changed from {good.name} to {bad.name}"
        shown = changes_of(title, explanation.metrics, (*explanation.results, *explanation.notes))
        if not with_causes:
            return shown
        lines = list(self._explainer.explain(sides, self.metric, result.found.ratio, explanation).lines)
        self.causes[result.case.name] = lines
        return Group(shown, Text("\n".join(lines)))


def policy_of(chosen: Policy, metric: str, effect: float | None) -> Policy:
    """Return a policy with the smallest slowdown of the bisected metric that counts.

    Raises `UsageError` if there is no such metric, any difference of it counts, or the slowdown is out of range.
    """
    if metric not in (*RACED, *COUNTED):
        raise UsageError(f"--metric {metric!r}: there are {', '.join((*RACED, *COUNTED))}")
    if effect is None:
        return chosen
    if metric in COUNTED:
        raise UsageError(f"--min-slowdown: {metric} is counted, so any difference counts; leave the option out")
    slower = chosen.with_slowdown(effect)  # for any metric, it refuses a slowdown that is out of range
    if metric == FIRST_CALL:
        return replace(chosen, first_call_effect=effect, first_call_tolerance=2 * effect)
    if metric == PEAK_HOST_MEMORY:
        return replace(chosen, memory_tolerance=effect)
    return slower


# Report where cases became slower: text for the terminal, JSON for programs


SCHEMA = "tfbench-bisect/1"
_SHOWN = 12
"""Largest number of points that are listed in full."""


def answer(result: BisectResult, points: Sequence[Point]) -> str:
    """Return the result as one sentence."""
    good, bad = points[0].label, points[-1].label
    if result.failure:
        return result.failure
    end = result.steps[0]
    if end.bad is None:
        return f"inconclusive whether {bad} is {result.word} than {good}: {end.reason}"
    if end.bad is False:
        better = "; swap --good and --bad to find where it became better" if end.outcome is Outcome.IMPROVED else ""
        between = f"; the points between were not raced, and one may be {result.word}" if len(points) > 2 else ""
        return f"{bad} is not {result.word} than {good}: {end.reason}{better}{between}"
    before = points[result.good].label
    if (change := result.found) is None:
        named = ", ".join(points[point].label for point in result.suspects)
        return f"{result.word} since one of {named}, which the races could not separate; {before} is not {result.word}"
    return f"{result.word} since {points[change.point].label}: {change.reason}; {before} is not {result.word}"


def hints(result: BisectResult, points: Sequence[Point], options: Sequence[str] = ()) -> list[str]:
    """Return the commands that narrow or extend the result; ``options`` are those of this one that count for them."""

    def again(good: Point, bad: Point) -> str:
        words = "--good", good.spec, "--bad", bad.spec, *options, *case_words(result.case.name)
        return command("tfbench", "bisect", *words)

    if (change := result.found) is None:
        return []
    end, before, first, last = result.steps[0], points[result.good], points[change.point], points[-1]
    lines = []
    if first.skipped:
        lines.append(f"releases between the two: {again(before, first)}")
    if change.ratio and end.ratio and change.ratio.high < end.ratio.low:
        lines.append(f"{last.label} is slower still, {times(end.ratio)}: {again(first, last)}")
    return lines


def terminal(result: BisectResult, points: Sequence[Point], options: Sequence[str] = ()) -> RenderableType:
    """Return the answer with a table of its races and the `hints`."""
    kind, ratio = "commit" if points[0].spec.startswith("git:") else "version", f"ratio to {points[0].label}"
    numbers = right(ratio, "launches", "time")
    made = table(result.case.short_name, *right("race"), kind, "verdict", *numbers, *folded(""))
    for number, step in sorted(enumerate(result.steps, 1), key=lambda pair: pair[1].point):
        point = points[step.point]
        about = ": ".join(filter(None, [point.about, step.reason if step.outcome is None else ""]))
        add_row(made, str(number), point.label, *_cells(step), Text(about, "dim"))
    lines = (Text(hint, no_wrap=True, overflow="ignore") for hint in hints(result, points, options))
    return Group(made, Text(answer(result, points), "bold"), *lines)


def _cells(step: BisectStep) -> tuple[str | Text, ...]:
    if step.outcome is None:
        return Text("cannot be run", "red"), "", "", ""
    outcome = Text(f"{step.outcome} (raced twice)" if step.again else str(step.outcome), COLOURS[step.outcome])
    return outcome, times(step.ratio) if step.ratio else "", str(step.launches), duration(step.wall_seconds)


def exit_code(results: Sequence[BisectResult]) -> int:
    """Return 0 if each case is answered, 3 if one is inconclusive, 5 if an end cannot run one."""
    if any(result.failure or result.steps[0].outcome is None for result in results):
        return 5
    return 0 if all(result.is_answered for result in results) else 3


def as_json(results: Sequence[BisectResult], study: Study, asked: JSON) -> str:
    """Return the whole result as JSON, with the settings that were asked for."""
    points, cases = study.points, []
    for result in results:
        name, slower = result.case.name, result.is_slower and not result.failure
        cases.append(
            {
                "case": name,
                "answered": result.is_answered,
                "answer": answer(result, points),
                "last_good": points[result.good].label if slower else None,
                "first_bad": points[result.found.point].label if result.found else None,
                "suspects": [points[point].label for point in result.suspects] if slower else [],
                "steps": [plain(step) | {"point": points[step.point].label} for step in result.steps],
                "changes": study.changes.get(name, []),
                "causes": study.causes.get(name, []),
            }
        )
    listed = [{"label": point.label, "spec": point.spec, "about": point.about} for point in points]
    return render_json({"schema": SCHEMA, **asked, "points": listed, "cases": cases}, 1) + "\n"
