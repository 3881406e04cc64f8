"""Compare the outputs of two sides.

A baseline keeps a sketch of each output: its shape and type, the norm of its numbers, and their sums over buckets with
random signs. The squared distance of two sketches is on average that of the outputs (Charikar, Chen & Farach-Colton 2002,
Finding frequent items in data streams). So two sketches give the distance of their outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.metrics import graphs
from tfbench.model import JSON, Case, Note, Outcome, OutputSketch, Reason, ReasonCode, Verdict, because
from tfbench.model.words import LARGEST
from tfbench.policy import Policy
from tfbench.untrusted import plural, some

PARITY_FLOOR = 1e-4
"""Smaller errors of results are rounding: sums of float32 in another order differ by 1e-7 to 1e-5."""
PARITY_LATER_FLOOR = 1e-3
"""The same for the result of a later call, after updates through which rounding grows."""
PARITY_GROWTH = 2.0
"""An error against the reference variant above the floor may grow by this factor, because rounding errors depend on the
order of a sum."""

# The raw evidence of a probing launch, from which the metrics of `tfbench.metrics.catalog` are extracted


@dataclass(frozen=True)
class Output:
    """An array of numbers in the result of a step."""

    array: NDArray[Any]
    name: str = ""
    """Its place in the result, such as ``['loss']`` or ``[1]``; empty if it is the result."""
    dtype: str = ""
    """Its type in the step. Extension types such as bfloat16 have another one in ``array``."""
    inside: str = ""
    """Types of the containers that it is in, such as ``dict list``."""
    call: int = 1
    """The call that returned it, counted from 1."""


@dataclass(frozen=True)
class ProbeOutput:
    """What the probes of one launch returned, and the parsed graphs and modules that several metrics share."""

    found: Mapping[str, JSON]
    """Probe -> its evidence."""
    absent: Mapping[str, str]
    """Probe -> why it has no evidence."""
    facts: JSON = field(default_factory=dict)
    modules: Sequence[str] = ()
    """Optimized texts of the modules that XLA compiled."""
    assignments: Sequence[str] = ()
    """Buffer assignments of the modules, if XLA wrote them."""
    results: Sequence[Output] = ()
    """Outputs of the first call and of a later one."""

    @property
    def outputs(self) -> Sequence[Output]:
        """Outputs of the first call."""
        return [output for output in self.results if output.call == 1]

    @cached_property
    def optimized(self) -> list[graphs.Node]:
        """Working nodes of all graphs as grappler left them, in which fusions have their common names."""
        return self._nodes("optimized")

    @cached_property
    def executed(self) -> list[graphs.Node]:
        """Working nodes of all graphs as the devices run them."""
        return self._nodes("executed")

    def _nodes(self, stage: str) -> list[graphs.Node]:
        return graphs.working(node for graph in self.found.get("graph", {}).get(stage, ()) for node in graph)

    @cached_property
    def _parsed_modules(self) -> list[list[graphs.Instruction]]:
        return [graphs.instructions(text) for text in self.modules]

    @cached_property
    def xla_instructions(self) -> list[graphs.Instruction]:
        """Every instruction of every module."""
        return [instruction for module in self._parsed_modules for instruction in module]

    @cached_property
    def xla_kernels(self) -> list[graphs.Instruction]:
        """The instructions of every module that run individually."""
        return [kernel for module in self._parsed_modules for kernel in graphs.kernels(module)]


# Compare the results of two variants of a workload, or of two sides of a case, output by output


PARITY = "parity"
"""The metric: largest error of an output against the reference variant's, relative to the largest number in that."""
_NAMED = 5
"""A message names at most so many outputs."""


@dataclass(frozen=True)
class Difference:
    """How an output differs from the same output of another result, the reference."""

    error: float
    """At most `LARGEST`, which also stands for another structure."""
    output: str = ""
    """Its name; empty for a result that is a single array."""
    structure: str = ""
    """In what else than numbers it differs."""
    exact: bool = False
    """Whether no rounding explains it: the output has whole numbers, truth values or texts, for which numbers stand."""
    call: int = 1
    """The call that returned the output, counted from 1."""

    def floor(self) -> float:
        """Return the largest error that is rounding."""
        return 0.0 if self.exact else PARITY_FLOOR if self.call == 1 else PARITY_LATER_FLOOR

    def note(self, note: Note = Note.RESULT, **facts: Any) -> Reason:
        """Return a note that a result differs in this."""
        exact = {"exact": True} if self.exact else {}
        call = {"call": self.call} if self.call > 1 else {}
        return because(note, error=self.error, output=self.output, structure=self.structure, **exact, **call, **facts)


def nonfinite(outputs: Sequence[Output]) -> dict[str, int]:
    """Count the numbers that are NaN or infinite, by kind."""
    real = [output.array for output in outputs if output.array.dtype.kind in "fc"]
    kinds = {"NaN": np.isnan, "Inf": np.isinf}
    return {name: n for name, which in kinds.items() if (n := sum(int(which(array).sum()) for array in real))}


