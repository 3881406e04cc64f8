"""Attribute a slowdown to parts of a step, and suggest fixes for a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.policy import Policy
from tfbench.profiles.sections import Column, Section, Table
from tfbench.profiles.step_breakdown import Key, Part, StepBreakdown, TimeCategory
from tfbench.profiles.tfdata import Bottlenecks, fix, is_overhead
from tfbench.profiles.xprof import Overview

# Attribute a slowdown to its causes: compare the step breakdowns of two sides


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


# Suggest fixes from a profile, each with its evidence and the benchmark of this suite that measures it


_COLUMNS = (Column("finding"), Column("evidence"), Column("fix"), Column("measured by"))
Advice = tuple[str, str, str, str]
"""A finding in a word, its evidence, the fix, and the benchmark that measures the fix."""


@dataclass(frozen=True)
class Seen:
    """Results of the tools, ``None`` where a tool failed."""

    breakdown: StepBreakdown | None = None
    data: Bottlenecks | None = None
    overview: Overview | None = None
    tensor_cores: bool = False
    """Whether any kernel could use Tensor Cores."""


def advice(seen: Seen, policy: Policy) -> Section:
    """Apply all rules, in their order."""
    rules = (_input_bound, _launch_bound, _precision, _transposes)
    rows = [row for rule in rules for row in rule(seen, policy)]
    if not rows:
        return Section("advice", notes=("no rule applies: input, launches, precision and layout look fine",))
    return Section("advice", (Table("advice", "Suggestions", _COLUMNS, tuple(rows)),))


def _input_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if seen.data is None or seen.data.waiting < policy.input_bound:
        return
    if (end := next(filter(None, (pipeline.bottleneck for pipeline in seen.data.pipelines)), None)) is not None:
        small = is_overhead(end, policy.slow_call_seconds)
        yield (
            "input-bound",
            f"{seen.data.waiting:.0%} of step time is spent waiting for input, most of it for {end.path}",
            fix(end, policy.slow_call_seconds),
            _SMALL if small else _BY_STAGE.get(end.kind, "benchmarks/test_pipelines.py::test_fed_training"),
        )


_SMALL = "benchmarks/test_pipelines.py::test_pipeline_small_records"
_BY_STAGE = {
    "Map": "benchmarks/test_pipelines.py::test_pipeline_waiting",
    "ParallelMapV2": _SMALL,
    **dict.fromkeys(
        ("InterleaveV2", "Interleave", "FlatMap", "TFRecord"), "benchmarks/test_pipelines.py::test_reading"
    ),
    **dict.fromkeys(("Shuffle", "ShuffleAndRepeat"), "benchmarks/test_pipelines.py::test_shuffle"),
}
"""Kind of stage that is the bottleneck -> the benchmark that measures its fix."""


def _launch_bound(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    share = (steps.spent(TimeCategory.LAUNCH) + steps.spent(TimeCategory.OTHER)) / steps.seconds
    if share >= policy.launch_bound:
        computing = (TimeCategory.HOST, TimeCategory.DEVICE)
        ops = sum(part.calls for key, part in steps.parts.items() if key.category in computing)
        yield (
            "launch-bound",
            f"{share:.0%} of a step is neither an op nor waiting, but Python and the dispatch of {ops:.0f} ops",
            "use tf.function with jit_compile=True, a larger batch, or several steps per call (steps_per_execution)",
            "benchmarks/test_training.py::test_execution",
        )


def _precision(seen: Seen, policy: Policy) -> Iterator[Advice]:
    share = seen.overview.sixteen_bit if seen.overview else None
    if share is not None and share < policy.sixteen_bit and seen.tensor_cores:
        yield (
            "no 16 bit",
            f"{share:.1%} of device time is in 16 bit, and the device has Tensor Cores",
            "use mixed_float16 or mixed_bfloat16, with dimensions that are multiples of 8",
            "benchmarks/test_linear.py::test_matmul",
        )


def _transposes(seen: Seen, policy: Policy) -> Iterator[Advice]:
    if (steps := seen.breakdown) is None:
        return
    keys = [key for key in steps.parts if "transpose" in key.kind.lower() and "conv" not in key.kind.lower()]
    share = steps.covered(keys) / steps.seconds
    if share >= policy.transposing:
        calls = sum(steps.parts[key].calls for key in keys)
        yield (
            "transposes",
            f"{calls:.0f} transposes take {share:.0%} of a step",
            "keep one layout throughout: NHWC on CPUs, and the layout that the convolutions prefer on GPUs",
            "benchmarks/test_convolution.py::test_conv2d_3x3",
        )
