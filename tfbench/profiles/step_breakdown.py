"""Where the time of a step went: ops, kernels, the stages of its input, and what is none of them.

Times are stretches that are merged, not durations that are added: what ran twice at once has been waited for once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tfbench.profiles.steps import ProfileStep
from tfbench.profiles.tfdata import Input, TfDataStage
from tfbench.profiles.xplane import DEVICE, Event, Space, Span, clipped, length, without

_OP = re.compile(r"(?P<name>.*):(?P<kind>[A-Za-z_]\w*)$")
_EAGER = "EagerLocalExecute: "
_EXECUTES = "ExecutorState::Process"
_RUNS_KERNEL = "EagerKernelExecute"
_FUNCTION = re.compile(r"__(inference|forward|backward)_|PartitionedCall$|^_?Xla(Run|Launch|Compile)|^(If|While|Case)$")
"""What only calls other ops, which have events of their own."""
_INPUT = re.compile(r"Iterator|^Optional|Dataset")
_FETCHES = re.compile(r"IteratorGetNext")
_MAKES = "MakeIterator::"
_COMPILES = re.compile(r"(XlaCompil|Compile[A-Z ]|HloPassPipeline|LLVM|BuildExecutable|CompileXlaExecutable)")
_LAUNCHES = re.compile(r"(cu|hip|cuda)(Launch|Memcpy|Memset|Graph)\w*")
_COPIES = re.compile(r"(?i)mem(cpy|set)")
_DNN = re.compile(r"^_Mkl(?:Native)?")
_NUMBERED = re.compile(r"[._]\d+$")
_TRACED = "traced-"


class TimeCategory(str, Enum):
    """What kind of time it is."""

    HOST = "host compute"
    DEVICE = "device compute"
    COPY = "device copies"
    INPUT = "waiting for input"
    LAUNCH = "kernel launch"
    COMPILE = "tracing and compilation"
    OTHER = "outside of ops"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Key:
    """What ran."""

    category: TimeCategory
    kind: str
    """Type of an op, an instruction of XLA's without its number, a kernel, or a stage of the input."""
    compiled: bool = False
    """Whether it is an instruction of XLA's."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of thing that ran in a step."""

    seconds: float
    """A step."""
    calls: float
    """A step."""
    names: tuple[str, ...]
    """Of its ops, the one that took longest first."""


@dataclass(frozen=True)
class StepSlice:
    """One step: when each kind of thing ran in it."""

    seconds: float
    spans: dict[Key, list[Span]]
    counts: dict[Key, float]
    names: dict[Key, dict[str, float]]


class StepBreakdown:
    """Of steps of one program, from one launch or from several."""

    def __init__(self, step_slices: Sequence[StepSlice]) -> None:
        self._step_slices = list(step_slices)
        self.steps = len(self._step_slices)
        self.seconds = _mean(self._step_slices)
        """Of a step, the mean."""
        keys = dict.fromkeys(key for step_slice in self._step_slices for key in step_slice.spans)
        self.parts = {key: self._part(key) for key in keys}

    def _part(self, key: Key) -> Part:
        names: dict[str, float] = defaultdict(float)
        for step_slice in self._step_slices:
            for name, seconds in step_slice.names.get(key, {}).items():
                names[name] += seconds
        return Part(
            seconds=self.covered([key]),
            calls=sum(step_slice.counts.get(key, 0.0) for step_slice in self._step_slices) / self.steps,
            names=tuple(sorted(names, key=lambda name: -names[name])),
        )

    def covered(self, keys: Iterable[Key]) -> float:
        """Seconds of a step in which at least one of these ran."""
        wanted = list(keys)
        return (
            sum(
                length([span for key in wanted for span in step_slice.spans.get(key, [])])
                for step_slice in self._step_slices
            )
            / self.steps
        )

    def spent(self, category: TimeCategory) -> float:
        """Seconds of a step of this kind; `OTHER` is what nothing else covers."""
        if category is TimeCategory.OTHER:
            return max(0.0, self.seconds - self.covered(self.parts))
        return self.covered(key for key in self.parts if key.category is category)


def trimmed(step_slices: Sequence[StepSlice], fraction: float) -> list[StepSlice]:
    """The steps of a launch without the slowest ones."""
    ordered = sorted(step_slices, key=lambda step_slice: step_slice.seconds)
    return ordered[: max(1, len(ordered) - int(fraction * len(ordered)))]


