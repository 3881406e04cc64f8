"""What a benchmark claims of its variants, declared beside ``across`` and checked while pytest collects."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tfbench.errors import DeclarationError
from tfbench.model import TIME, Claim
from tfbench.suite.axes import Variant

MARK = "tfbench_claim"
MARKER = f"{MARK}(name, levels, other, bound, metric): what two variants are to each other"
"""For pytest's list of markers."""


def faster(levels: str, *, than: str, by: float) -> pytest.MarkDecorator:
    """Decorator: the variants with these levels are so many times as fast as others, or the contract is broken.

    Args:
        levels: ``"pipeline=prefetch"``, or several with commas between.
        than: What is other in the variant that each is compared with: ``"pipeline=naive"``.
        by: At least this ratio of times, as 1.3.

    Raises:
        DeclarationError: ``by`` is no number above zero.
    """
    return _claim("faster_than", levels, than, _positive("faster", levels, "by", by), TIME)


def as_fast(levels: str, *, like: str) -> pytest.MarkDecorator:
    """Decorator: the variants with these levels are neither faster nor slower than others: a negative control.

    Args:
        levels: ``"pruning=80"``, or several with commas between.
        like: What is other in the variant that each is compared with: ``"pruning=none"``.
    """
    return _claim("as_fast", levels, like, 0.0, TIME)


def smaller(levels: str, *, than: str, by: float, zipped: bool = False) -> pytest.MarkDecorator:
    """Decorator: the artifact of the variants with these levels is so many times as small as others'.

    Args:
        levels: ``"quantization=int8"``, or several with commas between.
        than: What is other in the variant that each is compared with: ``"quantization=none"``.
        by: At least this ratio of sizes, as 3.3.
        zipped: Of the gzipped artifacts.

    Raises:
        DeclarationError: ``by`` is no number above zero.
    """
    metric = "artifact_gzipped_bytes" if zipped else "artifact_bytes"
    return _claim("smaller_than", levels, than, _positive("smaller", levels, "by", by), metric)


def as_accurate(levels: str, *, like: str, within: float) -> pytest.MarkDecorator:
    """Decorator: the accuracy of the variants with these levels is that of others, or not much less.

    Args:
        levels: ``"pruning=80"``, or several with commas between.
        like: What is other in the variant that each is compared with: ``"pruning=none"``.
        within: Accuracy may be less by so much, as 0.01 for a point.

    Raises:
        DeclarationError: ``within`` is no number above zero.
    """
    return _claim("as_accurate", levels, like, _positive("as_accurate", levels, "within", within), "accuracy")


def _positive(decorator: str, levels: str, name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise DeclarationError(f"@{decorator}({levels!r}): {name}={value!r} must be a number above zero")
    return float(value)


def _claim(name: str, levels: str, other: str, bound: float, metric: str) -> pytest.MarkDecorator:
    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)(name, levels, other, bound, metric)
    return mark


def claims_of(item: pytest.Item, variant: Variant) -> tuple[Claim, ...]:
    """What is claimed of this item's variant, in the order in which it is written.

    Raises:
        DeclarationError: A claim names levels that no variant of the benchmark has, or a variant itself.
    """
    marks = list(item.iter_markers(MARK))
    every, mine = list(_variants(item)) if marks else [], dict(variant)
    found = []
    for mark in reversed(marks):
        name, levels, other, bound, metric = mark.args
        about, against = _parsed(item, levels, every), _parsed(item, other, every)
        if about.items() <= mine.items():
            wanted = {**mine, **against}
            if wanted == mine or wanted not in every:
                raise DeclarationError(f"{item.nodeid}: a claim compares it with {other!r}, which is no other variant")
            found.append(Claim(name, other, tuple(sorted(wanted.items())), bound, metric))
    return tuple(found)


def _variants(item: pytest.Item) -> Iterator[dict[str, str]]:
    """Every variant of the item's function, those that were not selected included."""
    for mark in item.iter_markers("parametrize"):
        if mark.args[:1] == ("variant",):
            yield from (dict(parameters.values[0]) for parameters in mark.args[1])


def _parsed(item: pytest.Item, text: str, every: list[dict[str, str]]) -> dict[str, str]:
    levels = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if not any(levels.items() <= variant.items() for variant in every):
        workload = item.nodeid.partition("[")[0]
        raise DeclarationError(f"{workload}: a claim is about {text!r}, and no variant has that; {_known(every)}")
    return levels


def _known(every: list[dict[str, str]]) -> str:
    axes = {axis: dict.fromkeys(variant[axis] for variant in every) for axis in (every[0] if every else {})}
    return "; ".join(f"{axis} is {', '.join(levels)}" for axis, levels in axes.items()) or "it is across no axis"
