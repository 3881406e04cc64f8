"""Read the result files of asv 0.5 and later: ``results/MACHINE/COMMIT-ENVIRONMENT.json``."""

from __future__ import annotations

from itertools import product
from statistics import median
from typing import Any

from tfbench.compare.timing import Timing
from tfbench.model import JSON
from tfbench.untrusted import a_list, a_text, an_object, brief, times

COLUMNS = "result_columns"
"""The key that only files of asv have."""
_TIMED = ("time_", "timeraw_")
"""Prefixes of the functions whose results are seconds; others count bytes, or track anything."""
_MOST = 10_000
"""Parameters of a benchmark that a file may state."""


def is_result(text: str) -> bool:
    """Tell whether a text is likely a result of asv, which contains ``Infinity`` where JSON has no number."""
    return f'"{COLUMNS}"' in text


def commit(content: JSON) -> str:
    """Return the commit that was measured, shortened."""
    return f"commit {brief(content.get('commit_hash') or 'unknown')[:12]}"


def timings(content: JSON) -> dict[str, Timing]:
    """Return the times by case: ``module.Class.time_name``, with its parameters in brackets.

    Failed benchmarks are left out. Raises ValueError or KeyError if asv did not write the content.
    """
    columns = [a_text(one, "a column") for one in a_list(content[COLUMNS], COLUMNS)]
    found: dict[str, Timing] = {}
    for name, row in an_object(content["results"], "results").items():
        if not name.rpartition(".")[2].startswith(_TIMED):
            continue
        fields = dict(zip(columns, a_list(row, name), strict=False))
        if fields.get("result") is None:  # every parameter failed
            continue
        results = a_list(fields["result"], name)
        samples = a_list(fields.get("samples") or [None] * len(results), name)
        if len(samples) != len(results):
            raise ValueError(f"{brief(name)} has {len(samples)} samples for {len(results)} results")
        for case, seconds, raw in zip(_cases(name, fields.get("params")), results, samples, strict=True):
            if seconds is not None:
                found[case] = _timing(case, seconds, raw)
    return found


def _cases(name: str, params: Any) -> list[str]:
    levels = [a_list(one, name) for one in a_list(params or [], name)]
    number = 1
    for one in levels:
        number *= len(one)
    if number > _MOST:
        raise ValueError(f"{brief(name)} has {number} parameters, more than {_MOST}")
    chosen = [", ".join(str(level) for level in some) for some in product(*levels)]
    return [f"{name}[{one}]" for one in chosen] if levels else [name]


def _timing(case: str, seconds: Any, raw: Any) -> Timing:
    rounds = times(a_list(raw, case), case) if raw else ()
    return Timing(median(rounds) if rounds else times([seconds], case)[0], (rounds,) if rounds else ())
