"""Whether a saved baseline's side can be made again on this machine, and the side if it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import SideError
from tfbench.model import Outcome, Reason, Recipe
from tfbench.sides.side import Side
from tfbench.sides.tree import materialise, snapshot
from tfbench.store.baselines import Baseline

CHOICES = ("all", "never")


@dataclass(frozen=True)
class Replay:
    """The side to race, or the outcome and reason of every case that cannot be raced."""

    side: Side | None
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: Reason | None = None


def obstacles(saved: Recipe, now: Recipe) -> list[str]:
    """What keeps this machine's environment from being the baseline's, one phrase each."""
    found = []
    if saved.python != now.python:
        found.append(f"Python {saved.python} there, {now.python} here")
    found += _differences(saved.packages, now.packages, "not installed")
    found += _differences(saved.settings, now.settings, "not set")
    return found


def machine_differences(saved: Recipe, now: Recipe) -> list[str]:
    """How the machines differ, one phrase each; matters only to times that are not raced again."""
    found = _differences(saved.machine, now.machine, "unknown")
    if saved.threads != now.threads:
        found.append(f"threads {saved.threads} there, {now.threads} here")
    return found


def _differences(there: Mapping[str, str], here: Mapping[str, str], absent: str) -> list[str]:
    return [
        f"{name} {there.get(name, absent)} there, {here.get(name, absent)} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    ]


def replay(saved: Baseline, contender: Side, now: Recipe, choice: str, cache: Path) -> Replay:
    """How the cases of a saved baseline are judged: raced again, or not at all and why.

    Args:
        now: The recipe of the contender.
        choice: ``all`` races every case; ``never`` judges from the saved times alone.
        cache: Folder for source trees that have to be made.
    """
    spec = f"baseline {saved.name!r} of {saved.saved}"
    if choice == "never":
        if differences := machine_differences(saved.recipe, now) + obstacles(saved.recipe, now):
            return Replay(
                None, Outcome.INCOMPARABLE, Reason("other-machine", f"{spec} is another: {'; '.join(differences)}")
            )
        text = (
            "saved times alone cannot tell a change from the spread between sessions; race it again with --replay all"
        )
        return Replay(None, Outcome.INCONCLUSIVE, Reason("not-raced", text))
    if differences := obstacles(saved.recipe, now):
        text = f"{spec} cannot be made again here: {'; '.join(differences)}"
        return Replay(None, Outcome.INCOMPARABLE, Reason("other-environment", text))
    here = snapshot(contender.root)
    if here is not None and here.tree == saved.tree:
        return Replay(Side("baseline", contender.executable, contender.root, spec, contender.env))
    if not saved.tree:
        text = f"{spec} was saved outside version control, so its code cannot be made again; save it in a git checkout"
        return Replay(None, Outcome.INCOMPARABLE, Reason("no-source", text))
    try:
        root = materialise(contender.root, saved.tree, cache)
    except SideError as error:
        return Replay(None, Outcome.INCOMPARABLE, Reason("no-source", f"{spec}: {error}"))
    return Replay(Side("baseline", contender.executable, root, spec, contender.env))
