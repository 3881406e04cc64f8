"""The memory profile: the memory that each allocator held, over time and at its peak."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Section, column, table_of
from tfbench.profiles.xprof import MEMORY, Answers, integer, row_of


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
