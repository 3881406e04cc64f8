"""The memory profile: what each allocator held, over time and at its peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.xprof import MEMORY, Answers, number

_ABOUT = ("tfOpName", "regionType", "dataType", "tensorShape")


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """What an allocator held at one time."""

    seconds: float
    """Since the profile began."""
    used: int
    """Bytes."""
    free: int
    fragmentation: float
    """Fraction of the free memory that no single allocation can have."""
    activity: str
    """``ALLOCATION`` or ``DEALLOCATION``."""
    op: str
    amount: int
    """Bytes of this activity."""


@dataclass(frozen=True, slots=True)
class Held:
    """What was there at the peak."""

    op: str
    region: str
    """``output``, ``temp``, ``persist/dynamic`` …"""
    kind: str
    """Type of its elements."""
    shape: str
    amount: int
    """Bytes of all of them."""
    count: int


@dataclass(frozen=True)
class Allocator:
    """One allocator."""

    name: str
    peak: int
    """Bytes at the peak within the profile."""
    lifetime_peak: int
    """The same since the process began."""
    capacity: int
    fragmentation: float
    """At the peak."""
    peak_seconds: float
    """When it was, since the profile began."""
    timeline: Sequence[MemorySnapshot]
    at_peak: Sequence[Held]
    """Largest first."""


@dataclass(frozen=True)
class MemoryProfile:
    """The allocators of a profile, the one with the highest peak first."""

    allocators: Sequence[Allocator]

    def section(self) -> Section:
        summary = Table(
            "allocators", "Allocators",
            (Column("allocator"), Column("peak", BYTES), Column("peak of the process", BYTES), Column("capacity", BYTES),
             Column("fragmentation at the peak", SHARE), Column("at", SECONDS)),
            tuple((one.name, one.peak, one.lifetime_peak, one.capacity, one.fragmentation, one.peak_seconds)
                  for one in self.allocators),
        )  # fmt: skip
        held = Table(
            "at_peak", "What was held at the peak",
            (Column("allocator"), Column("op", NAME), Column("region"), Column("type"), Column("shape"),
             Column("bytes", BYTES), Column("count", COUNT)),
            tuple((one.name, held.op, held.region, held.kind, held.shape, held.amount, held.count)
                  for one in self.allocators for held in one.at_peak),
        )  # fmt: skip
        timeline = Table(
            "timeline", "Memory over time",
            (Column("allocator"), Column("at", SECONDS), Column("used", BYTES), Column("free", BYTES),
             Column("fragmentation", SHARE), Column("activity"), Column("op", NAME), Column("bytes", BYTES)),
            tuple((one.name, at.seconds, at.used, at.free, at.fragmentation, at.activity.lower(), at.op, at.amount)
                  for one in self.allocators for at in one.timeline),
        )  # fmt: skip
        return Section("memory", "Memory profile", (summary, held, timeline))


def memory_profile(answers: Answers) -> MemoryProfile:
    """From xprof's memory profile.

    Raises:
        ProfileError: xprof gave none, or nothing was allocated.
    """
    content = answers.content(MEMORY)
    if not isinstance(content, dict) or not (found := content.get("memoryProfilePerAllocator")):
        raise ProfileError(
            "no allocator told of anything: nothing was allocated that is large enough (on CPUs 256 KiB), or the host's level was below 2"
        )
    allocators = [_allocator(name, one) for name, one in found.items()]
    return MemoryProfile(sorted(allocators, key=lambda one: -one.peak))


def _allocator(name: str, content: Mapping[str, Any]) -> Allocator:
    summary = content.get("profileSummary", {})
    peak = summary.get("peakStats", {})
    known = content.get("memoryProfileSnapshots", [])
    special = content.get("specialAllocations", [])
    held = []
    for active in content.get("activeAllocations", []):
        index, other = int(number(active["snapshotIndex"])), int(number(active["specialIndex"]))
        if 0 <= index < len(known):
            about = known[index].get("activityMetadata", {})
        elif 0 <= other < len(special):
            about = special[other]
        else:
            continue
        count = int(number(active.get("numOccurrences", 1)))
        amount = int(number(about.get("allocationBytes"))) * count
        op, region, kind, shape = (str(about.get(key, "")) for key in _ABOUT)
        held.append(Held(op, region, kind, shape, amount, count))
    return Allocator(
        name=name,
        peak=int(number(peak.get("peakBytesInUse"))),
        lifetime_peak=int(number(summary.get("peakBytesUsageLifetime"))),
        capacity=int(number(summary.get("memoryCapacity"))),
        fragmentation=number(peak.get("fragmentation")),
        peak_seconds=number(summary.get("peakStatsTimePs")) * 1e-12,
        timeline=[_snapshot(one) for one in content.get("sampledTimelineSnapshots", [])],
        at_peak=sorted(held, key=lambda one: -one.amount),
    )


def _snapshot(content: Mapping[str, Any]) -> MemorySnapshot:
    stats, about = content.get("aggregationStats", {}), content.get("activityMetadata", {})
    return MemorySnapshot(
        seconds=number(content.get("timeOffsetPs")) * 1e-12,
        used=int(number(stats.get("heapAllocatedBytes"))),
        free=int(number(stats.get("freeMemoryBytes"))),
        fragmentation=number(stats.get("fragmentation")),
        activity=str(about.get("memoryActivity", "")),
        op=str(about.get("tfOpName", "")),
        amount=int(number(about.get("allocationBytes"))),
    )
