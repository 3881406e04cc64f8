"""Refuse to compare two source trees whose processes have not loaded the native code of their own tree alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tfbench.model import NATIVE, Run
from tfbench.sides.side import Side

_SHOWN = 3


def unlike_native_code(sides: Sequence[Side], runs: Sequence[Sequence[Run]]) -> str:
    """Return why the times of two sides say nothing about their source trees, with the fix; ``""`` if they do.

    A library of the working tree that another tree has loaded is the same on both sides. One that only one side has
    loaded, such as an extension built in place that git ignores, leaves the other side to a slower substitute.

    Args:
        sides: Baseline and contender.
        runs: All runs of each.
    """
    if sides[0].tree_redirect == sides[1].tree_redirect and sides[0].executable == sides[1].executable:
        return ""  # a setting may select other libraries
    for side, own in zip(sides, runs, strict=True):
        if foreign := _named(own, "foreign"):
            return (
                f"the {side.name} side ({side.spec}) has loaded {_listed(foreign)} of the working tree, so both sides run "
                "the same copy; find it relative to the code that loads it, or keep it outside of the checkout if both "
                "sides shall share it"
            )
    before, now = ({_stem(name): name for name in _named(own, "own")} for own in runs)
    for number, names in enumerate((now.keys() - before.keys(), before.keys() - now.keys())):
        if names:
            first, other = sides[1 - number], sides[number]
            one_sided = _listed([(before | now)[name] for name in sorted(names)])
            return (
                f"only the {first.name} side has loaded {one_sided}, so the other side ({other.spec or 'working tree'}) "
                "may have run a substitute; build it for both sides: install each version into an environment of its "
                "own, and race them with --against python:PATH"
            )
    return ""


def _named(runs: Sequence[Run], key: str) -> list[str]:
    return sorted({name for run in runs for name in run.facts.get(NATIVE, {}).get(key, ())})


def _stem(name: str) -> str:
    """Return the path of a library without its suffixes, which name the interpreter that it was built for."""
    path = PurePath(name)
    return str(path.with_name(path.name.partition(".")[0]))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
