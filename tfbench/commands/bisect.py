"""Find since which released version, or since which commit, a case is slower.

Each step is a race against the good end, confirmed like any other; one that stays open is raced again with more
launches, and is then reported as open. What changed in the graph between the last good and the first bad end is
printed with it. Ends are versions of TensorFlow (2.15.1), specifications with a version (keras==3.5.0), or revisions
of the checkout that holds the benchmarks. Exit code: 0 answered, 3 something stays open, 5 an end cannot be run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tfbench.commands._setup import Stage, add_selections
from tfbench.errors import TfbenchError, UsageError
from tfbench.fs import write_whole
from tfbench.metrics.catalog import FIRST_CALL
from tfbench.model import TIME, Case
from tfbench.policy import PRESETS, Policy, preset
from tfbench.race.confirmed import Contest
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.report.explain import render
from tfbench.session.explain import explained
from tfbench.sides.side import Side
from tfbench.versions import bisect_report
from tfbench.versions.bisect import Bisection, Contender
from tfbench.versions.points import points_between
from tfbench.versions.search import Point, Trail, most

ANSWERED, OPEN, BROKEN = 0, 3, 5
_SHOWN = 12
"""Points that are named in a line."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("paths", metavar="PATH", nargs="*", help="files, folders and cases of benchmarks")
    parser.add_argument("--good", required=True, metavar="END", help="a version or a revision that was fast")
    parser.add_argument("--bad", required=True, metavar="END", help="one that is slower")
    parser.add_argument("--every", action="store_true", help="every release, not the last of each minor version alone")
    parser.add_argument("--metric", default=TIME, metavar=f"{TIME}|{FIRST_CALL}", help="what became slower")
    parser.add_argument("--least", type=float, metavar="FRACTION", help="slower means by so much, as 0.1 for a tenth")
    parser.add_argument("--policy", default="standard", metavar="|".join(PRESETS), help="how sure, at what cost")
    parser.add_argument("--report-json", type=Path, metavar="PATH", help="write everything as JSON")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search, print the answer to each case, and return the exit code."""
    policy = _policy(arguments)
    if arguments.metric not in (TIME, FIRST_CALL):
        raise UsageError(f"--metric {arguments.metric!r}: there are {TIME} and {FIRST_CALL}")
    console = Console(highlight=False)
    began = time.monotonic()
    changes = {}
    with Stage(arguments, arguments.paths, policy) as stage, console.status("looking what lies between") as status:
        stage.tell = status.update
        points = points_between(arguments.good, arguments.bad, stage.collected.root, arguments.every)
        stage.prefer_one_python([point.spec for point in points])
        races = 1 + most(len(points))
        console.print(f"{_row(points)}: {races} race{'s' * (races > 1)} a case at most")
        search = Bisection(
            points, lambda point: stage.side(point.spec, point.label), _contender(stage, len(points)),
            stage.launcher.release, policy, arguments.metric, status.update,
        )  # fmt: skip
        trails = search.run(stage.cases)
        skipped = not arguments.every and not points[0].spec.startswith("git:") and len(points) > 2
        for trail in trails:
            console.print(bisect_report.terminal(trail, points, skipped))
            if trail.first_bad is not None:
                status.update("looking what changed")
                changes[trail.case.name] = _changed(stage, trail, points, console)
        for note in stage.notes:
            console.print(note)
    seconds = time.monotonic() - began
    console.print(f"{len(trails)} cases in {seconds:.0f} s (policy {policy.name})")
    if arguments.report_json is not None:
        asked = {"policy": policy.as_json(), "metric": arguments.metric, "wall_seconds": round(seconds, 3)}
        write_whole(arguments.report_json, bisect_report.as_json(trails, points, changes, asked))
        console.print(f"written: {arguments.report_json}")
    if any(trail.failure or (trail.last and trail.last.outcome is None) for trail in trails):
        return BROKEN
    return ANSWERED if all(trail.is_answered for trail in trails) else OPEN


def _policy(arguments: argparse.Namespace) -> Policy:
    chosen = preset(arguments.policy)
    if arguments.least is None:
        return chosen
    return replace(chosen, minimum_effect=arguments.least, tolerance=2 * arguments.least)


def _row(points: Sequence[Point]) -> str:
    labels = [point.label for point in points]
    return " ".join(labels if len(labels) <= _SHOWN else [*labels[:2], f"… {len(labels) - 4} more …", *labels[-2:]])


def _changed(stage: Stage, trail: Trail, points: Sequence[Point], console: Console) -> list[tuple[str, ...]]:
    """Print what changed in the case's graph where it became slower; its rows."""
    assert trail.first_bad is not None
    ends = [points[trail.search.good], points[trail.first_bad]]
    try:
        before, now = (Entrant(trail.case, stage.side(point.spec, point.label)) for point in ends)
        found = explained(Prober(stage.launcher, stage.policy), before, now)
    except TfbenchError as error:
        console.print(f"what changed could not be read: {error}")
        return []
    title = f"what changed from {ends[0].label} to {ends[1].label}"
    console.print(render(title, found.changes, found.metrics, found.notes))
    for entrant in (before, now):
        stage.launcher.release(entrant.side)
    return [*found.changes, *found.metrics]


def _contender(stage: Stage, points: int) -> Contender:
    rng = random.Random()
    cases = len(stage.cases) * (1 + most(points))  # every race may cry wolf

    def contest(case: Case, good: Side, side: Side, policy: Policy) -> Contest:
        entrants = [Entrant(case, good), Entrant(case, side)]
        stage.launcher.ready([(entrant.side, case.env) for entrant in entrants], range(policy.looks[0]))
        Prober(stage.launcher, policy).share(entrants)
        made = Contest(entrants, stage.launcher, policy, cases, time.perf_counter, rng)
        made.run()
        return made

    return contest
