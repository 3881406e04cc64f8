"""Read the XPlane file of a profile into plain objects: planes, lines and nested events.

The message types are TensorFlow's (``tensorflow/tsl/profiler/protobuf/xplane.proto``). Their module is loaded alone, in
milliseconds, because importing TensorFlow takes seconds.
"""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfbench.errors import ProfileError

HOST = "/host:CPU"
DEVICE = "/device:"
_NOISE = "ThreadpoolListener::"
"""Events of no duration which only say that a thread was woken."""
_PLACES = ("tsl/profiler/protobuf", "core/profiler/protobuf")
"""Where versions of TensorFlow keep the message types, the newest first."""


@dataclass(slots=True, eq=False)
class Event:
    """An event on one thread or stream.

    ``start`` and ``end`` are picoseconds since the profile's epoch. ``stats`` are the values recorded with the event.
    """

    name: str
    kind: str
    """The profiler's short name, such as the type of an op. Often empty."""
    start: int
    end: int
    stats: Mapping[str, Any]
    parent: Event | None = field(default=None, repr=False)
    """The event of the same line that contains this one."""

    @property
    def above(self) -> Iterator[Event]:
        """The events that contain this one, the nearest first."""
        event = self.parent
        while event is not None:
            yield event
            event = event.parent

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def seconds(self) -> float:
        return (self.end - self.start) * 1e-12


@dataclass(frozen=True)
class Plane:
    """A host or a device."""

    name: str
    events: Sequence[Event]
    """Those of each thread or stream, one after the other, sorted by start, containing ones first."""


@dataclass(frozen=True)
class Space:
    """One profile of one process."""

    planes: Sequence[Plane]
    errors: Sequence[str] = ()

    def of(self, prefix: str) -> list[Plane]:
        """Return the planes whose names start with a prefix."""
        return [plane for plane in self.planes if plane.name.startswith(prefix)]

    @property
    def on_host(self) -> Iterator[Event]:
        """The events of the host's threads."""
        return (event for plane in self.of(HOST) for event in plane.events)


def load(path: Path) -> Space:
    """Read an XPlane file. Raises `ProfileError` if it cannot be read, was cut short or damaged, or is another kind of file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}") from None
    if not content:
        raise ProfileError(f"{path} is empty: the profiled process ended too early; profile the case again")
    message = _module("xplane_pb2").XSpace()
    try:
        message.ParseFromString(content)
    except Exception as error:  # each implementation of protobuf raises its own classes
        begins = content.startswith(b"\n")  # the tag of a plane
        fault = "was cut short, or is damaged; profile again" if begins else "is no XPlane file; name another folder"
        raise ProfileError(f"{path} {fault} ({type(error).__name__})") from None
    planes = [_plane(plane) for plane in message.planes]
    if not planes:
        raise ProfileError(f"{path} holds no profile: it has no plane; profile the case again")
    return Space(planes, tuple(message.errors))


NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler had no access: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, or start the container with --cap-add=SYS_ADMIN. Also check "
    "that libcupti of TensorFlow's CUDA version is found (the log shows CUPTI_ERROR_INSUFFICIENT_PRIVILEGES or similar)"
)
NO_MARKER = (
    "the profile has no step marker: put each step, with the fetching of its input, "
    "into tf.profiler.experimental.Trace('step', step_num=n, _r=1)"
)


def steps_of(space: Space) -> list[Event]:
    """Return the marked steps in order, without the first of several, during which the profiler starts.

    Raises `ProfileError` if no step is marked.
    """
    steps = [event for event in space.on_host if "step_num" in event.stats and event.stats.get("_r") == 1]
    if not steps:
        raise ProfileError(NO_MARKER)
    steps.sort(key=lambda step: step.start)
    return steps[1:] or steps


@cache
def _module(name: str) -> Any:
    """Load one of TensorFlow's modules with message types; raises `ProfileError` without TensorFlow or the module."""
    module = importlib.util.find_spec("tensorflow")
    if module is None or module.origin is None:
        raise ProfileError("reading a profile takes TensorFlow's description of the format: install tensorflow here")
    package = Path(module.origin).parent
    for place in _PLACES:
        path = package / place / f"{name}.py"
        if path.exists():
            return SimpleNamespace(**runpy.run_path(str(path)))
    raise ProfileError(f"the TensorFlow in {package} has no description of the profile format ({name})")


def _plane(plane: Any) -> Plane:
    names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}

    def stats(message: Any) -> dict[str, Any]:
        modules: dict[str, Any] = {}
        for stat in message.stats:
            kind = stat.WhichOneof("value")
            value = getattr(stat, kind) if kind else None
            modules[names.get(stat.metadata_id, "")] = names.get(value, "") if kind == "ref_value" else value
        return modules

    kinds = {
        number: (metadata.name, metadata.display_name, stats(metadata))
        for number, metadata in plane.event_metadata.items()
    }
    events = list[Event]()
    for line in plane.lines:
        own = []
        for event in line.events:
            name, short, always = kinds.get(event.metadata_id, ("", "", {}))
            if not name.startswith(_NOISE):
                start = line.timestamp_ns * 1000 + event.offset_ps
                own.append(Event(name, short, start, start + event.duration_ps, {**always, **stats(event)}))
        events += nested(own)
    return Plane(plane.name, events)


def nested(events: list[Event]) -> list[Event]:
    """Sort the events of a line by start, and set the parent of each."""
    events.sort(key=lambda event: (event.start, -event.end))
    open_: list[Event] = []
    for event in events:
        while open_ and (open_[-1].end <= event.start or open_[-1].end < event.end):
            open_.pop()
        event.parent = open_[-1] if open_ else None
        if event.end > event.start:
            open_.append(event)
    return events


Span = tuple[int, int]
"""Start and end, in picoseconds."""


def length(spans: Iterable[Span]) -> float:
    """Return the seconds covered by at least one span."""
    covered = last = 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, last))
        last = max(last, end)
    return covered * 1e-12
