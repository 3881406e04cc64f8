"""The keywords of ``bench``: the work of one call of the step, its contracts, and the qualities of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfbench.errors import BenchmarkError
from tfbench.model import JSON, QUALITIES

WORK = ("flops", "bytes", "items")
CONTRACTS = ("expect_ops", "compiled", "max_traces", "max_peak_bytes", "parity")
MODEL = ("accuracy", "sparsity", "unique_weights")
ARTIFACT = "artifact"
CEILING = "ceiling"


def facts(keywords: Mapping[str, Any]) -> JSON:
    """Return amounts of work, and ``contracts`` and ``qualities`` if there are any. Keywords that are ``None`` are left out.

    Raises:
        BenchmarkError: A keyword is unknown, or its value is invalid.
    """
    given = {name: _plain(value) for name, value in keywords.items() if value is not None and name != ARTIFACT}
    for name, value in given.items():
        if name not in _CHECKS:
            known = ", ".join((*WORK, *CONTRACTS, *MODEL, ARTIFACT, CEILING))
            raise BenchmarkError(f"bench has no keyword {name!r}; it has {known}")
        if (wanted := _CHECKS[name](value)) is not None:
            raise BenchmarkError(f"bench: {name}={value!r} must be {wanted}")
    if CEILING in given and given[CEILING] not in given:
        raise BenchmarkError(f"bench: ceiling={given[CEILING]!r} also needs {given[CEILING]}=")
    amounts, contracts, qualities = (
        {name: given[name] for name in names if name in given} for names in ((*WORK, CEILING), CONTRACTS, MODEL)
    )
    groups = {"contracts": contracts, QUALITIES: qualities}
    return {**amounts, **{name: group for name, group in groups.items() if group}}


def _plain(value: Any) -> Any:
    """Return a numpy scalar as a Python number: shapes and sizes are often numpy's."""
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _amount(value: Any) -> str | None:
    return None if _is_number(value) and value > 0 else "a positive number for one call of the step"


def _count(value: Any) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "a whole number"


def _error(value: Any) -> str | None:
    return None if _is_number(value) and 0 <= value < 1 else "a relative error of the result, from 0 to 1"


def _fraction(value: Any) -> str | None:
    return None if _is_number(value) and 0 <= value <= 1 else "a fraction, from 0 to 1"


def _counts(value: Any) -> str | None:
    good = isinstance(value, dict) and value and all(isinstance(op, str) and not _count(n) for op, n in value.items())
    return None if good else 'how often each op is in the graph, such as {"_FusedConv2D": 1}'


_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(WORK, _amount),
    "expect_ops": _counts,
    "compiled": lambda value: None if isinstance(value, bool) else "True or False",
    "max_traces": _count,
    "max_peak_bytes": _amount,
    "parity": _error,
    "accuracy": _fraction,
    "sparsity": _fraction,
    "unique_weights": _count,
    CEILING: lambda value: None if value in ("flops", "bytes") else "'flops' or 'bytes'",
}
