"""How near a case comes to what the machine can do: its share of the roofline.

The limit of a case is the least time in which its operations can be computed and its bytes be moved, at the ceilings
that this run measured itself (Williams, Waterman & Patterson 2009, Roofline, Commun. ACM 52).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfbench.model import Case, VariantResult

FLOPS, BYTES = "flops", "bytes"
CEILING = "ceiling"
"""The fact that makes a case a ceiling: of ``flops`` or of ``bytes``."""
_DEFAULT = {"precision": "float32", "device": "cpu"}


def with_shares(variant_results: Sequence[VariantResult]) -> tuple[VariantResult, ...]:
    """The standings with the facts ``share`` (of the limit, from 0 to 1) and ``bound`` where they can be told.

    A ceiling holds for cases of its own device, processors and, of operations, precision.
    """
    ceilings: dict[tuple[str, ...], float] = {}
    for variant_result in variant_results:
        kind = variant_result.facts.get(CEILING)
        if kind in (FLOPS, BYTES) and variant_result.facts.get(kind):
            key = _key(kind, variant_result.case)
            ceilings[key] = max(ceilings.get(key, 0.0), variant_result.facts[kind] / variant_result.median_seconds)
    return tuple(_with_share(variant_result, ceilings) for variant_result in variant_results)


def _key(kind: str, case: Case) -> tuple[str, ...]:
    levels = {**_DEFAULT, **case.levels}
    return (kind, levels["device"], case.cpus, *([levels["precision"]] if kind == FLOPS else []))


def _with_share(variant_result: VariantResult, ceilings: dict[tuple[str, ...], float]) -> VariantResult:
    if CEILING in variant_result.facts:
        return variant_result
    least = {
        kind: variant_result.facts[kind] / ceilings[key]
        for kind in (FLOPS, BYTES)
        if variant_result.facts.get(kind) and (key := _key(kind, variant_result.case)) in ceilings
    }
    if not least:
        return variant_result
    bound = max(least, key=lambda kind: least[kind])
    facts = {**variant_result.facts, "share": least[bound] / variant_result.median_seconds, "bound": bound}
    return replace(variant_result, facts=facts)
