"""Divide the steps of a profile by kind of time and by Python function, and attribute a slowdown to parts.

Times are covered spans, not sums of durations: concurrent work counts once.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from tfbench.model import Word
from tfbench.model.words import duration, signed
from tfbench.profiles.xplane import DEVICE, HOST, Event, Space, Span, length
from tfbench.protocol import Sampled

# Compare sampled profiles of Python functions, and memory by keeper, of two sides


HALF = 0.5
"""A function that holds half of a slowdown is its cause: at most one path through the stack does."""
FEWEST = 50
"""Samples below which a share has an error of more than 7%."""
_STEP = 0.5
"""Mean depth on the stack below which a function is the step itself, which is no cause."""
_GENERATED = ("autograph_generated", "importlib._bootstrap")
"""Modules whose names do not lead to code that a user could change."""
KEEPERS = {
    "python": "held by Python objects",
    "native": "held by TensorFlow and other libraries outside Python",
    "retained": "freed, and kept by the C library's allocator",
}


class Grown(NamedTuple):
    """A function in which a call spends more time than before."""

    function: str
    before: float
    """Seconds per call inside it."""
    now: float
    share: float
    """Fraction of the slowdown. Above 1 if another function became faster."""
    calls: tuple[float, float]
    """Seconds of a sampled call, before and now. Sampling slows a call down, so that a raced call may be shorter."""


def _inside(profile: Sampled) -> tuple[float, dict[str, tuple[float, float]]]:
    """Return the seconds of a call, and function -> its mean depth on the stack, and the seconds per call inside it.

    Modules of Keras are named as before 2.13, which moved all of them into ``keras.src``.
    """
    call = profile.seconds / max(1, profile.calls)
    return call, {
        name.replace("keras.src.", "keras."): (depths / max(1, count), call * count / max(1, profile.samples))
        for name, (count, depths) in profile.functions.items()
    }


def grown(before: Sampled, now: Sampled, enough: float = 0.0) -> Grown | None:
    """Return the deepest function that holds half of the slowdown, ``None`` without a slowdown or enough samples.

    The samples must show a slowdown of ``enough``, a fraction. Otherwise they do not show the raced one.
    """
    (was, old), (became, new) = _inside(before), _inside(now)
    slowdown = became - was
    if slowdown <= 0 or slowdown < enough * was or min(before.samples, now.samples) < FEWEST:
        return None
    causes = []
    for function, (depth, inside) in new.items():
        _, then = old.get(function, (0.0, 0.0))
        share = (inside - then) / slowdown
        if share >= HALF and depth >= _STEP and not any(part in function for part in _GENERATED):
            causes.append((depth, Grown(function, then, inside, share, (was, became))))
    return max(causes)[1] if causes else None


def describe(cause: Grown, raced: float | None = None) -> str:
    """Describe it: ``Python: a.b takes 3.10 ms of a sampled call of 4.00 ms, and 200 µs of 1.00 ms before; 97% of its slowdown``.

    The text has the ``raced`` slowdown, a fraction, beside the sampled one, which it does not bound.
    """
    (was, call_before), (takes, call) = zip((cause.before, cause.now), cause.calls, strict=True)
    before = f", and {duration(was)} of {duration(call_before)} before" if was else ", and did not run before"
    text = f"Python: {cause.function} takes {duration(takes)} of a sampled call of {duration(call)}{before}"
    return f"{text}; {of_slowdown(cause.share, call / call_before - 1, raced)}"


def of_slowdown(share: float, seen: float, raced: float | None) -> str:
    """Say which share of a slowdown something holds, at most all of it: ``97% of its slowdown (+20%, raced: +5.8%)``.

    Args:
        seen: The slowdown of the profiled or sampled steps, as a fraction.
        raced: That of the race, ``None`` without one. Profiles add to the time of a step, so that they may show more.
    """
    both = f" ({signed(seen)}, raced: {signed(raced)})" if raced is not None else ""
    return f"{min(1.0, share):.0%} of its slowdown{both}"


def _allocated(before: Sampled, now: Sampled) -> list[str]:
    """Describe the lines of Python whose memory grew: ``allocated at a/b.py:12: 6.1 MiB more than before``."""
    old = before.memory.get("lines", {})
    lines = now.memory.get("lines", {}).items()
    most = sorted((((size - old.get(line, 0)) / (1 << 20), line) for line, size in lines), reverse=True)
    return [f"allocated at {line}: {more:.1f} MiB more than before" for more, line in most if more >= 1]


def memory_lines(before: Sampled, now: Sampled) -> list[str]:
    """Describe which keepers of memory grew, the one that grew most first, and the lines of Python that hold it."""
    sizes = {name: now.memory.get(name, 0.0) - before.memory.get(name, 0.0) for name in KEEPERS}
    lines = []
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1]):
        if size >= 1 << 20:  # an arena of the allocator
            was, became = (side.memory.get(name, 0.0) / (1 << 20) for side in (before, now))
            lines.append(f"memory {KEEPERS[name]}: {became:.0f} MiB gained instead of {was:.0f} MiB")
    return [*lines, *(_allocated(before, now) if lines else [])]


# Find the calls of tf.data's stages for their next elements, and the functions that stages run


_STAGE = re.compile(r"\w*Iterator::")
_ROOT = "Iterator::Root"
_LOOPS = ("ReduceIterator::Root", "ReduceIterator::Root::Scan")
"""AutoGraph's ``for`` over a dataset. The function of the scan is the body of the loop, not part of the input."""
_CALLS = re.compile(r"\w*Iterator::|(Instantiated)?CapturedFunction::Run")
"""Names of the calls of stages, and of the functions that stages run."""


