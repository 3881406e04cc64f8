"""Find the released version, or the commit, in which a case became slower.

Each step is a race against the good end, with confirmation. An inconclusive step is raced again with more launches,
and may stay inconclusive. A metric that is counted, such as graph_ops, is read without a race. The command also prints
what changed in the graph between the last good and the first bad point. Ends are versions of TensorFlow (2.15.1),
specifications with a version (keras==3.5.0), or revisions of the benchmarks' checkout. Exit code 0: all cases are
answered. 3: a case stays inconclusive. 5: an end cannot run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.errors import SideError, TfbenchError, UsageError
from tfbench.fs import write_whole
from tfbench.metrics.catalog import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.model import TIME, Case, Ratio
from tfbench.policy import PRESETS, Policy, preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.report.profile import changes_of
from tfbench.report.screen import Screen
from tfbench.session.profiling import Explanation, causes, explained, graph_changed, in_own_python
from tfbench.sides.spec import Side
from tfbench.untrusted import plural
from tfbench.versions import bisect
from tfbench.versions.bisect import Bisection, Point, max_steps, points_between
from tfbench.versions.defaults import Candidate, candidates, defaults_of, search, set_back
from tfbench.versions.matrix import COUNTED, RACED, Difference, counted, raced

ANSWERED, INCONCLUSIVE, BROKEN = 0, 3, 5
METRICS = (*RACED, *COUNTED)
_SHOWN = 12
"""Largest number of points that are listed in full."""


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", metavar="PATH", nargs="*", help="files, folders and cases of benchmarks")
    option("--good", required=True, metavar="END", help="a version or revision that was fast")
    option("--bad", required=True, metavar="END", help="a version or revision that is slower")
    text = "try every release, not only the last of each minor version"
    option("--all-releases", action="store_true", help=text)
    text = "the metric that became worse, or one that is counted, such as graph_ops or fused_ops"
    option("--metric", default=TIME, metavar="|".join(RACED), help=text)
    text = "smallest slowdown that counts, such as 0.1"
    option("--min-slowdown", type=float, metavar="FRACTION", help=text)
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    option("--report-json", type=Path, metavar="PATH", help="write the full result as JSON")
    text = "also name the cause, from profiles, sampled Python functions and defaults set back; minutes per case"
    option("--causes", action="store_true", help=text)
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Bisect, print the result of each case, and return the exit code."""
    policy = policy_of(arguments)
    if arguments.metric not in METRICS:
        raise UsageError(f"--metric {arguments.metric!r}: there are {', '.join(METRICS)}")
    console = Screen()
    began = time.monotonic()
    changes: dict[str, list[tuple[str, ...]]] = {}
    named: dict[str, list[str]] = {}
    defaults: dict[str, dict[str, str]] = {}
    with (
        CommandSetup(arguments, arguments.paths, policy) as setup,
        console.status("looking for points in between") as status,
    ):
        setup.tell = status.update
        points = points_between(arguments.good, arguments.bad, setup.collected.root, arguments.all_releases)
        setup.prefer_one_python([point.spec for point in points])
        races = 1 + max_steps(len(points))
        labels = [point.label for point in points]
        if len(labels) > _SHOWN:
            labels[2:-2] = [f"… {len(labels) - 4} more …"]
        console.print(f"{' '.join(labels)}: at most {plural(races, 'race')} per case")
        # Every race can produce a false positive.
        compare = partial(_compared, setup, len(setup.cases) * races, random.Random(), arguments.metric)
        search = Bisection(
            points, lambda point: setup.side(point.spec, point.label), compare, setup.launcher.release, policy,
            "slower" if arguments.metric in (TIME, FIRST_CALL) else "worse", status.update,
        )  # fmt: skip
        results = search.run(setup.cases)
        skipped = not arguments.all_releases and not points[0].spec.startswith("git:") and len(points) > 2
        alive: Sequence[Side] = ()
        for result in results:
            console.print(bisect.terminal(result, points, skipped))
            if result.first_bad is not None:
                status.update("reading what changed")
                ends = points[result.search.good], points[result.first_bad]
                if (changed := _changed(setup, result.case, ends, console)) is not None:
                    found, sides = changed
                    for side in alive:
                        if side not in sides:
                            setup.launcher.release(side)
                    alive = sides
                    changes[result.case.name] = [*found.changes, *(change.cells for change in found.metrics)]
                    if arguments.causes and result.found:
                        ratio = result.found.ratio
                        of_ends = Ends(setup, result.case, sides, ratio, arguments.metric, defaults, named)
                        named[result.case.name] = of_ends.causes(found, status.update)
                        console.print("\n".join(named[result.case.name]) or "no cause was found")
        for note in setup.notes:
            console.print(note)
    seconds = time.monotonic() - began
    console.print(f"{len(results)} cases in {seconds:.0f} s (policy {policy.name})")
    if arguments.report_json is not None:
        asked = {"policy": policy.as_json(), "metric": arguments.metric, "wall_seconds": round(seconds, 3)}
        write_whole(arguments.report_json, bisect.as_json(results, points, changes, named, asked))
        console.print(f"written: {arguments.report_json}")
    if any(result.failure or result.steps[0].outcome is None for result in results):
        return BROKEN
    return ANSWERED if all(result.is_answered for result in results) else INCONCLUSIVE


