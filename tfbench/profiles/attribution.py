"""Attribute a slowdown to its causes: compare the step breakdowns of two sides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.profiles.step_breakdown import Key, Part, StepBreakdown, TimeCategory

_FUSED = re.compile(r"^_Fused(?P<base>\w+)$")
_FUSIBLE = re.compile(
    r"^(BiasAdd|Add(V2|N)?|Sub|Mul|Relu6?|Elu|LeakyRelu|Tanh|Sigmoid|Gelu|Erf|Squeeze|FusedBatchNorm(V\d)?|Pad)$"
)
"""Ops that grappler's remapper merges into a fused op, see its ``remapper.cc``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that takes longer per step than before."""

    category: TimeCategory
    kinds: tuple[str, ...]
    """The kinds that grew: several if they replace others."""
    instead: tuple[str, ...]
    """The kinds that they replace, such as a fused op. Usually empty."""
    grew: float
    """Seconds per step."""
    share: float
    """Fraction of the slowdown."""
    calls: tuple[float, float] = (0.0, 0.0)
    """Per step, before and now."""
    new: tuple[str, ...] = ()
    """Names of ops that did not run before."""
    after: str = ""
    """What ``instead`` was before it disappeared: ``fused`` or ``compiled``."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The causes of a slowdown."""

    before: float
    """Seconds per step."""
    now: float
    causes: tuple[Cause, ...]
    """Causes above the threshold, the largest first."""
    explained: float
    """Share of the slowdown that they explain together. Concurrent work counts once."""
    spent: tuple[tuple[TimeCategory, float, float], ...]
    """Categories with their seconds per step, before and now. The one that grew most comes first."""


class _Group(NamedTuple):
    """Kinds that are one cause."""

    keys: tuple[Key, ...]
    instead: tuple[Key, ...] = ()
    after: str = ""


def attribute(before: StepBreakdown, now: StepBreakdown, smallest: float) -> Attribution:
    """Compare two step breakdowns.

    Args:
        smallest: Share of the slowdown from which a growth counts as a cause.
    """

    def grown(*keys: Key) -> float:
        return now.covered(keys) - before.covered(keys)

    slowdown = now.seconds - before.seconds
    spent = [(category, before.spent(category), now.spent(category)) for category in TimeCategory]
    causes: list[Cause] = []
    together = 0.0
    if slowdown > 0:
        enough = smallest * slowdown
        groups = [group for group in _groups(before, now) if grown(*group.keys, *group.instead) >= enough]
        causes = [_cause(group, before, now, grown(*group.keys, *group.instead), slowdown) for group in groups]
        together = grown(*(key for group in groups for key in (*group.keys, *group.instead)))
        outside = now.spent(TimeCategory.OTHER) - before.spent(TimeCategory.OTHER)
        if outside >= enough:
            causes.append(Cause(TimeCategory.OTHER, (), (), outside, outside / slowdown))
            together += outside
    return Attribution(
        before=before.seconds,
        now=now.seconds,
        causes=tuple(sorted(causes, key=lambda cause: -cause.grew)),
        explained=together / slowdown if causes else 0.0,
        spent=tuple(sorted(spent, key=lambda one: one[1] - one[2])),
    )


def _cause(group: _Group, before: StepBreakdown, now: StepBreakdown, grew: float, slowdown: float) -> Cause:
    nothing = Part(0.0, 0.0, ())
    known = {name for key in group.keys for name in before.parts.get(key, nothing).names}
    longest = sorted(group.keys, key=lambda key: -now.parts.get(key, nothing).seconds)
    names = [name for key in longest for name in now.parts.get(key, nothing).names]
    return Cause(
        category=longest[0].category,
        kinds=tuple(key.kind for key in longest),
        instead=tuple(key.kind for key in group.instead),
        grew=grew,
        share=grew / slowdown,
        calls=(_calls(before, *group.keys), _calls(now, *group.keys)),
        new=tuple(name for name in names if name not in known),
        after=group.after,
    )


def _calls(breakdown: StepBreakdown, *keys: Key) -> float:
    return sum(breakdown.parts[key].calls for key in keys if key in breakdown.parts)


def _groups(before: StepBreakdown, now: StepBreakdown) -> list[_Group]:
    """Divide all kinds into groups. A kind that others replace is in the group of these."""
    left = list(dict.fromkeys([*now.parts, *before.parts]))
    groups: list[_Group] = []
    more = {key for key in left if _calls(now, key) > _calls(before, key) + 0.5}
    fewer = [key for key in left if _calls(now, key) < _calls(before, key) - 0.5]
    compiled = [key for key in left if key.compiled]
    if compiled and not any(key in now.parts for key in compiled):
        others = [key for key in left if key in more and not key.compiled]
        groups.append(_Group(tuple(others), tuple(compiled), "compiled"))
        left = [key for key in left if key not in others and key not in compiled]
    for key in fewer:
        if key in left and (found := _FUSED.match(key.kind)) is not None:
            base = found["base"]
            parts = [one for one in left if one in more and (one.kind == base or _FUSIBLE.match(one.kind))]
            if any(one.kind == base for one in parts):
                groups.append(_Group(tuple(parts), (key,), "fused"))
                left = [one for one in left if one is not key and one not in parts]
    return [*groups, *(_Group((key,)) for key in left)]
