"""What is read of a GPU; ``None`` where the device or its driver does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from tfbench.model import JSON

HARDWARE_REASONS: Mapping[int, str] = {
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}
"""NVML's reasons for a held clock that spoil a launch. A software power cap (0x04) is normal on parts with a power limit:
there it is the clock itself that is compared."""

IDLE = 0x01
"""Nothing runs, and the clock is let go: an RTX 3090 reads 0 MHz then, so such a reading is no clock of a launch."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What stays as it is while a machine runs, unless somebody sets it."""

    index: int
    """Its place on the bus, counted from 0."""
    uuid: str
    name: str
    driver: str
    cuda: str
    """Newest version of CUDA that the driver can run."""
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
    """MHz of the multiprocessors."""
    memory: int | None = None
    """Bytes."""
    instance: int | None = None
    """Number of this part of a GPU that is divided (MIG); ``None`` for a whole one."""

    @property
    def place(self) -> str:
        """``0``; of a part ``0.1``."""
        return str(self.index) if self.instance is None else f"{self.index}.{self.instance}"

    def as_json(self) -> JSON:
        return asdict(self)

    def as_machine(self) -> dict[str, str]:
        """What two runs must have in common for their times to be comparable, as a recipe's machine has it."""
        known = {
            "VBIOS": self.vbios,
            "MIG": self.mig,
            "ECC": self.ecc,
            "compute mode": self.compute_mode,
            "power limit": f"{self.power_limit:g} W" if self.power_limit is not None else None,
            "clock limit": f"{self.clock_limit:g} MHz" if self.clock_limit is not None else None,
        }
        name = f"GPU {self.place}"
        return {name: self.name} | {f"{name} {key}": str(value) for key, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What was read of a GPU at one time."""

    sm_clock: float | None = None
    """MHz."""
    memory_clock: float | None = None
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    reasons: int = 0
    """Bits: why the clock is held."""
    energy: float | None = None
    """Joules since the driver was loaded."""
    processes: frozenset[int] | None = None
    """Process ids that may compute there; in a container perhaps those of the host."""
    computing: frozenset[int] | None = None
    """Those that did since the reading before."""
    seconds: float = 0.0
    """When, on a clock that does not jump."""
    too_hot: float | None = None
    """Seconds that heat has held the clock down, since the driver was loaded."""
    capped: float | None = None
    """The same for the power limit."""


@dataclass(frozen=True, slots=True)
class GpuObservationWindow:
    """A launch as its GPU saw it."""

    readings: tuple[GpuReading, ...]
    """In time order, the first and the last at its ends."""
    xids: tuple[int, ...] = ()
    """Errors that the driver reported meanwhile."""
    lost: str = ""
    """Why the device could not be read to the end."""

    def as_json(self) -> JSON:
        """What it came to: mean clock and power, highest temperature, every reason for a held clock, joules, and for
        which part of the time heat and the power limit held the clock down."""
        powers = _known(reading.power for reading in self.readings)
        heat = _known(reading.temperature for reading in self.readings)
        reasons = 0
        for reading in self.readings:
            reasons |= reading.reasons
        return {
            "sm_clock": self.sm_clock,
            "power": sum(powers) / len(powers) if powers else None,
            "temperature": max(heat, default=None),
            "reasons": reasons,
            "energy": self.energy,
            "too_hot": self.too_hot,
            "capped": self.capped,
        }

    @property
    def sm_clock(self) -> float | None:
        """Mean MHz, of the readings in which anything ran."""
        clocks = _known(reading.sm_clock for reading in self.readings if not reading.reasons & IDLE)
        return sum(clocks) / len(clocks) if clocks else None

    @property
    def computing(self) -> frozenset[int] | None:
        """Process ids that computed meanwhile; ``None`` if nobody can tell."""
        known = [reading.computing for reading in self.readings[1:] if reading.computing is not None]
        return frozenset().union(*known) if known else None

    @property
    def energy(self) -> float | None:
        """Joules."""
        return _grown([reading.energy for reading in self.readings])

    @property
    def too_hot(self) -> float | None:
        """Share of the time that heat held the clock down; short spells between two readings count as well."""
        return self._share([reading.too_hot for reading in self.readings])

    @property
    def capped(self) -> float | None:
        """The same for the power limit."""
        return self._share([reading.capped for reading in self.readings])

    def _share(self, counted: Sequence[float | None]) -> float | None:
        grown, passed = _grown(counted), _grown([reading.seconds for reading in self.readings])
        return min(1.0, grown / passed) if grown is not None and passed else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _grown(counter: Sequence[float | None]) -> float | None:
    """Of what is counted from some day on: how much came to it."""
    first, last = (counter[0], counter[-1]) if counter else (None, None)
    return last - first if first is not None and last is not None else None
