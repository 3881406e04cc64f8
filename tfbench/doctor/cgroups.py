"""Read the limits of this process' control groups, version 1 and 2. The tightest limit of all levels holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tfbench.doctor.model import Cgroup
from tfbench.doctor.procfs import number, text

_NO_LIMIT = 1 << 60
"""Version 1 encodes "no limit" as the largest number of whole pages."""


def read_limits(root: Path) -> Cgroup | None:
    """Return the tightest limits; ``None`` without control groups."""
    processor, memory = list(_levels(root, "cpu")), list(_levels(root, "memory"))
    if not processor and not memory:
        return None
    quotas = [quota for level in processor if (quota := _quota(level)) is not None]
    limits = [(limit, limit - _used(level)) for level in memory if (limit := _memory_limit(level)) is not None]
    return Cgroup(
        quota=min(quotas, default=None),
        memory_limit=min((limit for limit, _ in limits), default=None),
        memory_left=min((left for _, left in limits), default=None),
    )


def throttled_seconds(root: Path) -> float | None:
    """Return how long the kernel stopped the most throttled level; ``None`` if it does not say."""
    found = []
    for level in _levels(root, "cpu"):
        counts = _fields(level / "cpu.stat")
        if "throttled_usec" in counts:
            found.append(counts["throttled_usec"] * 1e-6)
        elif "throttled_time" in counts:
            found.append(counts["throttled_time"] * 1e-9)
    return max(found, default=None)


def _levels(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process' group and of its parents, as far as they are visible.

    Inside a container, the group's path is often that of the host, which is not mounted. Then only existing
    folders count, and the folder of the mount is the container's group.
    """
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        mounts = root / "sys/fs/cgroup"
        candidates = [mounts / names, mounts / controller] if names else [mounts, mounts / "unified"]
        mount = next((found for found in candidates if found.is_dir()), None)
        if mount is None:
            continue
        inner = Path(path.lstrip("/"))
        yield from (folder for part in (inner, *inner.parents) if (folder := mount / part).is_dir())


def _quota(level: Path) -> float | None:
    words = (text(level / "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = number(level / "cpu.cfs_quota_us"), number(level / "cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None


def _memory_limit(level: Path) -> int | None:
    limit = number(level / "memory.max")
    if limit is None:
        limit = number(level / "memory.limit_in_bytes")
    return limit if limit is not None and limit < _NO_LIMIT else None


def _used(level: Path) -> int:
    """Return the bytes in use, without cached files that the kernel can drop."""
    used = number(level / "memory.current")
    if used is None:
        used = number(level / "memory.usage_in_bytes") or 0
    counts = _fields(level / "memory.stat")
    return max(0, used - counts.get("total_inactive_file", counts.get("inactive_file", 0)))


def _fields(file: Path) -> dict[str, int]:
    rows = (line.split() for line in (text(file) or "").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