class Input:
    """The tf.data pipelines of one profile."""

    def __init__(self, space: Space) -> None:
        self.waits: list[Event] = []
        """The program's calls for its next elements."""
        self._functions = set[object]()
        """Ids of the functions that stages run. On shared threads, other events carry them."""
        for event in (event for plane in space.planes for event in plane.events if _CALLS.match(event.name)):
            called = any(map(_is_call, event.above))
            looped = not called and any(above.name in _LOOPS for above in event.above)
            if _is_call(event) and (looped or (event.name == _ROOT and not called)):
                self.waits.append(event)
            elif not looped and not _STAGE.match(event.name) and "id" in event.stats:
                self._functions.add(event.stats["id"])

    def covers(self, event: Event) -> bool:
        """Whether an event is a call of a stage, or the execution of a function for one."""
        return _is_call(event) or event.stats.get("id") in self._functions


def _is_call(event: Event) -> bool:
    return "Iterator::" in event.name and _STAGE.match(event.name) is not None and event.name not in _LOOPS


# Break a step down into ops, kernels, its input, and the rest


_OP = re.compile(r"(?P<name>.*):(?P<kind>[A-Za-z_]\w*)$")
_EAGER = "EagerLocalExecute: "
_EXECUTES = "ExecutorState::Process"
_FUNCTION = re.compile(r"__(inference|forward|backward)_|PartitionedCall$|^_?Xla(Run|Launch|Compile)|^(If|While|Case)$")
"""Ops that only call other ops, which have their own events."""
_INPUT = re.compile(r"Iterator|^Optional|Dataset")
_FETCHES = "IteratorGetNext"
_MAKES = "MakeIterator::"
_COMPILES = re.compile(r"(XlaCompil|Compile[A-Z ]|HloPassPipeline|LLVM|BuildExecutable|CompileXlaExecutable)")
_LAUNCHES = re.compile(r"(cu|hip|cuda)(Launch|Memcpy|Memset|Graph)\w*")
_COPIES = re.compile(r"(?i)mem(cpy|set)")
_DNN = re.compile(r"^_Mkl(?:Native)?")
_NUMBERED = re.compile(r"[._]\d+$")


