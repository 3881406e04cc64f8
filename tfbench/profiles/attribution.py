"""Attribute a slowdown to parts of a step, and memory to operations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfbench.errors import ProfileError
from tfbench.profiles.step_breakdown import Key, Part, StepBreakdown, TimeCategory
from tfbench.profiles.xprof import (
    BYTES,
    COUNT,
    MEMORY,
    NAME,
    SECONDS,
    SHARE,
    Answers,
    Section,
    column,
    integer,
    row_of,
    table_of,
)

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


# The memory profile: the memory that each allocator held, over time and at its peak


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The state of an allocator at one time."""

    allocator: str = field(metadata=column("allocator"))
    seconds: float = field(metadata=column("time", SECONDS, "timeOffsetPs", 1e12))
    """Since the start of the profile."""
    used: int = field(metadata=column("used", BYTES, "heapAllocatedBytes"))
    free: int = field(metadata=column("free", BYTES, "freeMemoryBytes"))
    fragmentation: float = field(metadata=column("fragmentation", SHARE, "fragmentation"))
    """Fraction of the free memory that no single allocation can have."""
    activity: str = field(metadata=column("activity"))
    """``allocation`` or ``deallocation``."""
    op: str = field(metadata=column("op", NAME, "tfOpName"))
    amount: int = field(metadata=column("bytes", BYTES, "allocationBytes"))
    """Bytes of this activity."""


@dataclass(frozen=True, slots=True)
class Held:
    """Allocations of one kind at the peak."""

    allocator: str = field(metadata=column("allocator"))
    op: str = field(metadata=column("op", NAME, "tfOpName"))
    region: str = field(metadata=column("region", source="regionType"))
    """Such as ``output``, ``temp`` or ``persist/dynamic``."""
    kind: str = field(metadata=column("type", source="dataType"))
    """Type of the elements."""
    shape: str = field(metadata=column("shape", source="tensorShape"))
    amount: int = field(metadata=column("bytes", BYTES))
    """Bytes of all of them."""
    count: int = field(metadata=column("count", COUNT))


@dataclass(frozen=True)
class Allocator:
    """One allocator."""

    name: str = field(metadata=column("allocator"))
    peak: int = field(metadata=column("peak", BYTES, "peakBytesInUse"))
    """Within the profile."""
    lifetime_peak: int = field(metadata=column("lifetime peak", BYTES, "peakBytesUsageLifetime"))
    """Since the process began."""
    capacity: int = field(metadata=column("capacity", BYTES, "memoryCapacity"))
    fragmentation: float = field(metadata=column("fragmentation at the peak", SHARE, "fragmentation"))
    peak_seconds: float = field(metadata=column("time of the peak", SECONDS, "peakStatsTimePs", 1e12))
    """Since the start of the profile."""
    timeline: Sequence[MemorySnapshot]
    at_peak: Sequence[Held]
    """Largest first."""


def memory_profile(answers: Answers) -> tuple[Sequence[Allocator], Section]:
    """Read xprof's memory profile: the allocators, the one with the highest peak first.

    Raises:
        ProfileError: xprof gave no answer, or no allocation was recorded.
    """
    content = answers.content(MEMORY)
    if not isinstance(content, dict) or not (found := content.get("memoryProfilePerAllocator")):
        raise ProfileError(
            "no allocation was recorded: all were too small (below 256 KiB on CPUs), or the level of the host tracer "
            "was below 2"
        )
    allocators = sorted((_allocator(name, one) for name, one in found.items()), key=lambda one: -one.peak)
    held = [held for allocator in allocators for held in allocator.at_peak]
    timeline = [snapshot for allocator in allocators for snapshot in allocator.timeline]
    return allocators, Section("memory", (
        table_of("allocators", "Allocators", Allocator, allocators),
        table_of("at_peak", "Allocations at the peak", Held, held),
        table_of("timeline", "Memory over time", MemorySnapshot, timeline),
    ))  # fmt: skip


def _allocator(name: str, content: Mapping[str, Any]) -> Allocator:
    summary = content.get("profileSummary", {})
    timeline = [_snapshot(name, one) for one in content.get("sampledTimelineSnapshots", [])]
    at_peak = sorted(_held(name, content), key=lambda one: -one.amount)
    cells = _cells(summary, summary.get("peakStats", {}))
    return row_of(Allocator, cells, name=name, timeline=timeline, at_peak=at_peak)


def _cells(*messages: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge messages, in which xprof leaves out zeros and empty texts."""
    return defaultdict(str, {key: value for message in messages for key, value in message.items()})


def _held(allocator: str, content: Mapping[str, Any]) -> Iterator[Held]:
    """Each active allocation refers by index to a snapshot, or to a special allocation."""
    known = content.get("memoryProfileSnapshots", [])
    special = content.get("specialAllocations", [])
    for active in content.get("activeAllocations", []):
        index, other = integer(active["snapshotIndex"]), integer(active["specialIndex"])
        if 0 <= index < len(known):
            about = known[index].get("activityMetadata", {})
        elif 0 <= other < len(special):
            about = special[other]
        else:
            continue
        count = integer(active.get("numOccurrences", 1))
        amount = integer(about.get("allocationBytes")) * count
        yield row_of(Held, _cells(about), allocator=allocator, amount=amount, count=count)


def _snapshot(allocator: str, content: Mapping[str, Any]) -> MemorySnapshot:
    about = content.get("activityMetadata", {})
    activity = str(about.get("memoryActivity", "")).lower()
    cells = _cells(content, content.get("aggregationStats", {}), about)
    return row_of(MemorySnapshot, cells, allocator=allocator, activity=activity)
