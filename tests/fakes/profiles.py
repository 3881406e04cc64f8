"""Builds profiles in the profiler's own format, message by message."""

from __future__ import annotations

from pathlib import Path

from tfbench.profiles.xplane import _module

MICRO = 1_000_000
"""Picoseconds."""


class Built:
    """Builder of an XSpace. Times are microseconds."""

    def __init__(self, host: str = "somewhere") -> None:
        self.space = _module("xplane_pb2").XSpace()
        self.space.hostnames.append(host)
        self.host = host

    def plane(self, name: str, **stats: object):
        plane = self.space.planes.add(name=name, id=len(self.space.planes))
        for key, value in stats.items():
            self._stat(plane, plane.stats.add(), key, value)
        return plane

    def line(self, plane, name: str):
        return plane.lines.add(name=name, id=len(plane.lines) + 1)

    def event(self, plane, line, name: str, start: float, length: float, kind: str = "", **stats: object) -> None:
        event = line.events.add(
            metadata_id=self._number(plane.event_metadata, name, kind),
            offset_ps=round(start * MICRO),
            duration_ps=round(length * MICRO),
        )
        for key, value in stats.items():
            self._stat(plane, event.stats.add(), key, value)

    def steps(self, count: int = 5, length: float = 1000, name: str = "step"):
        """Add marked steps on a separate thread, one every ``length`` µs."""
        plane = self.plane("/host:CPU")
        line = self.line(plane, "python")
        for number in range(count):
            self.event(plane, line, name, number * length, length * 0.9, step_num=number, _r=1)
        return plane, line

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.host}.xplane.pb"
        for plane in self.space.planes:
            for line in plane.lines:  # xprof expects events in order, as the profiler writes them
                events = sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps))
                ordered = [type(event).FromString(event.SerializeToString()) for event in events]
                del line.events[:]
                line.events.extend(ordered)
        path.write_bytes(self.space.SerializeToString())
        return path

    @staticmethod
    def _number(table, name: str, kind: str = "") -> int:
        for number, known in table.items():
            if known.name == name:
                return number
        number = len(table) + 1
        table[number].id, table[number].name = number, name
        if kind:
            table[number].display_name = kind
        return number

    def _stat(self, plane, stat, key: str, value: object) -> None:
        stat.metadata_id = self._number(plane.stat_metadata, key)
        if isinstance(value, str):
            stat.str_value = value
        elif isinstance(value, int):
            stat.int64_value = value
        else:
            stat.double_value = value