def compare(result: Sequence[Output], reference: Sequence[Output]) -> Difference:
    """Compute the largest error of any output, where the error of an output is max|a - b| / max|b|.

    The error is relative to the largest number and not to each number, because numbers that cancel to nearly 0 have no
    correct digits (normwise error, Higham 2002, Accuracy and Stability of Numerical Algorithms, ch. 1). It is infinite
    if a number is NaN or infinite on one side only, and if the shapes or the numbers of outputs differ. Types and
    containers may differ, since variants have other precisions and interfaces on purpose.
    """
    names = [output.name for output in result], [output.name for output in reference]
    if len(result) != len(reference) and (structure := _other_outputs(*names)):
        return Difference(LARGEST, structure=structure)
    differences = [Difference(0.0)]
    for mine, theirs in zip(result, reference, strict=True):
        structure = _other_shape(mine.name, mine.array.shape, theirs.array.shape)
        error = LARGEST if structure else min(_error(mine.array, theirs.array), LARGEST)
        differences.append(Difference(error, mine.name, structure, _are_whole(mine.array, theirs.array)))
    return max(differences, key=lambda difference: difference.error)


def _other_outputs(mine: Sequence[str], theirs: Sequence[str]) -> str:
    """Describe another number of outputs, or outputs in other places; ``""`` if both are the same."""
    known = {"new": set(mine).difference(theirs), "missing": set(theirs).difference(mine)}
    if len(mine) == len(theirs) and not any(known.values()):
        return ""
    shown = "; ".join(f"{some(sorted(names), _NAMED)} {word}" for word, names in known.items() if names - {""})
    if len(mine) == len(theirs):
        return f"other outputs: {shown}"
    return f"{plural(len(mine), 'output')} instead of {len(theirs):,}{f': {shown}' if shown else ''}"


def _other_shape(name: str, mine: tuple[int, ...], theirs: tuple[int, ...]) -> str:
    return "" if mine == theirs else f"{_the(name)} has the shape {mine} instead of {theirs}"


def _the(name: str) -> str:
    return f"the output {name}" if name else "the output"


_WHOLE = "biu"
"""Kinds of types whose values do not round."""
_EXACT_AS_FLOAT = 1 << 53


def _are_whole(*arrays: NDArray[Any]) -> bool:
    return all(array.dtype.kind in _WHOLE for array in arrays)


def _error(mine: NDArray[Any], theirs: NDArray[Any]) -> float:
    wide = np.complex128 if "c" in (mine.dtype.kind, theirs.dtype.kind) else np.float64
    a, b = mine.astype(wide), theirs.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    difference = float(np.abs(a[finite] - b[finite]).max())
    if _are_whole(mine, theirs) and not np.array_equal(mine, theirs):
        difference = max(1.0, difference)  # as floats, large numbers may be equal
    return _relative(difference, float(np.abs(b[finite]).max()))


def _relative(difference: float, size: float) -> float:
    return 0.0 if difference == 0 else difference / size if size else math.inf


_BUCKETS = 64
"""This many buckets give the size of a difference within 10% to 20%, which suffices."""
_FEWEST, _ALL = 4, 1024
"""Buckets of each of many outputs, and of all outputs together as long as each has more than those. Four buckets
show less than a thousandth of a random difference once in 10^11."""


