"""The rounds of a case on one side, small enough to stay in a report: rounded to 0.1% and thinned."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tfbench.model.case import JSON
from tfbench.model.measurement import Sample

MOST = 400
"""Stored rounds of a case and side, at most. A picture shows no more, and a report of ten thousand cases stays below
20 MB."""
LARGEST = 100_000
"""Stored rounds that a report of any origin may state."""
STEP = 1e-3
"""Size of a step, as a natural logarithm: times are rounded to 0.1% of the median, far below their noise."""
_REACH = (1 << 15) - 1
"""Steps that a stored number can be away from the median, a factor of e to the 32nd."""


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """The rounds of one case on one side, in time order."""

    case: str
    side: str
    """``baseline`` or ``contender``."""
    median_seconds: float
    """Median of all rounds, before they were thinned."""
    launches: tuple[int, ...]
    """Stored rounds of each launch."""
    every: int
    """One of so many rounds is stored. It is the same on both sides, so stored rounds of both sides were paired."""
    steps: str
    """The distances to the median in steps, zigzag-coded as 16-bit integers, all low bytes before all high bytes,
    compressed with zlib, as base64."""

    @staticmethod
    def of_sample(sample: Sample, side: str) -> StoredRounds:
        """Round and thin a sample that has at least one launch."""
        middle = median(sample.seconds)
        every = -(-len(sample.seconds) // MOST)
        kept = [run.seconds[::every] for run in sample.runs]
        steps = [round(math.log(one / middle) / STEP) for run in kept for one in run]
        codes = array("H", (_zigzag(max(-_REACH, min(_REACH, step))) for step in steps))
        planes = bytes(code & 255 for code in codes) + bytes(code >> 8 for code in codes)
        text = base64.b64encode(zlib.compress(planes)).decode()
        return StoredRounds(sample.case.name, side, middle, tuple(map(len, kept)), every, text)

    @property
    def seconds(self) -> tuple[tuple[float, ...], ...]:
        """Seconds per iteration of the stored rounds of each launch.

        Raises:
            ValueError: ``steps`` is damaged, or does not fit ``launches``.
        """
        times = (self.median_seconds * math.exp(STEP * step) for step in self._decoded())
        return tuple(tuple(next(times) for _ in range(size)) for size in self.launches)

    def check(self) -> None:
        """Raise ValueError if the stored rounds cannot be decoded."""
        if sum(self.launches) > LARGEST:
            raise ValueError(f"{sum(self.launches)} rounds, more than {LARGEST}")
        self._planes()

    def _decoded(self) -> Iterator[int]:
        planes, size = self._planes(), sum(self.launches)
        for low, high in zip(planes[:size], planes[size:], strict=True):
            code = low | high << 8
            yield code >> 1 ^ -(code & 1)

    def _planes(self) -> bytes:
        size = 2 * sum(self.launches)
        inflate = zlib.decompressobj()
        try:
            planes = inflate.decompress(base64.b64decode(self.steps, validate=True), size + 1)
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"its rounds are damaged: {error}") from None
        if len(planes) != size:
            raise ValueError(f"it has not the {size // 2} rounds that it states")
        return planes

    def as_json(self) -> JSON:
        return {
            "case": self.case,
            "side": self.side,
            "median_seconds": self.median_seconds,
            "launches": list(self.launches),
            "every": self.every,
            "steps": self.steps,
        }


def _zigzag(step: int) -> int:
    """Code small distances of either sign as small numbers: 0, -1, 1, -2 as 0, 1, 2, 3."""
    return step << 1 if step >= 0 else (-step << 1) - 1


def by_side(rounds: Sequence[StoredRounds]) -> dict[str, dict[str, StoredRounds]]:
    """Map the name of a case to its rounds by side."""
    found: dict[str, dict[str, StoredRounds]] = {}
    for one in rounds:
        found.setdefault(one.case, {})[one.side] = one
    return found
