"""Record the answers of a driver, and replay them without a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, fields

from tfbench.errors import GpuError, UsageError
from tfbench.gpus.readings import Driver, GpuReading, Identity
from tfbench.model import JSON

SCHEMA = "tfbench-gpus/1"
_PROCESSES = ("processes", "computing")
"""Fields of a reading that are sets of process ids."""


class Recording:
    """A driver that forwards all queries and records the answers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.listen, self.close = driver.listen, driver.close
        self._gpus: list[Identity] = []
        self._reported: list[JSON] = []
        """Readings and errors, in time order."""

    def identities(self) -> list[Identity]:
        self._gpus = self._driver.identities()
        return self._gpus

    def reading(self, gpu: Identity) -> GpuReading:
        try:
            found = self._driver.reading(gpu)
        except GpuError as error:
            self._reported.append({"gpu": gpu.place, "lost": str(error)})
            raise
        reported = {name: value for name, value in asdict(found).items() if value is not None}
        reported |= {name: sorted(reported[name]) for name in _PROCESSES if name in reported}
        self._reported.append({"gpu": gpu.place, **reported})
        return found

    def xids(self) -> list[int]:
        found = self._driver.xids()
        self._reported += [{"xid": code} for code in found]
        return found

    def as_json(self) -> JSON:
        """Return the recording. It contains real process ids and UUIDs of the machine."""
        return {"schema": SCHEMA, "gpus": [asdict(gpu) for gpu in self._gpus], "told": self._reported}


class Replay(Driver):
    """A driver that replays a recording, reading by reading. The last reading repeats.

    Args:
        content: The JSON of `Recording.as_json`.

    Raises:
        UsageError: The content is not a recording.
    """

    def __init__(self, content: Mapping[str, object]) -> None:
        if (schema := content.get("schema")) != SCHEMA:
            raise UsageError(f"the file is not a GPU recording: its schema is {schema!r}, not {SCHEMA!r}")
        try:
            self._gpus = [Identity(**gpu) for gpu in _rows(content["gpus"])]
            reported = _rows(content["told"])
            self._xids = [int(row["xid"]) for row in reported if "xid" in row]
            self._left: dict[str, list[GpuReading | GpuError]] = defaultdict(list)
            for row in reported:
                if "xid" not in row:
                    self._left[row.pop("gpu")].append(_answer(row))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the GPU recording cannot be read: {error}") from None

    def identities(self) -> list[Identity]:
        return self._gpus

    def reading(self, gpu: Identity) -> GpuReading:
        left = self._left[gpu.place]
        if not left:
            raise GpuError(f"GPU {gpu.place} has no reading in this recording")
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, GpuError):
            raise found
        return found

    def xids(self) -> list[int]:
        found, self._xids = self._xids, []
        return found


def _answer(row: JSON) -> GpuReading | GpuError:
    if "lost" in row:
        return GpuError(row["lost"])
    if unknown := row.keys() - {field.name for field in fields(GpuReading)}:
        raise ValueError(f"a reading has the unknown field {', '.join(sorted(unknown))}")
    return GpuReading(**row | {name: frozenset(row[name]) for name in _PROCESSES if name in row})


def _rows(content: object) -> list[JSON]:
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise ValueError("it has no list of readings")
    return [dict(row) for row in content]
