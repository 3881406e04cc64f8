"""How near a case comes to what the machine can do: its share of the roofline.

The limit of a case is the least time in which its operations can be computed and its bytes be moved, at the ceilings
that this run measured itself (Williams, Waterman & Patterson 2009, Roofline, Commun. ACM 52).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfbench.model import Case, Standing

FLOPS, BYTES = "flops", "bytes"
CEILING = "ceiling"
"""The fact that makes a case a ceiling: of ``flops`` or of ``bytes``."""
_DEFAULT = {"precision": "float32", "device": "cpu"}


def with_shares(standings: Sequence[Standing]) -> tuple[Standing, ...]:
    """The standings with the facts ``share`` (of the limit, from 0 to 1) and ``bound`` where they can be told.

    A ceiling holds for cases of its own device, processors and, of operations, precision.
    """
    ceilings: dict[tuple[str, ...], float] = {}
    for standing in standings:
        kind = standing.facts.get(CEILING)
        if kind in (FLOPS, BYTES) and standing.facts.get(kind):
            key = _key(kind, standing.case)
            ceilings[key] = max(ceilings.get(key, 0.0), standing.facts[kind] / standing.median_seconds)
    return tuple(_with_share(standing, ceilings) for standing in standings)


def _key(kind: str, case: Case) -> tuple[str, ...]:
    levels = {**_DEFAULT, **case.levels}
    return (kind, levels["device"], case.cpus, *([levels["precision"]] if kind == FLOPS else []))


def _with_share(standing: Standing, ceilings: dict[tuple[str, ...], float]) -> Standing:
    if CEILING in standing.facts:
        return standing
    least = {
        kind: standing.facts[kind] / ceilings[key]
        for kind in (FLOPS, BYTES)
        if standing.facts.get(kind) and (key := _key(kind, standing.case)) in ceilings
    }
    if not least:
        return standing
    bound = max(least, key=lambda kind: least[kind])
    facts = {**standing.facts, "share": least[bound] / standing.median_seconds, "bound": bound}
    return replace(standing, facts=facts)
