"""What a slowdown is made of: the difference of two anatomies of a step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tfbench.profiles.step_breakdown import Key, StepBreakdown, TimeCategory

_FUSED = re.compile(r"^_Fused(?P<base>\w+)$")
_FUSIBLE = re.compile(
    r"^(BiasAdd|Add(V2|N)?|Sub|Mul|Relu6?|Elu|LeakyRelu|Tanh|Sigmoid|Gelu|Erf|Squeeze|FusedBatchNorm(V\d)?|Pad)$"
)
"""What grappler's remapper merges into a fused op, see its ``remapper.cc``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that takes longer in each step than it did."""

    category: TimeCategory
    kinds: tuple[str, ...]
    """What grew; several kinds where they stand in for others."""
    instead: tuple[str, ...]
    """What they stand in for, as a fused op that is gone; empty mostly."""
    grew: float
    """Seconds a step."""
    share: float
    """Of the slowdown."""
    calls: tuple[float, float]
    """A step, before and now."""
    new: tuple[str, ...]
    """Names of ops that were not there before."""
    after: str = ""
    """How ``instead`` came to an end: ``fused`` or ``compiled``."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where a slowdown comes from."""

    before: float
    """Seconds of a step."""
    now: float
    causes: tuple[Cause, ...]
    """Those worth telling, the largest first."""
    explained: float
    """Share of the slowdown that they make up together, counted once where they ran at once."""
    spent: tuple[tuple[TimeCategory, float, float], ...]
    """Kinds of time with their seconds a step, before and now; what grew most first."""

    @property
    def grew(self) -> float:
        """Seconds of a step."""
        return self.now - self.before


def attribute(before: StepBreakdown, now: StepBreakdown, smallest: float) -> Attribution:
    """Compare two anatomies.

    Args:
        smallest: The part of the slowdown from which something is a cause of it.
    """
    slowdown = now.seconds - before.seconds
    spent = [(category, before.spent(category), now.spent(category)) for category in TimeCategory]
    groups = [_Group(keys, instead, after) for keys, instead, after in _groups(before, now)]
    causes: list[tuple[_Group | None, Cause]] = []
    for group in groups:
        keys = (*group.keys, *group.instead)
        grew = now.covered(keys) - before.covered(keys)
        if slowdown > 0 and grew >= smallest * slowdown:
            causes.append((group, _cause(group, before, now, grew, grew / slowdown)))
    other = now.spent(TimeCategory.OTHER) - before.spent(TimeCategory.OTHER)
    if slowdown > 0 and other >= smallest * slowdown:
        causes.append((None, Cause(TimeCategory.OTHER, (), (), other, other / slowdown, (0.0, 0.0), ())))
    causes.sort(key=lambda one: -one[1].grew)
    reported = [key for group, _ in causes if group for key in (*group.keys, *group.instead)]
    together = (
        now.covered(reported) - before.covered(reported) + sum(cause.grew for group, cause in causes if group is None)
    )
    return Attribution(
        before=before.seconds,
        now=now.seconds,
        causes=tuple(cause for _, cause in causes),
        explained=together / slowdown if slowdown > 0 and causes else 0.0,
        spent=tuple(sorted(spent, key=lambda one: one[1] - one[2])),
    )


@dataclass(frozen=True)
class _Group:
    """Kinds that are one cause."""

    keys: tuple[Key, ...]
    instead: tuple[Key, ...] = ()
    after: str = ""


def _cause(group: _Group, before: StepBreakdown, now: StepBreakdown, grew: float, share: float) -> Cause:
    known = {name for key in group.keys if key in before.parts for name in before.parts[key].names}
    longest = sorted(group.keys, key=lambda key: -(now.parts[key].seconds if key in now.parts else 0.0))
    return Cause(
        category=longest[0].category,
        kinds=tuple(key.kind for key in longest),
        instead=tuple(key.kind for key in group.instead),
        grew=grew,
        share=share,
        calls=(_calls(before, group.keys), _calls(now, group.keys)),
        new=tuple(
            name for key in longest if key in now.parts for name in now.parts[key].names if name not in known
        ),
        after=group.after,
    )  # fmt: skip


def _calls(breakdown: StepBreakdown, keys: Iterable[Key]) -> float:
    return sum(breakdown.parts[key].calls for key in keys if key in breakdown.parts)


def _groups(before: StepBreakdown, now: StepBreakdown) -> list[tuple[tuple[Key, ...], tuple[Key, ...], str]]:
    """Kinds, those they stand in for, and how these came to an end; each kind stands in one group."""
    left = list(dict.fromkeys([*now.parts, *before.parts]))
    groups: list[tuple[tuple[Key, ...], tuple[Key, ...], str]] = []
    more = {key for key in left if _calls(now, [key]) > _calls(before, [key]) + 0.5}
    fewer = [key for key in left if _calls(now, [key]) < _calls(before, [key]) - 0.5]
    compiled = [key for key in left if key.compiled]
    if compiled and not any(key in now.parts for key in compiled):
        others = [key for key in left if key in more and not key.compiled]
        groups.append((tuple(others), tuple(compiled), "compiled"))
        left = [key for key in left if key not in others and key not in compiled]
    for key in fewer:
        if key not in left or (found := _FUSED.match(key.kind)) is None:
            continue
        base = found["base"]
        parts = [one for one in left if one in more and (one.kind == base or _FUSIBLE.match(one.kind))]
        if any(one.kind == base for one in parts):
            groups.append((tuple(parts), (key,), "fused"))
            left = [one for one in left if one is not key and one not in parts]
    return [*groups, *(((key,), (), "") for key in left)]
