"""Write one file that shows a difference without tfbench, and the text of a bug report.

The case is raced on both sides first. If they differ, its code is extracted from the project into one file, which
needs TensorFlow, NumPy and the standard library, and races two interpreters in turns. The file is run before it is
written, and refused if it does not show the difference. The bug report has the versions, the ratio with its interval,
the changes of the graph, the cause that profiles show, and the file.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import packages
from tfbench.fs import scratch_dir, write_whole
from tfbench.model import TIME, Case, Outcome
from tfbench.model.words import times
from tfbench.policy import PRESETS, Policy, preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Profiler
from tfbench.report.screen import Screen
from tfbench.session.profiling import BASELINE, CONTENDER, take
from tfbench.sides.spec import KINDS, TENSORFLOWS, Side
from tfbench.untrusted import brief, command
from tfbench.versions.repro import BugReport, ReproResult, about, changes, compose, run_code
from tfbench.versions.rewrite import AVAILABLE

_WITHOUT_TREES = "a file alone cannot have another source tree; give versions, python:PATH or env:NAME=VALUE"
_AGREE = 0.2
"""Relative difference between the file's ratio and the race's that is worth a warning."""


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("case", metavar="CASE", help="name of a case, such as test_mine[axis=level]")
    option("--against", required=True, metavar="SPEC", help=f"the other side: {KINDS}")
    option("--paths", nargs="+", default=[], metavar="PATH", help="files and folders of the benchmarks")
    option("--output", type=Path, metavar="FILE", help="where to write the file, and the report beside it as .md")
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of the race")
    option("--no-profile", action="store_true", help="leave out what profiles show, which takes ten launches")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Race, extract, run the file and write it; 0 if it shows the difference."""
    console = Screen()
    with (
        CommandSetup(arguments, arguments.paths, preset(arguments.policy)) as setup,
        console.status("racing") as status,
    ):
        setup.tell = status.update
        case = setup.collected.named(arguments.case)
        file = arguments.output or Path(f"repro_{case.workload.removeprefix('test_')}.py")
        report = file.with_suffix(".md")
        if file.stem in AVAILABLE or file.suffix != ".py":  # Python would import the file instead of the module
            raise UsageError(f"--output {brief(file)}: name a .py file unlike a module, such as repro_{file.stem}.py")
        for path in (file, report):
            if path.exists():
                raise UsageError(f"{brief(path)} exists; remove it, or give another name with --output")
        other = setup.side(arguments.against, BASELINE)
        own = setup.contender
        if other.tree_redirect is not None:
            raise UsageError(f"--against {arguments.against}: {_WITHOUT_TREES}")
        search = [setup.collected.root, *(Path(one) for one in sys.path if one)]
        labels = arguments.against, _label()
        code = compose(
            setup.collected.functions[case.name],
            case,
            (other, own),
            search,
            about(case, *labels),
            setup.policy.repro_launches,
        )  # fails before anything takes long
        status.update(f"racing {case.short_name}")
        race = _race(setup, case, other, setup.policy)
        if race.decision is None or race.decision.outcome is Outcome.INCONCLUSIVE:
            status.update(f"racing {case.short_name} once more, with more launches")
            race = _race(setup, case, other, setup.policy.patient())
        decision = race.decision
        assert decision is not None
        ratio = decision.comparison.ratio
        console.print(f"{case.short_name}: {decision.outcome}, ratio to {arguments.against} {times(ratio)}")
        if decision.outcome not in (Outcome.REGRESSED, Outcome.IMPROVED):
            raise TfbenchError(f"there is no difference to show: {decision.reason.message}")
        status.update("running the extracted file")
        shown = run_code(code, file.name, (other, own), setup.policy)
        console.print(shown.output)
        _check(shown, ratio.center)
        status.update("reading what changed")
        environments = {
            label: setup.launcher.environment(side) for label, side in zip(labels, (other, own), strict=True)
        }
        changed = changes(setup.launcher, setup.policy, Entrant(case, other), Entrant(case, own))
        profile = [] if arguments.no_profile else _profile(setup, case, other, ratio.center - 1, status.update)
    made = command("tfbench", "repro", case.short_name, "--against", arguments.against)
    text = BugReport(case, environments, ratio, race.launches, shown, changed, profile, made).render(file, code)
    for path, content in ((file, code), (report, text)):
        write_whole(path, content, replace=False)
        console.print(f"written: {path}")
    if abs(shown.ratio / ratio.center - 1) > _AGREE:
        console.print(f"note: the file shows {shown.ratio:.2f}, the race {ratio.center:.2f}")
    return 0


def _label() -> str:
    """Return the TensorFlow of this environment, as a specification would name it."""
    found = packages()
    return next((f"{name}=={found[name]}" for name in TENSORFLOWS if name in found), "this environment")


def _race(setup: CommandSetup, case: Case, other: Side, policy: Policy) -> ConfirmedRace:
    entrants = [Entrant(case, other), Entrant(case, setup.contender)]
    policy = setup.launcher.policy_of(policy, entrants)
    setup.prepare(entrants, policy)
    race = ConfirmedRace(entrants, setup.launcher, policy, 1, time.perf_counter, random.Random(), metrics=(TIME,))
    race.run()
    for entrant, failure in race.failures.items():
        raise TfbenchError(f"{case.short_name} breaks on the {('other', 'own')[entrant]} side: {failure}")
    if race.abort_reason or race.decision is None:
        raise TfbenchError(f"{case.short_name} could not be raced: {race.abort_reason or 'no launch was finished'}")
    if race.unlike:
        raise TfbenchError(f"{case.short_name} could not be compared: {race.unlike}")
    return race


def _check(shown: ReproResult, raced: float) -> None:
    """Refuse a file that does not show the difference of the race."""
    if not shown.agrees(raced):
        text = f"the race found a ratio of {raced:.3f}, the extracted file {shown.ratio:.3f}"
        raise TfbenchError(f"the file does not show the difference, so it was not written: {text}")


def _profile(setup: CommandSetup, case: Case, other: Side, slowdown: float, tell: Callable[[str], None]) -> list[str]:
    """Return what profiles of both sides show, or why there are none, a line each."""
    sides = {BASELINE: Entrant(case, other), CONTENDER: Entrant(case, setup.contender)}
    try:
        with tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
            profiler = Profiler(setup.launcher, setup.policy)
            taken = take(profiler, sides, Path(folder), setup.policy, slowdown, tell)
            return list(taken.why)
    except TfbenchError as error:
        return [f"profile: none: {brief(error)}"]