def sketch(outputs: Sequence[Output]) -> tuple[OutputSketch, ...]:
    """Compute the sketch of each output. An output of no more numbers than buckets is kept exactly.

    Those of the first call are the same with and without a later one. The signs come from numpy's legacy generator, whose
    stream never changes (NEP 19).
    """
    calls = sorted({output.call for output in outputs})
    if len(calls) > 1:
        return tuple(one for call in calls for one in sketch([output for output in outputs if output.call == call]))
    buckets = max(_FEWEST, min(_BUCKETS, _ALL // max(1, len(outputs))))
    most = 2 * max((output.array.size for output in outputs), default=0)  # a complex number has two
    signs = np.unpackbits(np.frombuffer(np.random.RandomState(1).bytes(most // 8 + 1), np.uint8)).astype(bool)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers
        return tuple(_sketch(output, signs, buckets) for output in outputs)


def _sketch(output: Output, signs: NDArray[np.bool_], buckets: int) -> OutputSketch:
    """Compute a sketch of at most so many buckets, in which numbers that are not finite count as 0."""
    flat = output.array.ravel()
    flat = np.concatenate([flat.real, flat.imag]) if flat.dtype.kind == "c" else flat
    whole = _are_whole(flat)
    if whole and flat.size and max(abs(int(flat.min())), abs(int(flat.max()))) > _EXACT_AS_FLOAT:
        flat = np.concatenate([flat >> 32, flat & 0xFFFFFFFF])
    numbers: NDArray[Any] = flat.astype(np.float64)
    finite = np.isfinite(numbers)
    numbers = np.where(finite, numbers, 0.0)
    signed = np.where(signs[: len(numbers)], numbers, -numbers)
    if kept := min(buckets, len(numbers)):
        signed = np.pad(signed, (0, -len(numbers) % kept)).reshape(-1, kept).sum(axis=0)
    norm = min(float(np.linalg.norm(numbers)), LARGEST)
    sums = tuple(np.nan_to_num(np.clip(signed, -LARGEST, LARGEST)).tolist())
    count = output.array.size if whole else int(finite.sum())
    return OutputSketch(output.name, output.dtype, output.array.shape, count, norm, sums, output.inside, output.call)


def sketched_differences(mine: Sequence[OutputSketch], theirs: Sequence[OutputSketch]) -> list[Difference]:
    """Estimate from sketches how each output differs, relative to the norm of the second.

    Another number of outputs, or another place of one, is a single difference. So is another shape, type, container, or
    number of finite numbers of an output. Results of later calls are compared if both are of the same call, and if the
    second has one: older baselines have none. Raises `ValueError` if the sketches of an output have different lengths.
    """
    differences = _differences(*([output for output in outputs if output.call == 1] for outputs in (mine, theirs)))
    new, old = ([output for output in outputs if output.call > 1] for outputs in (mine, theirs))
    if old and (not new or new[0].call == old[0].call):
        differences += [replace(difference, call=old[0].call) for difference in _differences(new, old)]
    return differences


def _differences(mine: Sequence[OutputSketch], theirs: Sequence[OutputSketch]) -> list[Difference]:
    """Estimate how each output of one call differs."""
    if structure := _other_outputs([output.name for output in mine], [output.name for output in theirs]):
        return [Difference(LARGEST, structure=structure)]
    differences = []
    for new, old in zip(mine, theirs, strict=True):
        structure = _other_shape(new.name, new.shape, old.shape)
        if not structure and new.dtype != old.dtype:
            structure = f"{_the(new.name)} has the type {new.dtype} instead of {old.dtype}"
        if not structure and new.inside != old.inside and new.inside and old.inside:  # older baselines lack it
            structure = f"{_the(new.name)} is in {new.inside} instead of {old.inside}"
        if not structure and new.finite != old.finite:
            structure = f"{_the(new.name)} has {new.finite:,} finite numbers instead of {old.finite:,}"
        exact = old.dtype.startswith(("bool", "int", "uint"))
        alike = len(new.sums) == len(old.sums)
        if not structure and not alike and not exact:  # large whole numbers are kept in halves
            raise ValueError(f"{_the(new.name)} has sketches of different lengths")
        # Few buckets may hide two changes behind each other's signs. The norms differ by no more than the outputs.
        distance = math.inf
        if not structure and alike:
            distance = max(math.dist(new.sums, old.sums), abs(new.norm - old.norm))
        error = min(_relative(distance, old.norm), LARGEST)
        differences.append(Difference(error, new.name, structure, exact))
    return differences


Scatter = Mapping[tuple[int, str], float]
"""Call and output -> its largest distance between launches of one side. An empty name stands for every output."""


def scatter(launches: Sequence[Sequence[OutputSketch]]) -> Scatter:
    """Map each output to its largest distance between any two launches of one side, relative to either.

    Every output of a call differs if their number does. Raises `ValueError` if a sketch has the wrong length.
    """
    errors: dict[tuple[int, str], float] = {}
    for one, other in permutations(filter(None, launches), 2):
        for difference in sketched_differences(other, one):
            place = difference.call, difference.output
            errors[place] = max(difference.error, errors.get(place, 0.0))
    return errors


def largest(differences: Sequence[Difference], scattered: Scatter, policy: Policy) -> Difference:
    """Return the largest difference that launches of one side do not show as well, or else the largest one.

    A difference of the first call outweighs those of a later one, which it explains.
    """

    def rank(difference: Difference) -> tuple[bool, int, float]:
        noise = policy.parity_scatter * scattered_by(difference, scattered)
        counts = difference.error > max(difference.floor(), noise)
        return counts, -difference.call, difference.error

    return max(differences, key=rank, default=Difference(0.0))


def scattered_by(difference: Difference, scattered: Scatter) -> float:
    """Return how far the output differs between launches of one side."""
    return max(scattered.get((difference.call, output), 0.0) for output in ("", difference.output))


def evaluate(case: Case, old: float | None, new: Difference, whose: str, policy: Policy) -> Verdict:
    """Make the verdict on the error of a result against that of ``whose``: in the baseline, if any, and now."""

    def verdict(outcome: Outcome, code: ReasonCode, *notes: Reason) -> Verdict:
        return Verdict.of(case, outcome, because(code, *notes), PARITY, launches=1, values=(old, new.error))

    if old is None:
        return verdict(Outcome.NEW, ReasonCode.NOT_IN_BASELINE, new.note(whose=whose), because(Note.NO_VALUE))
    note, floor = new.note(whose=whose, before=old), new.floor()
    if new.error > max(floor, PARITY_GROWTH * old):
        return verdict(Outcome.REGRESSED, ReasonCode.MORE, note)
    if old > max(floor, PARITY_GROWTH * new.error):
        return verdict(Outcome.IMPROVED, ReasonCode.FEWER, note)
    rounding = not new.exact and max(old, new.error) <= floor
    return verdict(Outcome.UNCHANGED, ReasonCode.SAME, new.note(whose=whose, rounding=True) if rounding else note)