def faster_half(launches: Sequence[Sequence[StepSlice]]) -> StepBreakdown:
    """Of several launches of one program, those that were disturbed least."""
    ordered = sorted(launches, key=_mean)
    return StepBreakdown([step_slice for launch in ordered[: (len(ordered) + 1) // 2] for step_slice in launch])


def _mean(step_slices: Sequence[StepSlice]) -> float:
    return sum(step_slice.seconds for step_slice in step_slices) / len(step_slices)


def step_slices(space: Space, data: Input, steps: Sequence[ProfileStep]) -> list[StepSlice]:
    """What ran in each step."""
    ran: list[tuple[Key, str, Span, float]] = [*_inputs(data)]
    of_input = {id(event) for event in space.on_host if _is_of_input(event, data)}
    done = _with_what_follows(space)
    waited = [(root.start, root.end) for root in data.roots]
    for event, key, name in _ops(space, of_input):
        parts = [(event.start, done.get(event, event.end))]
        if _FETCHES.match(key.kind):  # what it waits for is told by stages; its own is what it does beside that
            parts = without(parts, clipped(waited, parts[0]))
        ran += [(key, name, part, 1.0 / len(parts)) for part in parts]
    found = [StepSlice(step.seconds, defaultdict(list), defaultdict(float), defaultdict(_zeros)) for step in steps]
    ends = [step.event.end for step in steps]  # steps follow each other
    for key, name, span, calls in ran:
        for number in range(bisect_right(ends, span[0]), len(steps)):
            window = steps[number].span
            if span[1] <= window[0]:
                break
            step_slice, (inside,) = found[number], clipped([span], window)
            step_slice.spans[key].append(inside)
            step_slice.counts[key] += calls if span[0] >= window[0] else 0.0
            step_slice.names[key][name] += inside[1] - inside[0]
    return found


def _zeros() -> dict[str, float]:
    return defaultdict(float)


def _inputs(data: Input) -> Iterator[tuple[Key, str, Span, float]]:
    """Waiting for input, by the stage that was waited for."""
    for root in data.roots:
        for blame in data.blames[root]:
            stage = TfDataStage(blame.stage)
            yield Key(TimeCategory.INPUT, stage.path), stage.kind, blame.span, 0.0


def _is_of_input(event: Event, data: Input) -> bool:
    """Whether it is done by or for a stage of the input, whose own events tell of it."""
    return any(data.tells_of(above) for above in (event, *event.above))


def _ops(space: Space, inside: set[int]) -> Iterator[tuple[Event, Key, str]]:
    """Ops, compiled instructions, kernels, copies, launches and compilations of all planes."""
    for plane in space.planes:
        device = plane.name.startswith(DEVICE)
        for event in plane.events:
            if event.end == event.start or id(event) in inside:
                continue
            if (found := _on_device(event) if device else _on_host(event)) is not None:
                yield event, *found


def _with_what_follows(space: Space) -> dict[Event, int]:
    """Ends of graph ops, with what the executor does for each behind it: handing its outputs on, releasing its inputs,
    and scheduling what can run now."""
    ends: dict[Event, int] = {}
    last: dict[Event, Event] = {}
    for event in space.on_host:
        if event.parent is None or not event.parent.name.startswith(_EXECUTES) or _OP.match(event.name) is None:
            continue
        if (before := last.get(event.parent)) is not None:
            ends[before] = max(before.end, event.start)
        last[event.parent] = event
        ends[event] = event.parent.end
    return ends


def _on_device(event: Event) -> tuple[Key, str] | None:
    if _COPIES.match(event.name):
        return Key(TimeCategory.COPY, event.name), event.name
    op = str(event.stats.get("tf_op") or event.stats.get("hlo_op") or "")
    kind = op.rpartition(":")[2] or _NUMBERED.sub("", op.rpartition("/")[2]) or event.name
    return Key(TimeCategory.DEVICE, kind), op.rpartition(":")[0] or op or event.name


def _on_host(event: Event) -> tuple[Key, str] | None:
    name = event.name
    if "hlo_op" in event.stats and not name.startswith("end: "):
        instruction = str(event.stats["hlo_op"])
        return Key(TimeCategory.HOST, _NUMBERED.sub("", instruction), True), instruction
    if _LAUNCHES.match(name):
        return Key(TimeCategory.LAUNCH, name), name
    if str(event.stats.get("tf_function_call", "")).startswith(_TRACED):
        return Key(TimeCategory.COMPILE, "tracing"), name
    if name.startswith(_MAKES) and not (event.parent and event.parent.name.startswith(_MAKES)):
        return Key(TimeCategory.INPUT, "MakeIterator"), name
    if _COMPILES.match(name):
        return Key(TimeCategory.COMPILE, "compilation"), name
    if name == _RUNS_KERNEL and event.parent is not None and event.parent.name.startswith(_EAGER):
        kind = event.parent.name.removeprefix(_EAGER)
        return _of_op(kind, kind)
    if (found := _OP.match(name)) is not None and event.kind == found["kind"]:
        return _of_op(found["kind"], found["name"])
    return None


def _of_op(kind: str, name: str) -> tuple[Key, str] | None:
    if _FUNCTION.search(kind):
        return None
    # oneDNN's ops are those that they stand in for: _MklMatMul is MatMul, _MklNativeFusedMatMul is _FusedMatMul.
    kind = _DNN.sub(lambda found: "_" if kind.startswith("Fused", found.end()) else "", kind)
    if _INPUT.search(kind):
        return Key(TimeCategory.INPUT, kind), name
    return Key(TimeCategory.HOST, kind), name
