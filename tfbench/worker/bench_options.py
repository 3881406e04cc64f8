"""The keywords of ``bench``: the work of one call of the step, its contracts, and the qualities of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfbench.errors import BenchmarkError
from tfbench.model import JSON, QUALITIES

ARTIFACT = "artifact"
CEILING = "ceiling"


def facts(keywords: Mapping[str, Any]) -> JSON:
    """Return amounts of work, and ``contracts`` and ``qualities`` if there are any. Keywords that are ``None`` are left out.

    Raises:
        BenchmarkError: A keyword is unknown, or its value is invalid.
    """
    # Shapes and sizes are often numpy's.
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in keywords.items()}
    given = {name: value for name, value in plain.items() if value is not None and name != ARTIFACT}
    for name, value in given.items():
        if name not in _CHECKS:
            known = ", ".join((*WORK, *CONTRACTS, *MODEL, ARTIFACT, CEILING))
            raise BenchmarkError(f"bench has no keyword {name!r}; it has {known}")
        valid, wanted = _CHECKS[name]
        if not valid(value):
            raise BenchmarkError(f"bench: {name}={value!r} must be {wanted}")
    if CEILING in given and given[CEILING] not in given:
        raise BenchmarkError(f"bench: ceiling={given[CEILING]!r} also needs {given[CEILING]}=")
    amounts, contracts, qualities = (
        {name: given[name] for name in names if name in given} for names in ((*WORK, CEILING), CONTRACTS, MODEL)
    )
    groups = {"contracts": contracts, QUALITIES: qualities}
    return {**amounts, **{name: group for name, group in groups.items() if group}}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(op, str) and _is_count(value[op]) for op in value)


_AMOUNT = (lambda value: _is_number(value) and value > 0, "a positive number for one call of the step")
_COUNT = (_is_count, "a whole number")
_FRACTION = (lambda value: _is_number(value) and 0 <= value <= 1, "a fraction, from 0 to 1")
_Check = tuple[Callable[[Any], bool], str]
"""Whether a value is valid, and what it must be."""
WORK: Mapping[str, _Check] = dict.fromkeys(("flops", "bytes", "items"), _AMOUNT)
CONTRACTS: Mapping[str, _Check] = {
    "expect_ops": (_is_counts, 'how often each op is in the graph, such as {"_FusedConv2D": 1}'),
    "compiled": (lambda value: isinstance(value, bool), "True or False"),
    "max_traces": _COUNT,
    "max_peak_bytes": _AMOUNT,
    "parity": (lambda value: _is_number(value) and 0 <= value < 1, "a relative error of the result, from 0 to 1"),
}
MODEL: Mapping[str, _Check] = {"accuracy": _FRACTION, "sparsity": _FRACTION, "unique_weights": _COUNT}
_CHECKS: Mapping[str, _Check] = {
    **WORK, **CONTRACTS, **MODEL, CEILING: (lambda value: value in ("flops", "bytes"), "'flops' or 'bytes'"),
}  # fmt: skip
