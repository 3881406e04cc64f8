"""Identity and readings of a GPU, where ``None`` marks a value that is not reported, and the interface of drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from statistics import fmean
from typing import Protocol

from tfbench.model import JSON

HARDWARE_REASONS: Mapping[int, str] = {
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}
"""NVML's reasons for a lowered clock that make a launch not count.

A software power cap (0x04) is not one: it is normal on parts with a power limit, where the clock itself is compared."""

IDLE = 0x01
"""NVML's reason of an idle GPU. An RTX 3090 then reports 0 MHz, so idle readings are excluded from the clock."""


def hardware_reasons(bits: int) -> list[str]:
    """Name the reasons in a bit mask that make a launch not count."""
    return [words for bit, words in HARDWARE_REASONS.items() if bits & bit]


@dataclass(frozen=True, slots=True)
class Identity:
    """Properties of a GPU that only an administrator changes."""

    index: int
    """Position in PCI bus order, from 0."""
    uuid: str
    name: str
    driver: str
    cuda: str
    """Newest version of CUDA that the driver supports."""
    vbios: str | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    pcie: str | None = None
    """``gen 4 x16``."""
    power_limit: float | None = None
    """Watts."""
    clock_limit: float | None = None
    """Maximum MHz of the multiprocessors."""
    memory: int | None = None
    """Bytes."""
    instance: int | None = None
    """Number of this part of a divided GPU (MIG), ``None`` for a whole GPU."""

    @property
    def place(self) -> str:
        """``0``, or ``0.1`` for a part."""
        return str(self.index) if self.instance is None else f"{self.index}.{self.instance}"

    def as_machine(self) -> dict[str, str]:
        """Return the properties that two runs must share for their times to be comparable."""
        limits = {"power limit": (self.power_limit, "W"), "clock limit": (self.clock_limit, "MHz")}
        known = {"VBIOS": self.vbios, "MIG": self.mig, "ECC": self.ecc, "compute mode": self.compute_mode}
        known |= {key: f"{limit:g} {unit}" for key, (limit, unit) in limits.items() if limit is not None}
        name = f"GPU {self.place}"
        return {name: self.name} | {f"{name} {key}": str(value) for key, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of a GPU at one time."""

    sm_clock: float | None = None
    """MHz."""
    memory_clock: float | None = None
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    reasons: int = 0
    """Bits: why the clock is lowered."""
    energy: float | None = None
    """Joules since the driver started."""
    processes: frozenset[int] | None = None
    """Ids of processes with access to the GPU. In a container, they may be the host's."""
    computing: frozenset[int] | None = None
    """Ids of processes that computed since the previous reading."""
    seconds: float = 0.0
    """Time of the reading, on a monotonic clock."""
    too_hot: float | None = None
    """Seconds for which heat lowered the clock, since the driver started."""
    capped: float | None = None
    """Seconds for which the power limit lowered the clock, since the driver started."""


_Counter = Callable[[GpuReading], "float | None"]


@dataclass(frozen=True, slots=True)
class GpuObservationWindow:
    """The readings of a GPU during a launch."""

    readings: tuple[GpuReading, ...]
    """In time order. The first and last are taken at the ends of the launch."""
    xids: tuple[int, ...] = ()
    """Errors that the driver reported during the launch."""
    lost: str = ""
    """Why the readings ended early, ``""`` if they did not."""

    def as_json(self) -> JSON:
        """Summarise the readings: means, the highest temperature, all reasons for a lowered clock, and growths.

        ``too_hot`` and ``capped`` are the shares of the launch in which heat and the power limit lowered the clock.
        """
        powers = _known(reading.power for reading in self.readings)
        heat = _known(reading.temperature for reading in self.readings)
        return {
            "sm_clock": self.sm_clock,
            "power": fmean(powers) if powers else None,
            "temperature": max(heat, default=None),
            "reasons": reduce(or_, (reading.reasons for reading in self.readings), 0),
            "energy": self.energy,
            "too_hot": self.too_hot,
            "capped": self._share(lambda reading: reading.capped),
        }

    @property
    def sm_clock(self) -> float | None:
        """Mean MHz of the readings in which the GPU was not idle."""
        clocks = _known(reading.sm_clock for reading in self.readings if not reading.reasons & IDLE)
        return fmean(clocks) if clocks else None

    @property
    def computing(self) -> frozenset[int] | None:
        """Ids of processes that computed during the launch, ``None`` if unknown."""
        known = [reading.computing for reading in self.readings[1:] if reading.computing is not None]
        return frozenset().union(*known) if known else None

    @property
    def energy(self) -> float | None:
        """Joules."""
        return self._grown(lambda reading: reading.energy)

    @property
    def too_hot(self) -> float | None:
        """Share of the launch in which heat lowered the clock, including short spells between two readings."""
        return self._share(lambda reading: reading.too_hot)

    def _share(self, counter: _Counter) -> float | None:
        grown, passed = self._grown(counter), self._grown(lambda reading: reading.seconds)
        return min(1.0, grown / passed) if grown is not None and passed else None

    def _grown(self, counter: _Counter) -> float | None:
        """Return the growth of a counter from the first reading to the last."""
        known = _known(counter(reading) for reading in (*self.readings[:1], *self.readings[-1:]))
        return known[1] - known[0] if len(known) == 2 else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class Driver(Protocol):
    """Queries about GPUs, so that tests and recordings can replace NVML."""

    def identities(self) -> list[Identity]:
        """List all GPUs, or raise `GpuError`."""

    def reading(self, gpu: Identity) -> GpuReading:
        """Read the current state of a GPU, or raise `GpuError` if it does not answer any more."""

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Start to record the errors (XIDs) of these GPUs, if the driver supports it."""

    def xids(self) -> list[int]:
        """Return the XIDs reported since the last call."""

    def close(self) -> None:
        """Release the driver."""