TRIM = 0.2
"""Share of a launch's steps, the slowest, that is left out: a disturbance makes a step slower. It is not larger, because a
pipeline may wait in one step of several."""
SMALLEST = 0.1
"""Share of the slowdown from which a growth is a cause. Smaller ones are within the noise of profiles."""
MOST_SHOWN = 1.0
"""Slowdown that always suffices: twice the time. Profiling adds to the time of the fast side, so that a step that became
hundreds of times slower shows a much smaller ratio."""


def must_show(raced: float | None) -> float:
    """Return the slowdown that profiles or samples must show to explain a raced one, both as fractions."""
    return min(HALF * (raced or 0.0), MOST_SHOWN)


class TimeCategory(Word):
    """Category of time in a step."""

    HOST = "host compute"
    DEVICE = "device compute"
    COPY = "device copies"
    INPUT = "waiting for input"
    LAUNCH = "kernel launch"
    COMPILE = "tracing and compilation"
    OTHER = "outside of ops"


@dataclass(frozen=True, slots=True)
class Key:
    """A kind of work in a step."""

    category: TimeCategory
    kind: str
    """Type of an op, an XLA instruction without its number, or a kernel."""
    compiled: bool = False
    """Whether it is an XLA instruction."""


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one kind per step."""

    seconds: float
    calls: float
    names: tuple[str, ...]
    """Names of its ops, the longest first."""


@dataclass(frozen=True)
class StepSlice:
    """One step: the spans of each kind of work."""

    seconds: float
    spans: dict[Key, list[Span]]
    counts: dict[Key, float]
    names: dict[Key, dict[str, float]]


class StepBreakdown:
    """Mean breakdown of the steps of one program, from one or more launches."""

    def __init__(self, step_slices: Sequence[StepSlice]) -> None:
        self._slices = step_slices
        self.seconds = _mean(step_slices)
        """Mean per step."""
        self.parts = {
            key: self._part(key) for key in dict.fromkeys(key for step_slice in step_slices for key in step_slice.spans)
        }

    def _part(self, key: Key) -> Part:
        names: dict[str, float] = defaultdict(float)
        for step_slice in self._slices:
            for name, seconds in step_slice.names.get(key, {}).items():
                names[name] += seconds
        calls = fmean(step_slice.counts.get(key, 0.0) for step_slice in self._slices)
        return Part(self.covered([key]), calls, tuple(sorted(names, key=lambda name: -names[name])))

    def covered(self, keys: Iterable[Key]) -> float:
        """Return the mean seconds per step in which at least one of these kinds ran."""
        wanted = list(keys)
        return fmean(
            length([span for key in wanted for span in step_slice.spans.get(key, [])]) for step_slice in self._slices
        )

    def spent(self, category: TimeCategory) -> float:
        """Return the mean seconds per step of a category. `OTHER` is the time that no other category covers."""
        if category is TimeCategory.OTHER:
            return max(0.0, self.seconds - self.covered(self.parts))
        return self.covered(key for key in self.parts if key.category is category)


def trimmed(step_slices: Sequence[StepSlice]) -> list[StepSlice]:
    """Drop the slowest steps of a launch."""
    ordered = sorted(step_slices, key=lambda step_slice: step_slice.seconds)
    return ordered[: max(1, len(ordered) - int(TRIM * len(ordered)))]


def faster_half(launches: Sequence[Sequence[StepSlice]]) -> StepBreakdown:
    """Keep the faster half of several launches of one program, which were disturbed least."""
    ordered = sorted(launches, key=_mean)
    return StepBreakdown([step_slice for launch in ordered[: (len(ordered) + 1) // 2] for step_slice in launch])


def _mean(step_slices: Iterable[StepSlice]) -> float:
    return fmean(step_slice.seconds for step_slice in step_slices)


def step_slices(space: Space, steps: Sequence[Event]) -> list[StepSlice]:
    """Collect the work in each step."""
    slices = [
        StepSlice(step.seconds, defaultdict(list), defaultdict(float), defaultdict(lambda: defaultdict(float)))
        for step in steps
    ]
    starts, ends = [step.start for step in steps], [step.end for step in steps]  # steps follow each other
    for key, name, span, calls in _work(space, Input(space)):
        low, high = bisect_right(ends, span[0]), bisect_left(starts, span[1])
        for step, step_slice in zip(steps[low:high], slices[low:high], strict=True):
            inside = max(span[0], step.start), min(span[1], step.end)
            step_slice.spans[key].append(inside)
            step_slice.counts[key] += calls if span[0] >= step.start else 0.0
            step_slice.names[key][name] += inside[1] - inside[0]
    return slices


def _work(space: Space, data: Input) -> Iterator[tuple[Key, str, Span, float]]:
    """Yield all work of a profile: its kind, name and span, and the calls that the span stands for."""
    for wait in data.waits:
        yield Key(TimeCategory.INPUT, _FETCHES), _FETCHES, wait.span, 0.0
    ends_of_ops = _op_ends(space)
    for plane in space.planes:
        read = _on_device if plane.name.startswith(DEVICE) else _on_host
        for event in plane.events:
            if event.end == event.start or (named := read(event)) is None:
                continue
            # The calls of the program account for all work of the input.
            if plane.name.startswith(HOST) and any(data.covers(outer) for outer in (event, *event.above)):
                continue
            yield *named, (event.start, ends_of_ops.get(event, event.end)), 1.0


def _op_ends(space: Space) -> dict[Event, int]:
    """Extend graph ops by the executor's work after each: handing on outputs, releasing inputs, scheduling other ops."""
    ends: dict[Event, int] = {}
    last: dict[Event, Event] = {}
    for event in space.on_host:
        if event.parent is not None and event.parent.name.startswith(_EXECUTES) and _OP.match(event.name):
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
    name, above = event.name, event.parent.name if event.parent else ""
    if "hlo_op" in event.stats and not name.startswith("end: "):
        instruction = str(event.stats["hlo_op"])
        return Key(TimeCategory.HOST, _NUMBERED.sub("", instruction), True), instruction
    if _LAUNCHES.match(name):
        return Key(TimeCategory.LAUNCH, name), name
    if str(event.stats.get("tf_function_call", "")).startswith("traced-"):
        return Key(TimeCategory.COMPILE, "tracing"), name
    if name.startswith(_MAKES) and not above.startswith(_MAKES):
        return Key(TimeCategory.INPUT, "MakeIterator"), name
    if _COMPILES.match(name):
        return Key(TimeCategory.COMPILE, "compilation"), name
    if name == "EagerKernelExecute" and above.startswith(_EAGER):
        kind = name = above.removeprefix(_EAGER)
    elif (match := _OP.match(name)) is not None and event.kind == match["kind"]:
        kind, name = match["kind"], match["name"]
    else:
        return None
    if _FUNCTION.search(kind):
        return None
    # oneDNN's ops count as the ops that they replace: _MklMatMul as MatMul, _MklNativeFusedMatMul as _FusedMatMul.
    kind = _DNN.sub(lambda match: "_" if kind.startswith("Fused", match.end()) else "", kind)
    return Key(TimeCategory.INPUT if _INPUT.search(kind) else TimeCategory.HOST, kind), name


