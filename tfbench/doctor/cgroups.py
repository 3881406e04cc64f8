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
    left = [limit - _used(level) for level in memory if (limit := _memory_limit(level)) is not None]
    return Cgroup(min(quotas, default=None), min(left, default=None))


def throttled_seconds(root: Path) -> float | None:
    """Return how long the kernel stopped the most throttled level; ``None`` if it does not say."""
    units = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    stats = [level / "cpu.stat" for level in _levels(root, "cpu")]
    found = (
        count * unit for name, unit in units.items() for stat in stats if (count := number(stat, name)) is not None
    )
    return max(found, default=None)


def _levels(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process' group and of its parents, as far as they are visible.

    Inside a container, the group's path is often that of the host, which is not mounted. Then only existing
    folders count, and the folder of the mount is the container's group.
    """
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounts = root / "sys/fs/cgroup"
        candidates = [mounts / names, mounts / controller] if names else [mounts, mounts / "unified"]
        mount = next((found for found in candidates if found.is_dir()), None)
        if mount is not None:
            inner = Path(path.lstrip("/"))
            yield from (folder for part in (inner, *inner.parents) if (folder := mount / part).is_dir())


def _quota(level: Path) -> float | None:
    version_one = f"{text(level / 'cpu.cfs_quota_us')} {text(level / 'cpu.cfs_period_us')}"
    quota, _, period = (text(level / "cpu.max") or version_one).partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None  # "max" and -1 are no limit


def _memory_limit(level: Path) -> int | None:
    limits = number(level / "memory.max"), number(level / "memory.limit_in_bytes")
    return next((limit for limit in limits if limit is not None and limit < _NO_LIMIT), None)


def _used(level: Path) -> int:
    """Return the bytes in use, without cached files that the kernel can drop."""
    used = number(level / "memory.current") or number(level / "memory.usage_in_bytes") or 0
    stat = level / "memory.stat"
    cached = number(stat, "total_inactive_file") or number(stat, "inactive_file") or 0
    return max(0, used - cached)
