"""The memory profile: the memory that each allocator held, over time and at its peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Section, column, table_of
from tfbench.profiles.xprof import MEMORY, Answers, integer, number


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The state of an allocator at one time."""

    allocator: str = field(metadata=column("allocator"))
    seconds: float = field(metadata=column("time", SECONDS))
    """Since the start of the profile."""
    used: int = field(metadata=column("used", BYTES))
    free: int = field(metadata=column("free", BYTES))
    fragmentation: float = field(metadata=column("fragmentation", SHARE))
    """Fraction of the free memory that no single allocation can have."""
    activity: str = field(metadata=column("activity"))
    """``allocation`` or ``deallocation``."""
    op: str = field(metadata=column("op", NAME))
    amount: int = field(metadata=column("bytes", BYTES))
    """Bytes of this activity."""


@dataclass(frozen=True, slots=True)
class Held:
    """Allocations of one kind at the peak."""

    allocator: str = field(metadata=column("allocator"))
    op: str = field(metadata=column("op", NAME))
    region: str = field(metadata=column("region"))
    """Such as ``output``, ``temp`` or ``persist/dynamic``."""
    kind: str = field(metadata=column("type"))
    """Type of the elements."""
    shape: str = field(metadata=column("shape"))
    amount: int = field(metadata=column("bytes", BYTES))
    """Bytes of all of them."""
    count: int = field(metadata=column("count", COUNT))


@dataclass(frozen=True)
class Allocator:
    """One allocator."""

    name: str = field(metadata=column("allocator"))
    peak: int = field(metadata=column("peak", BYTES))
    """Within the profile."""
    lifetime_peak: int = field(metadata=column("lifetime peak", BYTES))
    """Since the process began."""
    capacity: int = field(metadata=column("capacity", BYTES))
    fragmentation: float = field(metadata=column("fragmentation at the peak", SHARE))
    peak_seconds: float = field(metadata=column("time of the peak", SECONDS))
    """Since the start of the profile."""
    timeline: Sequence[MemorySnapshot]
    at_peak: Sequence[Held]
    """Largest first."""


@dataclass(frozen=True)
class MemoryProfile:
    """The allocators of a profile, the one with the highest peak first."""

    allocators: Sequence[Allocator]

    def section(self) -> Section:
        held = [held for allocator in self.allocators for held in allocator.at_peak]
        timeline = [snapshot for allocator in self.allocators for snapshot in allocator.timeline]
        tables = (
            table_of("allocators", "Allocators", Allocator, self.allocators),
            table_of("at_peak", "Allocations at the peak", Held, held),
            table_of("timeline", "Memory over time", MemorySnapshot, timeline),
        )
        return Section("memory", "Memory profile", tables)


def memory_profile(answers: Answers) -> MemoryProfile:
    """Read xprof's memory profile.

    Raises:
        ProfileError: xprof gave no answer, or no allocation was recorded.
    """
    content = answers.content(MEMORY)
    if not isinstance(content, dict) or not (found := content.get("memoryProfilePerAllocator")):
        raise ProfileError(
            "no allocation was recorded: all were too small (below 256 KiB on CPUs), or the level of the host tracer "
            "was below 2"
        )
    allocators = [_allocator(name, one) for name, one in found.items()]
    return MemoryProfile(sorted(allocators, key=lambda one: -one.peak))


def _allocator(name: str, content: Mapping[str, Any]) -> Allocator:
    summary = content.get("profileSummary", {})
    peak = summary.get("peakStats", {})
    return Allocator(
        name=name,
        peak=integer(peak.get("peakBytesInUse")),
        lifetime_peak=integer(summary.get("peakBytesUsageLifetime")),
        capacity=integer(summary.get("memoryCapacity")),
        fragmentation=number(peak.get("fragmentation")),
        peak_seconds=number(summary.get("peakStatsTimePs")) * 1e-12,
        timeline=[_snapshot(name, one) for one in content.get("sampledTimelineSnapshots", [])],
        at_peak=sorted(_held(name, content), key=lambda one: -one.amount),
    )


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
        keys = ("tfOpName", "regionType", "dataType", "tensorShape")
        op, region, kind, shape = (str(about.get(key, "")) for key in keys)
        yield Held(allocator, op, region, kind, shape, integer(about.get("allocationBytes")) * count, count)


def _snapshot(allocator: str, content: Mapping[str, Any]) -> MemorySnapshot:
    stats, about = content.get("aggregationStats", {}), content.get("activityMetadata", {})
    return MemorySnapshot(
        allocator=allocator,
        seconds=number(content.get("timeOffsetPs")) * 1e-12,
        used=integer(stats.get("heapAllocatedBytes")),
        free=integer(stats.get("freeMemoryBytes")),
        fragmentation=number(stats.get("fragmentation")),
        activity=str(about.get("memoryActivity", "")).lower(),
        op=str(about.get("tfOpName", "")),
        amount=integer(about.get("allocationBytes")),
    )
