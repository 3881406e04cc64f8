"""What a benchmark claims of its variants' times, declared beside ``across`` and checked while pytest collects."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tfbench.axes import Variant
from tfbench.errors import DeclarationError
from tfbench.model import Claim

MARK = "tfbench_claim"
MARKER = f"{MARK}(levels, than, by): what the times of two variants are to each other"
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
    if isinstance(by, bool) or not isinstance(by, (int, float)) or not math.isfinite(by) or by <= 0:
        raise DeclarationError(f"@faster({levels!r}): by={by!r} must be how many times as fast it is, as 1.3")
    return _claim(levels, than, float(by))


def as_fast(levels: str, *, like: str) -> pytest.MarkDecorator:
    """Decorator: the variants with these levels are neither faster nor slower than others: a negative control.

    Args:
        levels: ``"pruning=80"``, or several with commas between.
        like: What is other in the variant that each is compared with: ``"pruning=none"``.
    """
    return _claim(levels, like, None)


def _claim(levels: str, other: str, factor: float | None) -> pytest.MarkDecorator:
    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)(levels, other, factor)
    return mark


def claims_of(item: pytest.Item, variant: Variant) -> tuple[Claim, ...]:
    """What is claimed of this item's variant, in the order in which it is written.

    Raises:
        DeclarationError: A claim names levels that no variant of the benchmark has, or a variant itself.
    """
    every = list(_variants(item))
    found = []
    for mark in reversed(list(item.iter_markers(MARK))):
        levels, other, factor = mark.args
        about, against = _parsed(item, levels, every), _parsed(item, other, every)
        if about.items() <= dict(variant).items():
            wanted = {**dict(variant), **against}
            if wanted == dict(variant) or wanted not in every:
                raise DeclarationError(f"{item.nodeid}: a claim compares it with {other!r}, which is no other variant")
            found.append(Claim(other, tuple(sorted(wanted.items())), factor))
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
