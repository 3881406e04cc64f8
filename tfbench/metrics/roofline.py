"""Compute the share of the roofline that a case reaches.

The limit of a case is the shortest time for computing its operations and moving its bytes, at the ceilings that the
same run measured (Williams, Waterman & Patterson 2009, Roofline, Commun. ACM 52).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfbench.model import Case, VariantResult

FLOPS, BYTES = "flops", "bytes"
CEILING = "ceiling"
"""The fact that marks a case as a ceiling, of ``flops`` or of ``bytes``."""
_DEFAULT = {"precision": "float32", "device": "cpu"}


def with_shares(variant_results: Sequence[VariantResult]) -> tuple[VariantResult, ...]:
    """Add the facts ``share`` (of the limit, from 0 to 1) and ``bound`` to the results that have a ceiling.

    A ceiling applies to cases of the same device and processors. A ceiling of operations also needs the same precision.
    """
    ceilings: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for one in variant_results:
        kind = one.facts.get(CEILING)
        if kind in (FLOPS, BYTES) and one.facts.get(kind):
            key = _key(kind, one.case)
            ceilings[key] = max(ceilings[key], one.facts[kind] / one.median_seconds)
    return tuple(_with_share(one, ceilings) for one in variant_results)


def _key(kind: str, case: Case) -> tuple[str, ...]:
    levels = {**_DEFAULT, **case.levels}
    return (kind, levels["device"], case.cpus, *([levels["precision"]] if kind == FLOPS else []))


def _with_share(one: VariantResult, ceilings: Mapping[tuple[str, ...], float]) -> VariantResult:
    if CEILING in one.facts:
        return one
    seconds = {
        kind: one.facts[kind] / ceilings[key]
        for kind in (FLOPS, BYTES)
        if one.facts.get(kind) and (key := _key(kind, one.case)) in ceilings
    }
    if not seconds:
        return one
    longest, bound = max((value, kind) for kind, value in seconds.items())
    return replace(one, facts={**one.facts, "share": longest / one.median_seconds, "bound": bound})
