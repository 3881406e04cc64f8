"""Describe a process as comparable text: its interpreter, packages, settings and machine. Read files of the kernel."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tfbench.model import JSON

MALLOC_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""Environment variables that set parameters of glibc's allocator."""
MALLOC_TUNABLES = "GLIBC_TUNABLES"
"""The variable with which users may set all of them."""
PACKAGES = (
    "tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-intel", "keras", "tf-keras", "numpy", "jaxlib",
    "tensorflow-model-optimization", "tensorflow-metal", "intel-extension-for-tensorflow", "ml-dtypes",
)  # fmt: skip
"""Distributions that can change a time."""
_PREFIXES = ("TF_", "XLA_", "KERAS_")
_NAMES = (
    "NVIDIA_TF32_OVERRIDE", "CUDA_MODULE_LOADING", *MALLOC_VARIABLES, MALLOC_TUNABLES, "LD_PRELOAD",
    "TFBENCH_SCALE",
)  # fmt: skip
VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""They select the GPUs. To hide all GPUs is a setting; which ones are visible is a fact of the machine."""
_TERRAFORM = (
    "TF_CLI_", "TF_DATA_DIR", "TF_IGNORE", "TF_INPUT", "TF_IN_AUTOMATION", "TF_LOG", "TF_PLUGIN_", "TF_REGISTRY_",
    "TF_STATE_", "TF_TOKEN_", "TF_VAR_", "TF_WORKSPACE",
)  # fmt: skip
"""Terraform's variables share the prefix ``TF_``. They change no time, and some hold secrets, so no report may show them."""
_SILENT = ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_ENABLE_DEPRECATION_WARNINGS")


OPTION = "PYTEST_OPTION_"
"""Beginning of a setting that is no variable, but an option of the project's conftest.py."""


def describe(options: Mapping[str, object] | None = None) -> JSON:
    """Return interpreter, packages, settings and machine of this process.

    ``options`` has the values of options that the project's conftest.py files define.
    """
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": packages(),
        "settings": settings() | {f"{OPTION}{name}": str(value) for name, value in (options or {}).items()},
        "machine": machine(),
    }


def packages() -> dict[str, str]:
    """Return the installed distributions that can change a time, with their versions."""
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


_REINSTALL = "pip uninstall tfbench, then pip install --force-reinstall pytest-tfbench"
REPLACED = f"files of another project have replaced those of pytest-tfbench: {_REINSTALL}"


def foreign_distribution() -> str:
    """Return a warning if another project's distribution ``tfbench`` is installed, whose files replace ours; else ``""``."""
    try:
        distribution = metadata.distribution("tfbench")
    except metadata.PackageNotFoundError:
        return ""
    if any(entry.group == "pytest11" for entry in distribution.entry_points):
        return ""  # an older installation of this project
    return f"the distribution tfbench {distribution.version} in this environment is another project, whose files mix with ours: {_REINSTALL}"


def settings() -> dict[str, str]:
    """Return the environment variables that can change a time."""
    return {
        key: value
        for key, value in sorted(os.environ.items())
        if (key.startswith(_PREFIXES) or key in _NAMES or (key == VISIBLE[0] and value in ("", "-1")))
        and key not in _SILENT
        and not key.startswith(_TERRAFORM)
    }


def machine(root: Path = Path("/")) -> dict[str, str]:
    """Return the processor, a digest of its features, the number of processors, and any GPUs with their driver.

    GPUs are read from the driver's files below ``root``, because a process that has asked CUDA cannot be forked any
    more.
    """
    first = read_proc(root / "proc/cpuinfo").partition("\n\n")[0]
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    flags = " ".join(sorted(facts.get("flags", facts.get("Features", "")).split()))
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": facts.get("model name", platform.processor() or platform.machine()),
        "features": hashlib.sha256(flags.encode()).hexdigest()[:12] if flags else "",
        "processors": str(os.cpu_count() or 1),
        **_gpus(root / "proc/driver/nvidia"),
    }


def _gpus(driver: Path) -> dict[str, str]:
    files = map(read_proc, sorted(driver.glob("gpus/*/information")))
    models = [model[1].strip() for text in files if (model := re.search(r"^Model:(.*)$", text, re.MULTILINE))]
    version = re.search(r"\s(\d+\.[\d.]+)\s", read_proc(driver / "version"))
    return {"gpus": ", ".join(models), "driver": version[1] if version else "unknown"} if models else {}


_READ_BY_LIBRARIES = (
    "TF_", "XLA_", "KERAS_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "CUDA_", "NVIDIA_", "CUBLAS_",
    "CUDNN_", "NCCL_", "MALLOC_", "GLIBC_", "LD_",
)  # fmt: skip


def library_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that libraries read while they are imported or loaded."""
    return {name: value for name, value in variables.items() if name.startswith(_READ_BY_LIBRARIES)}


# Read small files of /proc and /sys, which may be missing, forbidden or malformed


def text(file: Path) -> str | None:
    """Return the stripped content of a file; ``None`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def match(file: Path, pattern: str) -> str | None:
    """Return the first group of a pattern's first match, where ``^`` matches at each line; ``None`` without one."""
    matched = re.search(pattern, read_proc(file), re.MULTILINE)
    return matched[1] if matched else None


def number(file: Path, name: str = "") -> int | None:
    """Return the integer that begins a file, or the line with this name; ``None`` if there is none."""
    matched = match(file, rf"^{name}:?\s+(\d+)" if name else r"\A(-?\d+)")
    return None if matched is None else int(matched)


def read_proc(file: Path) -> str:
    """Return the stripped content of one of the kernel's files, ``""`` on systems that do not have it."""
    return text(file) or ""


def parents() -> dict[int, int]:
    """Return the id of the parent of each process of this machine, zombies included."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # The name in parentheses may contain anything, even parentheses. The file of an ended process is empty.
        if fields := read_proc(stat).rpartition(")")[2].split():
            found[int(stat.parent.name)] = int(fields[1])
    return found


# Read the limits of this process' control groups, version 1 and 2. The tightest limit of all levels holds


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The tightest limits of this process' control groups."""

    quota: float | None = None
    """In processors, ``None`` without a limit."""
    memory_left: int | None = None
    """In bytes, ``None`` without a limit."""


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
    sizes = (
        count * unit for name, unit in units.items() for stat in stats if (count := number(stat, name)) is not None
    )
    return max(sizes, default=None)


def _levels(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process' group and of its parents, as far as they are visible.

    Inside a container, the group's path is often that of the host, which is not mounted. Then only existing
    folders count, and the folder of the mount is the container's group.
    """
    for line in read_proc(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounts = root / "sys/fs/cgroup"
        candidates = [mounts / names, mounts / controller] if names else [mounts, mounts / "unified"]
        mount = next((folder for folder in candidates if folder.is_dir()), None)
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
