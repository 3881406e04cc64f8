"""A suite split over machines: which cases are whose, by a hash that depends on nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.errors import UsageError
from tfbench.model import JSON, Case

MOST = 256
"""Shards. Each costs the start of its processes; a suite that needs more of them needs fewer cases."""


@dataclass(frozen=True)
class Shard:
    """One part of ``of``, counted from 1."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def has(self, case: Case) -> bool:
        """Whether a case belongs to it; those that race each other stay together."""
        digest = hashlib.sha256(case.group.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.index - 1


def parse_shard(text: str) -> Shard:
    """The shard of ``2/4``.

    Raises:
        UsageError: It is none.
    """
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
        raise UsageError(f"--shard {text!r} is not understood; write 2/4 for the second of four")
    return Shard(int(found[1]), int(found[2]))


def part(shard: Shard, suite_cases: Sequence[str], mine: Iterable[str]) -> JSON:
    """What a report says of its shard.

    Args:
        suite_cases: Names of the cases of all shards.
        mine: Names of those of this one.
    """
    return {
        "index": shard.index,
        "of": shard.of,
        "suite": digest(suite_cases),
        "suite_cases": len(suite_cases),
        "cases": sorted(mine),
    }


def digest(names: Iterable[str]) -> str:
    """Of a set of names, whatever their order."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
