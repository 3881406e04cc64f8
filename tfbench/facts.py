"""Describe a process as comparable text: its interpreter, packages, settings and machine. Read files of the kernel."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    "PYTHONDEVMODE", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONNODEBUGRANGES", "PYTHONOPTIMIZE", "PYTHONWARNINGS",
    "PYTHON_CPU_COUNT", "PYTHON_GIL", "PYTHON_JIT", "TFBENCH_SCALE",
)  # fmt: skip
VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""They select the GPUs. To hide all GPUs is a setting; which ones are visible is a fact of the machine."""
_TERRAFORM = (
    "TF_CLI_", "TF_DATA_DIR", "TF_IGNORE", "TF_INPUT", "TF_IN_AUTOMATION", "TF_LOG", "TF_PLUGIN_", "TF_REGISTRY_",
    "TF_STATE_", "TF_TOKEN_", "TF_VAR_", "TF_WORKSPACE",
)  # fmt: skip
"""Terraform's variables share the prefix ``TF_``. They change no time, and some hold secrets, so no report may show them."""
_SILENT = ("TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_ENABLE_DEPRECATION_WARNINGS")
"""They decide what TensorFlow prints. Tests set them anywhere, to have less output."""


OPTION = "PYTEST_OPTION_"
"""Beginning of a setting that is no variable, but an option of the project's conftest.py."""
PYTHON_OPTIONS = "PYTHON_OPTIONS"
"""A setting that is no variable, but the options of the interpreter, such as ``-O -X dev``."""
_INHERITED = {**{letter: letter for letter in "BEOSbs"}, "I": "Es"}
"""Option of Python without a value -> the options of a measuring process."""
_OF_OUTPUT = {"pycache_prefix"}
"""Values of Python's option -X about the cache of the user's own process."""


def describe(options: Mapping[str, object] | None = None) -> JSON:
    """Return interpreter, packages, settings and machine of this process.

    ``options`` has the values of options that the project's conftest.py files define.
    """
    given = {f"{OPTION}{name}": str(value) for name, value in (options or {}).items()}
    if kept := [one for one in interpreter_options() if one != "-B"]:
        given[PYTHON_OPTIONS] = shlex.join(kept)
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": packages(),
        "settings": settings() | given,
        "machine": machine(),
    }


def interpreter_options(words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options with which another Python runs a program as this one does, such as ``-O``.

    They are those of its command line, or of other ``words``. What variables such as ``PYTHONOPTIMIZE`` set is inherited
    with them, so that a side may set another value. -P is left out, and -I stands for -E and -s: a measuring process
    starts in a folder with tfbench alone. So is what concerns only what a process prints, or asks at its end.
    """
    rest, found = list(words or sys.orig_argv[1:]), list[str]()
    while rest and (word := rest.pop(0)).startswith("-") and word != "-":
        if word.startswith("--check-hash-based-pycs"):
            found += [word] if "=" in word else [word, rest.pop(0)]
            continue
        for place, letter in enumerate(word[1:], start=2):
            if letter in "cm":
                return tuple(found)
            if letter in "WX":
                value = word[place:] or rest.pop(0)
                found += [f"-{letter}{value}"] if letter == "W" or value.partition("=")[0] not in _OF_OUTPUT else []
                break
            found += [f"-{one}" for one in _INHERITED.get(letter, "")]
    return tuple(found)


def hear_of_children() -> None:
    """Have the system keep the exit codes of this process' children, unless the process has a handler of its own.

    A parent that ignores SIGCHLD, as some supervisors do, hands that down. No child is waited for then: each failed
    command would seem to have ended well.
    """
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def unusable_option() -> str:
    """Return why no time can be taken under an option of this interpreter, with the fix; ``""`` if all can be kept."""
    variables = {} if sys.flags.ignore_environment else os.environ
    for option, variable, why in (
        ("tracemalloc", "PYTHONTRACEMALLOC", "slows every allocation down, and tfbench traces leaks without it"),
        ("importtime", "PYTHONPROFILEIMPORTTIME", "times the imports of one process, and races start many"),
    ):
        for given, name in ((option in sys._xoptions, f"python -X {option}"), (variables.get(variable), variable)):
            if given:
                return f"{name} {why}; run the benchmarks without it"
    return ""


def packages() -> dict[str, str]:
    """Return the installed distributions that can change a time, with their versions."""
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


_REINSTALL = "pip uninstall tfbench, then pip install --force-reinstall with the path or the URL of this project"
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
    known = {name: value for name, value in sorted(os.environ.items()) if not _changes_no_time(name)}
    named = {*_NAMES, VISIBLE[0]} if known.get(VISIBLE[0]) in ("", "-1") else _NAMES
    return {name: value for name, value in known.items() if name.startswith(_PREFIXES) or name in named}


def _changes_no_time(variable: str) -> bool:
    return variable in _SILENT or variable.startswith(_TERRAFORM)


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
    """Select the variables that libraries read while they are imported or loaded, and that can change a time."""
    read = {name: value for name, value in variables.items() if name.startswith(_READ_BY_LIBRARIES)}
    return {name: value for name, value in read.items() if not _changes_no_time(name)}


# Read files of the kernel


def read_proc(file: Path) -> str:
    """Return the stripped content of one of the kernel's files, ``""`` if it is missing or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """Return the id of the parent of each process of this machine, zombies included."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # The name in parentheses may contain anything, even parentheses. The file of an ended process is empty.
        if fields := read_proc(stat).rpartition(")")[2].split():
            found[int(stat.parent.name)] = int(fields[1])
    return found
