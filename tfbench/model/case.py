"""What is measured: a case, which is a workload in one variant, and the contracts between cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


TIME = "time"
"""The metric that is raced."""
QUALITIES = "qualities"
"""The fact that holds what a benchmark tells of its model."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A contract between two variants: this case and the one with these ``levels``."""

    name: str
    """``faster_than``, ``as_fast``, ``smaller_than`` or ``as_accurate``."""
    other: str
    """As the benchmark names it: what of its levels is not this case's."""
    levels: tuple[tuple[str, str], ...]
    bound: float = 0.0
    """So many times as fast or as small at least; so much less accurate at most."""
    metric: str = TIME
    """What is compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload in one variant; one pytest item. ``name`` is its node id.

    ``group`` names the cases that race each other: the same function with the same
    parameters other than the variant. ``variant`` is sorted by axis.
    """

    name: str
    workload: str
    group: str
    variant: tuple[tuple[str, str], ...] = ()
    reference: bool = True
    """Whether every axis is at its first level."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables that the variant needs from the start of its process."""
    cpus: str = ""
    """``""`` for one pinned core, ``"all"`` for every processor the run may use."""
    source: str = ""
    """Digest of the benchmark's own code, ``""`` where it is not known."""
    claims: tuple[Claim, ...] = ()
    shared: bool = False
    """Whether it asks for what is made once for all launches."""

    @property
    def levels(self) -> dict[str, str]:
        """Axis -> level, as written in reports."""
        return dict(self.variant)

    def claims_on(self, *metrics: str) -> list[Claim]:
        """What is claimed of one of these metrics."""
        return [claim for claim in self.claims if claim.metric in metrics]

    @property
    def short_name(self) -> str:
        """The name without its file: ``test_matmul[compiler=xla]``."""
        return self.name.rpartition("::")[2]

    @property
    def label(self) -> str:
        """The variant as one short text; the empty variant is ``-``."""
        return ",".join(f"{axis}={level}" for axis, level in self.variant) or "-"
