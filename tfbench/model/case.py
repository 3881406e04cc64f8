"""A case, which is a workload in one variant, and the contracts between cases."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


class Word(str, enum.Enum):
    """An enumeration whose members are texts, in files and in words; `enum.StrEnum` needs Python 3.11."""

    def __str__(self) -> str:
        return str(self.value)


TIME = "time"
"""The metric that races compare."""
ONCE = "once"
"""The fact of a launch whose step ran once, so that its time is a single sample."""
NATIVE = "native"
"""The fact with the native code of a source tree that a launch has loaded: ``own`` of its side, and ``foreign``."""
MODULES = "modules"
"""Top-level modules that a zygote has imported from installed packages; in a launch, only the additional ones."""
CALL_SECONDS = "call_seconds"
"""What a contract with a limit on time in seconds is about."""
LEAKS = "leaks"
"""What a contract on leaks is about, and the probe that finds them."""
LEAK_KINDS = ("bytes", "resident", "objects", "threads", "files", "traces")
"""What a process can gain with every call: bytes of the allocator, resident bytes, and counts."""
NO_ACCELERATOR = "TensorFlow sees no accelerator, and does not count its allocations on a CPU"
NO_MODULE = "XLA compiled no module"
"""Why a probe has read no memory of a device, and no kernels, although it could: there are none."""
OUTSIDE_PYTHON = "outside of Python"
"""Where the memory grows that no line of Python has allocated."""
PLAIN = "pytest_benchmark"
"""The fact with what a plain pytest-benchmark test has noted: ``group``, ``extra_info`` and ``reads_stats``."""
PEAK_HOST_MEMORY = "peak_host_memory"
"""The fact with the peak of anonymous memory, bytes."""
FIRST_CALL, FIRST_CALL_PARTS = "first_call", "first_call_parts"
"""The facts with the seconds of the first call, in total and by part: ``trace``, ``compile`` and ``execute``."""
SET_UP, WARM_UP = "set_up", "warm_up"
"""The facts with the seconds that the fixtures and the code before `bench` take; and with those of the second call, with what
the later calls take more than as many steady ones until they are steady."""
WAITED = "waited"
"""The fact of a launch whose step ran on one processor: the mean time that it waited, as a fraction of its processor time."""
DOUBT = "doubt"
"""The fact of a launch whose blocks neighbours have blurred: how much their times may be too short, as a mean log-ratio."""
HANDED = "handed"
"""The fact with how often per call another thread of a step waited for work, in a launch whose blocks neighbours have blurred."""
BESIDE = "beside"
"""The fact with the processor seconds per call that a process has used outside of its blocks until it rested."""
RESTLESS = "restless"
"""The fact of a launch whose process did not rest: threads or child processes worked on a second after the last block."""
RETRACED = "retraced"
"""The fact of a launch in which most calls of the rounds traced a function again."""
COLLECTIONS = "collections"
"""The fact how often Python collects garbage by itself, as a multiple of its default, if the benchmark has changed that."""
SET_LATE = "set_late"
"""The fact with a list of the variables that a benchmark has set after TensorFlow has read them, such as ``NAME=value``."""
COVERED = "covered"
"""The fact which calls of a process a launch has timed: the first, the last, and the seconds of use until then."""
REPORTED = "reported"
"""The fact of a launch whose time the benchmark has taken and reported itself: one sample per launch."""
CACHE = "cache"
"""The fact how calls find their tensors in the cache of the device."""
COLD, WARM, UNKNOWN = CACHE_STATES = ("cold", "warm", "unknown")
"""Its values. The last one is for a GPU whose cache has an unknown size."""
QUALITIES = "qualities"
"""The fact with the qualities that a benchmark reports of its model, such as its accuracy."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A contract between this case and the variant with these ``levels``."""

    name: str
    """``faster_than``, ``as_fast``, ``smaller_than`` or ``as_accurate``; ``no_leak``, ``at_most`` and ``at_least`` are about
    this case alone."""
    other: str
    """The other variant as the benchmark names it: the levels in which it differs from this case. For ``no_leak`` its
    ``kinds`` as text."""
    levels: tuple[tuple[str, str], ...]
    bound: float = 0.0
    """The least factor by which this case is faster or smaller, the largest loss of accuracy, or a limit in seconds."""
    metric: str = TIME
    kinds: tuple[str, ...] = ()
    """Of ``no_leak``: which of `LEAK_KINDS` must not grow."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload in one variant, which is one pytest item. ``name`` is its node id.

    ``group`` names the cases that race each other: the same function with the same
    parameters, apart from the variant. ``variant`` is sorted by axis.
    """

    name: str
    workload: str
    group: str
    variant: tuple[tuple[str, str], ...] = ()
    reference: bool = True
    """Whether every axis is at its first level."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables that the variant needs when its process starts."""
    cpus: int = 1
    """Processors that it may use, 0 for every one of the run."""
    source: str = ""
    """Digest of its function's code, ``""`` if unknown."""
    file: str = ""
    """Digest of the code of its file, ``""`` if unknown."""
    claims: tuple[Claim, ...] = ()
    shared: bool = False
    """Whether the benchmark uses a shared set-up, built once for all launches."""
    thresholds: tuple[tuple[str, float], ...] = ()
    """Its own ``minimum_effect`` and ``tolerance`` instead of the policy's, empty for those."""
    statistic: str = ""
    """What a verdict on its time is about instead of the policy's statistic, empty for that."""
    ungated: str = ""
    """Why it is shown and not gated, as its mark says; empty if it is gated."""
    alone: bool = False
    """Whether it may take its own time, so that no other process may prepare at the same time."""
    place: tuple[int, int] = (0, 0)
    """Place among the cases of the same function in the order of declaration, from 0, and their number."""

    @classmethod
    def named(cls, name: str) -> Case:
        """Return a case of which only the name is known."""
        function = name.partition("[")[0]
        return cls(name, short_name(function), function)

    @property
    def levels(self) -> dict[str, str]:
        """Axis -> level, as in reports."""
        return dict(self.variant)

    def claims_on(self, *metrics: str) -> list[Claim]:
        """Return the contracts on one of these metrics."""
        return [claim for claim in self.claims if claim.metric in metrics]

    @property
    def short_name(self) -> str:
        """The name without its file: ``test_matmul[compiler=xla]``."""
        return short_name(self.name)

    @property
    def label(self) -> str:
        """The variant as ``axis=level,…``, or ``-`` for the empty variant."""
        return ",".join(f"{axis}={level}" for axis, level in self.variant) or "-"


THRESHOLDS = ("minimum_effect", "tolerance")
"""Fields of the policy that a case can set: always both, or none."""


def short_name(name: str) -> str:
    """Return the name of a case without its file and class, whatever its parameters are: ``test_x[a::b]``."""
    function, bracket, parameters = name.partition("[")
    return function.rpartition("::")[2] + bracket + parameters


def function_name(name: str) -> str:
    """Return the name of a case's function or method: ``method`` of ``file::Class::method`` and of ``file::Class.method``."""
    return short_name(name.partition("[")[0]).rpartition(".")[2]


def own_thresholds(given: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Read `Case.thresholds` from a file, ``()`` if it has none.

    Raises `ValueError` if they are no pair of fractions in their order.
    """
    pairs = tuple((name, given.get(name, 0.0)) for name in THRESHOLDS) if given else ()
    if given and (len(given) > len(pairs) or not 0 < pairs[0][1] < pairs[1][1] < 1):
        raise ValueError(f"thresholds are the fractions {' and '.join(THRESHOLDS)}, the first one below the other one")
    return pairs