# Attribute a slowdown to its causes: compare the step breakdowns of two sides


_FUSED = re.compile(r"^_Fused(?P<base>\w+)$")
_FUSIBLE = re.compile(
    r"^(BiasAdd|Add(V2|N)?|Sub|Mul|Relu6?|Elu|LeakyRelu|Tanh|Sigmoid|Gelu|Erf|Squeeze|FusedBatchNorm(V\d)?|Pad)$"
)
"""Ops that grappler's remapper merges into a fused op, see its ``remapper.cc``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that takes longer per step than before."""

    category: TimeCategory
    kinds: tuple[str, ...]
    """The kinds that grew: several if they replace others."""
    instead: tuple[str, ...]
    """The kinds that they replace, such as a fused op. Usually empty."""
    grew: float
    """Seconds per step."""
    share: float
    """Fraction of the slowdown."""
    calls: tuple[float, float] = (0.0, 0.0)
    """Per step, before and now."""
    new: tuple[str, ...] = ()
    """Names of ops that did not run before."""
    after: str = ""
    """What ``instead`` was before it disappeared: ``fused`` or ``compiled``."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The causes of a slowdown."""

    before: float
    """Seconds per step."""
    now: float
    causes: tuple[Cause, ...]
    """Causes above the threshold, the largest first."""
    spent: tuple[tuple[TimeCategory, float, float], ...]
    """Categories with their seconds per step, before and now. The one that grew most comes first."""


