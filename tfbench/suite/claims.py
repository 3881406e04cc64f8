"""Declare contracts between variants of a benchmark as decorators; pytest's collection validates them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tfbench.errors import DeclarationError
from tfbench.model import CALL_SECONDS, LEAK_KINDS, LEAKS, TIME, Claim
from tfbench.suite.axes import Variant

if TYPE_CHECKING:
    import pytest

Benchmark = TypeVar("Benchmark", bound=Callable[..., Any])
MARK = "tfbench_claim"
MARKERS = (
    "tfbench(cpus, minimum_effect, tolerance, statistic): cpus=2 lets a benchmark use two processors and 'all' every "
    "one, the others replace the policy's",
    f"{MARK}(name, levels, other, bound, metric): a contract between two variants",
)
"""Entries in pytest's list of markers."""
STATS = (
    "in a race, benchmark.stats holds the times of this launch alone, on one processor and in turn with the other side: "
    "the verdict compares the sides, and a limit in seconds belongs in a run without a side"
)
"""What the numbers mean that a test asserts on."""
CALLS = "a race calls the function many times and in several processes, so a test must not count its calls"
"""What a failed assertion after the calls may be about."""
PLUGINS = (
    "measuring processes load no plugins of pytest: name the plugin's entry point or module in the conftest.py of "
    'the root, such as pytest_plugins = ["pytest_mock", "asyncio"]'
)
"""What to do about a fixture of another plugin, and about an async function."""


def faster(levels: str, *, than: str, by: float) -> pytest.MarkDecorator:
    """Decorate a benchmark whose variants with these levels must be faster than others by a factor.

    Args:
        levels: One level or several, separated by commas, such as ``"pipeline=prefetch"``.
        than: The levels of the other variant that differ, such as ``"pipeline=naive"``.
        by: Smallest ratio of the times, other / this, such as 1.3.

    Raises:
        DeclarationError: ``by`` is not a positive number.
    """
    return _claim("faster_than", levels, than, _positive("faster", levels, "by", by), TIME)


def as_fast(levels: str, *, like: str) -> pytest.MarkDecorator:
    """Decorate a benchmark whose variants with these levels must be as fast as others: a negative control.

    Args:
        levels: One level or several, separated by commas, such as ``"pruning=80"``.
        like: The levels of the other variant that differ, such as ``"pruning=none"``.
    """
    return _claim("as_fast", levels, like, 0.0, TIME)


def at_most(*, seconds: float) -> pytest.MarkDecorator:
    """Decorate a benchmark whose call must take no longer than this on the machines that run it.

    Raises `DeclarationError` if ``seconds`` is not a positive number.
    """
    return _claim("at_most", "", "at most", _positive("at_most", "", "seconds", seconds), CALL_SECONDS)


def at_least(*, seconds: float) -> pytest.MarkDecorator:
    """Decorate a benchmark whose call must take this long: a shorter one has not done its work.

    Raises `DeclarationError` if ``seconds`` is not a positive number.
    """
    return _claim("at_least", "", "at least", _positive("at_least", "", "seconds", seconds), CALL_SECONDS)


def smaller(levels: str, *, than: str, by: float, zipped: bool = False) -> pytest.MarkDecorator:
    """Decorate a benchmark whose variants with these levels must have a smaller artifact than others.

    Args:
        levels: One level or several, separated by commas, such as ``"quantization=int8"``.
        than: The levels of the other variant that differ, such as ``"quantization=none"``.
        by: Smallest ratio of the sizes, other / this, such as 3.3.
        zipped: Compare the gzipped artifacts.

    Raises:
        DeclarationError: ``by`` is not a positive number.
    """
    metric = "artifact_gzipped_bytes" if zipped else "artifact_bytes"
    return _claim("smaller_than", levels, than, _positive("smaller", levels, "by", by), metric)


