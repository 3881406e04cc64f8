"""Compare the results of two variants of a workload, or of two sides of a case.

A baseline keeps a sketch of a result: the norm of its numbers, and their sums over 64 buckets with random signs. The
squared distance of two sketches is on average that of the results (Charikar, Chen & Farach-Colton 2002, Finding
frequent items in data streams). So two sketches give the distance of their results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.model import Case, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy

PARITY = "parity"
"""The metric: largest error of the result against the reference variant's, relative to the largest number in that."""
Arrays = Sequence[NDArray[Any]]
_SHAPES = 5
"""A message shows at most so many shapes of a result."""


def nonfinite(arrays: Arrays) -> dict[str, int]:
    """Count the numbers that are NaN or infinite, by kind."""
    real = [array for array in arrays if array.dtype.kind in "fc"]
    kinds = {"NaN": np.isnan, "Inf": np.isinf}
    return {name: n for name, which in kinds.items() if (n := sum(int(which(array).sum()) for array in real))}


def error(result: Arrays, reference: Arrays) -> float:
    """Compute the largest error of any array, where the error of an array is max|a - b| / max|b|.

    The error is relative to the largest number and not to each number, because numbers that cancel to nearly 0 have no
    correct digits (normwise error, Higham 2002, Accuracy and Stability of Numerical Algorithms, ch. 1). It is infinite
    if a number is NaN or infinite on one side only. Raises `ValueError` if the shapes of the results differ.
    """
    shapes = [[array.shape for array in arrays] for arrays in (result, reference)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the shapes of the results differ: {_listed(shapes[0])} and {_listed(shapes[1])}")
    return max((_error(mine, theirs) for mine, theirs in zip(result, reference, strict=True)), default=0.0)


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    """Format shapes for people: the first ones, and the number of the others."""
    shown = ", ".join(map(str, shapes[:_SHAPES]))
    others = f", and {len(shapes) - _SHAPES:,} more" if len(shapes) > _SHAPES else ""
    return f"[{shown}{others}]"


def _error(mine: NDArray[Any], theirs: NDArray[Any]) -> float:
    wide = np.complex128 if "c" in (mine.dtype.kind, theirs.dtype.kind) else np.float64
    a, b = mine.astype(wide), theirs.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    return _relative(float(np.abs(a[finite] - b[finite]).max()), float(np.abs(b[finite]).max()))


def _relative(difference: float, size: float) -> float:
    if difference == 0:
        return 0.0
    return difference / size if size else math.inf


_BUCKETS = 64
"""This many buckets give the size of a difference within 10% to 20%, which suffices."""


def sketch(arrays: Arrays) -> tuple[float, ...]:
    """Compute the norm of all finite numbers, then the buckets; empty without numbers.

    The signs come from numpy's legacy generator, whose stream never changes (NEP 19).
    """
    flat = [array.ravel() for array in arrays if array.size]
    if not flat:
        return ()
    parts = [np.concatenate([part.real, part.imag]) if part.dtype.kind == "c" else part for part in flat]
    numbers = np.nan_to_num(np.concatenate([part.astype(np.float64) for part in parts]), posinf=0.0, neginf=0.0)
    signs = np.unpackbits(np.frombuffer(np.random.RandomState(1).bytes(len(numbers) // 8 + 1), np.uint8))
    signed = np.where(signs[: len(numbers)], numbers, -numbers)
    buckets = np.pad(signed, (0, -len(signed) % _BUCKETS)).reshape(-1, _BUCKETS).sum(axis=0)
    return (float(np.linalg.norm(numbers)), *map(float, buckets))


def sketched_error(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Estimate the distance of two results, relative to the norm of the second, from their sketches.

    Raises `ValueError` if a sketch has the wrong length.
    """
    if len(mine) != _BUCKETS + 1 or len(theirs) != _BUCKETS + 1:
        raise ValueError(f"a sketch has a norm and {_BUCKETS} buckets")
    return _relative(math.dist(mine[1:], theirs[1:]), theirs[0])


def scatter(sketches: Sequence[Sequence[float]]) -> float:
    """Return the largest distance of a launch's result from the first launch's of the same side, 0 without results.

    Raises:
        ValueError: A sketch has the wrong length.
    """
    first, *others = sketches
    return max((min(sketched_error(other, first), LARGEST) for other in others if other and first), default=0.0)


LARGEST = 1e300
"""Represents an infinite error in files, because JSON has no infinity."""


def evaluate(case: Case, old: float | None, new: float, whose: str, policy: Policy) -> Verdict:
    """Make the verdict on the error of a result against that of ``whose``: in the baseline, if any, and now."""

    def verdict(outcome: Outcome, code: ReasonCode, text: str) -> Verdict:
        return Verdict(case, outcome, Reason(code, text), PARITY, launches=1, values=(old, new))

    text = f"differs from {whose} by {describe(new)}"
    if old is None:
        return verdict(Outcome.NEW, ReasonCode.NOT_IN_BASELINE, f"{text}; no value in the baseline")
    compared = f"{text}, by {describe(old)} before"
    if new > max(policy.parity_floor, policy.parity_growth * old):
        return verdict(Outcome.REGRESSED, ReasonCode.MORE, compared)
    if old > max(policy.parity_floor, policy.parity_growth * new):
        return verdict(Outcome.IMPROVED, ReasonCode.FEWER, compared)
    rounding = max(old, new) <= policy.parity_floor
    return verdict(Outcome.UNCHANGED, ReasonCode.SAME, f"{text}: rounding at most" if rounding else compared)


def describe(error: float) -> str:
    """Format an error for people."""
    return "nothing" if error == 0 else "an infinite factor" if error >= LARGEST else f"{error:.2g}"