def policy_of(arguments: argparse.Namespace) -> Policy:
    """Return the preset with the asked smallest slowdown of the bisected metric."""
    chosen = preset(arguments.policy)
    if (effect := arguments.min_slowdown) is None:
        return chosen
    if arguments.metric in COUNTED:
        raise UsageError(
            f"--min-slowdown: {arguments.metric} is counted, so any difference counts; leave the option out"
        )
    if arguments.metric == FIRST_CALL:
        return replace(chosen, first_call_effect=effect, first_call_tolerance=2 * effect)
    if arguments.metric == PEAK_HOST_MEMORY:
        return replace(chosen, memory_tolerance=effect)
    return chosen.with_slowdown(effect)


@dataclass(frozen=True)
class Ends:
    """A case at the last good and the first bad point."""

    setup: CommandSetup
    case: Case
    sides: Sequence[Side]
    ratio: Ratio | None
    metric: str
    defaults: dict[str, dict[str, str]]
    """Specification -> the defaults that have been read so far."""
    named: Mapping[str, Sequence[str]]
    """Case -> the causes that have been found so far."""

    def causes(self, found: Explanation, tell: Callable[[str], None]) -> list[str]:
        """Return the cause and what supports it, a line each. Where graphs do not differ, defaults are raced."""
        setup, (good, bad) = self.setup, self.sides
        setup.launcher.ready([(side, self.case.env) for side in (good, bad)], [0])
        sides = Entrant(self.case, good), Entrant(self.case, bad)
        ratio = self.ratio
        slowdown = ratio.center - 1 if ratio else None
        lines = causes(setup.launcher, setup.policy, sides, self.metric, found, slowdown, tell)
        unexplained = not graph_changed(found) and not in_own_python(lines)
        if self.metric == TIME and ratio and ratio.low > 1 and unexplained:
            try:
                tell("comparing defaults")
                tried = candidates(self._defaults(good), self._defaults(bad))
                found_before = "\n".join(line for lines in self.named.values() for line in lines)
                tried.sort(key=lambda one: one.removes not in found_before)  # cases of a release often have one cause
                race = partial(self._with_default, good, bad)
                lines = [*search(ratio, tried, race, tell), *lines]
            except SideError as error:
                lines.append(f"defaults: {error}")
        return lines

    def _defaults(self, side: Side) -> dict[str, str]:
        if side.spec not in self.defaults:
            self.defaults[side.spec] = defaults_of(side)
        return self.defaults[side.spec]

    def _with_default(self, good: Side, bad: Side, candidate: Candidate) -> Ratio | str:
        side = set_back(bad, candidate)
        policy = replace(self.setup.policy, confirm=False)
        try:
            found = _compared(self.setup, 1, random.Random(), TIME, self.case, good, side, policy)
        except SideError as error:
            return str(error)
        finally:
            self.setup.launcher.release(side)
        return found.ratio or "; ".join(map(str, found.failures.values())) or found.reason


def _changed(
    setup: CommandSetup, case: Case, ends: tuple[Point, Point], console: Console
) -> tuple[Explanation, Sequence[Side]] | None:
    """Print and return the changes in the case's graph from the last good to the first bad point, with both sides."""
    try:
        sides = [setup.side(point.spec, point.label) for point in ends]
        found = explained(Prober(setup.launcher, setup.policy), *(Entrant(case, side) for side in sides))
    except TfbenchError as error:
        console.print(f"{case.short_name}: the changes could not be read: {error}")
        return None
    title = f"what changed from {sides[0].name} to {sides[1].name}"
    console.print(changes_of(title, found.changes, found.metrics, found.notes))
    return found, sides


def _compared(
    setup: CommandSetup, races: int, rng: random.Random, metric: str, case: Case, good: Side, side: Side, policy: Policy
) -> Difference:
    case = replace(case, thresholds=())  # the slowdown to be found is an argument
    entrants = [Entrant(case, good), Entrant(case, side)]
    if metric in COUNTED:
        setup.launcher.start_pairs(entrants, [0])
        return counted(Prober(setup.launcher, policy), policy, metric, *entrants)
    setup.prepare(entrants, policy)
    policy = replace(policy, sampled_seconds=policy.case_seconds)  # a first call is all that this race is for
    made = ConfirmedRace(entrants, setup.launcher, policy, races, time.perf_counter, rng, metrics=(metric,))
    made.run()
    return raced(made, metric)