def as_accurate(levels: str, *, like: str, within: float) -> pytest.MarkDecorator:
    """Decorate a benchmark whose variants with these levels must be about as accurate as others.

    Args:
        levels: One level or several, separated by commas, such as ``"pruning=80"``.
        like: The levels of the other variant that differ, such as ``"pruning=none"``.
        within: Largest loss of accuracy, such as 0.01 for one percentage point.

    Raises:
        DeclarationError: ``within`` is not a positive number.
    """
    return _claim("as_accurate", levels, like, _positive("as_accurate", levels, "within", within), "accuracy")


def _positive(decorator: str, levels: str, name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise DeclarationError(
            f"@{decorator}({repr(levels) if levels else ''}): {name}={value!r} must be a positive number"
        )
    return float(value)


def _claim(
    name: str, levels: str, other: str, bound: float, metric: str, kinds: tuple[str, ...] = ()
) -> pytest.MarkDecorator:
    import pytest  # as in `across`

    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)(name, levels, other, bound, metric, kinds)
    return mark


@overload
def no_leak(function: Benchmark, /) -> Benchmark: ...


@overload
def no_leak(*kinds: str) -> pytest.MarkDecorator: ...


def no_leak(*arguments: Any) -> Any:
    """Decorate a benchmark whose process must gain nothing with every call of the step.

    ``@no_leak`` forbids every kind of growth, and ``@no_leak("bytes", "threads")`` these kinds. The kinds are ``bytes``
    (that the allocator has handed out), ``resident`` (memory), ``objects`` (of Python), ``threads``, ``files`` (that
    are open) and ``traces``.

    Raises:
        DeclarationError: A kind is unknown, or none is named.
    """
    kinds = [argument for argument in arguments if isinstance(argument, str)]
    functions = [argument for argument in arguments if callable(argument)]
    unknown = [kind for kind in kinds if kind not in LEAK_KINDS]
    if unknown or len(kinds) + len(functions) != len(arguments) or (len(functions) == 1) == bool(kinds):
        given = ", ".join(map(repr, arguments))
        raise DeclarationError(f"@no_leak({given}): choose from {', '.join(LEAK_KINDS)}, or write @no_leak for all")
    mark = _claim("no_leak", "", ",".join(kinds), 0.0, LEAKS, tuple(kinds) or LEAK_KINDS)
    return mark(functions[0]) if functions else mark


def claims_of(item: pytest.Item, variant: Variant) -> tuple[Claim, ...]:
    """Return the contracts of this item's variant, in the order of their decorators.

    Raises `DeclarationError` if a contract names levels that no variant has, or compares a variant with itself.
    """
    marks = list(item.iter_markers(MARK))
    every, mine = list(_variants(item)) if marks else [], dict(variant)
    claims = []
    for mark in reversed(marks):
        name, levels, other, bound, metric, kinds = mark.args
        if not levels:  # about this case alone
            claims.append(Claim(name, other, (), bound, metric, kinds))
            continue
        about, against = _parsed(item, levels, every), _parsed(item, other, every)
        if about.items() <= mine.items():
            wanted = {**mine, **against}
            if wanted == mine or wanted not in every:
                raise DeclarationError(
                    f"{item.nodeid}: a contract compares it with {other!r}, which is no other variant"
                )
            claims.append(Claim(name, other, tuple(sorted(wanted.items())), bound, metric))
    return tuple(claims)


def _variants(item: pytest.Item) -> Iterator[dict[str, str]]:
    """Yield every variant of the item's function, including deselected ones."""
    for mark in item.iter_markers("parametrize"):
        if mark.args[:1] == ("variant",):
            yield from (dict(parameters.values[0]) for parameters in mark.args[1])


def _parsed(item: pytest.Item, text: str, every: list[dict[str, str]]) -> dict[str, str]:
    levels = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if not any(levels.items() <= variant.items() for variant in every):
        workload = item.nodeid.partition("[")[0]
        raise DeclarationError(f"{workload}: a contract names {text!r}, but no variant has it; {_known(every)}")
    return levels


def _known(every: list[dict[str, str]]) -> str:
    axes = {axis: dict.fromkeys(variant[axis] for variant in every) for axis in (every[0] if every else {})}
    return "; ".join(f"{axis} is {', '.join(levels)}" for axis, levels in axes.items()) or "the benchmark has no axis"