class _Group(NamedTuple):
    """Kinds that are one cause."""

    keys: tuple[Key, ...]
    instead: tuple[Key, ...] = ()
    after: str = ""


def attribute(before: StepBreakdown, now: StepBreakdown) -> Attribution:
    """Compare two step breakdowns."""

    def grown(*keys: Key) -> float:
        return now.covered(keys) - before.covered(keys)

    slowdown = now.seconds - before.seconds
    spent = [(category, before.spent(category), now.spent(category)) for category in TimeCategory]
    causes: list[Cause] = []
    if slowdown > 0:
        enough = SMALLEST * slowdown
        groups = [group for group in _groups(before, now) if grown(*group.keys, *group.instead) >= enough]
        causes = [_cause(group, before, now, grown(*group.keys, *group.instead), slowdown) for group in groups]
        outside = now.spent(TimeCategory.OTHER) - before.spent(TimeCategory.OTHER)
        if outside >= enough:
            causes.append(Cause(TimeCategory.OTHER, (), (), outside, outside / slowdown))
    return Attribution(
        before=before.seconds,
        now=now.seconds,
        causes=tuple(sorted(causes, key=lambda cause: -cause.grew)),
        spent=tuple(sorted(spent, key=lambda span: span[1] - span[2])),
    )


def _cause(group: _Group, before: StepBreakdown, now: StepBreakdown, grew: float, slowdown: float) -> Cause:
    nothing = Part(0.0, 0.0, ())
    known = {name for key in group.keys for name in before.parts.get(key, nothing).names}
    longest = sorted(group.keys, key=lambda key: -now.parts.get(key, nothing).seconds)
    names = [name for key in longest for name in now.parts.get(key, nothing).names]
    return Cause(
        category=longest[0].category, kinds=tuple(key.kind for key in longest),
        instead=tuple(key.kind for key in group.instead), grew=grew, share=grew / slowdown,
        calls=(_calls(before, *group.keys), _calls(now, *group.keys)),
        new=tuple(name for name in names if name not in known), after=group.after,
    )  # fmt: skip


def _calls(breakdown: StepBreakdown, *keys: Key) -> float:
    return sum(breakdown.parts[key].calls for key in keys if key in breakdown.parts)


def _groups(before: StepBreakdown, now: StepBreakdown) -> list[_Group]:
    """Divide all kinds into groups. A kind that others replace is in the group of these."""
    left = list(dict.fromkeys([*now.parts, *before.parts]))
    groups: list[_Group] = []
    more = {key for key in left if _calls(now, key) > _calls(before, key) + 0.5}
    fewer = [key for key in left if _calls(now, key) < _calls(before, key) - 0.5]
    compiled = [key for key in left if key.compiled]
    if compiled and not any(key in now.parts for key in compiled):
        others = [key for key in left if key in more and not key.compiled]
        groups.append(_Group(tuple(others), tuple(compiled), "compiled"))
        left = [key for key in left if key not in others and key not in compiled]
    for key in fewer:
        if key in left and (match := _FUSED.match(key.kind)) is not None:
            base = match["base"]
            parts = [other for other in left if other in more and (other.kind == base or _FUSIBLE.match(other.kind))]
            if any(part.kind == base for part in parts):
                groups.append(_Group(tuple(parts), (key,), "fused"))
                left = [other for other in left if other is not key and other not in parts]
    return [*groups, *(_Group((key,)) for key in left)]
