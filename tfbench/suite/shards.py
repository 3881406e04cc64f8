"""Split a suite over machines by a hash of each case, so that machines need no coordination."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.errors import UsageError
from tfbench.model import JSON, Case

MOST = 256
"""Largest number of shards. Each shard costs the start of its own processes."""


@dataclass(frozen=True)
class Shard:
    """One part of ``of``, counted from 1."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def has(self, case: Case) -> bool:
        """Tell whether a case belongs to this shard; variants that race each other share a shard."""
        digest = hashlib.sha256(case.group.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.index - 1


def parse_shard(text: str) -> Shard:
    """Parse a shard, such as ``2/4``. Raises `UsageError` if it is not a shard, or its numbers are out of range."""
    numbers = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
    if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]) <= MOST:
        raise UsageError(f"--shard {text!r}: write 2/4 for the second of four shards")
    return Shard(int(numbers[1]), int(numbers[2]))


@dataclass(frozen=True)
class SuitePart:
    """The part of a suite that a shard or a job of a fleet measures. The cases of a job are not chosen by a hash."""

    index: int
    """Number of the shard or job, from 1."""
    of: int
    suite: str
    """Digest of the names of all cases of the suite."""
    suite_cases: int
    """Number of cases of the suite."""
    job: str = ""
    """Digest of the job, ``""`` for a shard."""

    def of_cases(self, mine: Iterable[str]) -> JSON:
        """Return the ``shard`` object of the report, from the names of the cases of this part."""
        return {key: value for key, value in vars(self).items() if key != "job" or value} | {"cases": sorted(mine)}


def part(shard: Shard, suite_cases: Sequence[str], mine: Iterable[str]) -> JSON:
    """Return the ``shard`` object of a report, from the names of all shards' cases, and of those of this shard."""
    return SuitePart(shard.index, shard.of, digest(suite_cases), len(suite_cases)).of_cases(mine)


def digest(names: Iterable[str]) -> str:
    """Return a digest of the names that does not depend on their order."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
