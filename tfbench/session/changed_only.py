"""Find the cases that run the same code on both sides, whose race ``--changed-only`` spares."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import TIME, Case, Reason, ReasonCode
from tfbench.race.interfaces import Entrant
from tfbench.sides.side import Side
from tfbench.storage.history_index import digest

_METADATA = re.compile(r", metadata=\{[^}]*\}")
"""Where an instruction of XLA comes from: among others, paths of the source tree."""


@dataclass(frozen=True)
class ExecutedCode:
    """What a probing launch of a case executed."""

    source: str = ""
    """Digest of the benchmark's own code, ``""`` if unknown."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> digest, of the files that its process imported outside its environment; empty if unknown."""
    graphs: str = ""
    """Digest of TensorFlow's graphs and XLA's modules."""

    @staticmethod
    def of_probe(output: ProbeOutput) -> ExecutedCode:
        """Extract it from the output of a probing launch."""
        graphs = output.found.get("graph") or output.absent.get("graph", "")
        modules = sorted(_METADATA.sub("", text) for text in output.modules.values())
        facts = output.facts
        return ExecutedCode(facts.get("source", ""), facts.get("files", {}), digest([graphs, modules]))


def drawn(cases: Sequence[Case], share: float, seed: int) -> frozenset[str]:
    """Draw the names of cases that race although their code is the same: the share, and at least one."""
    count = min(len(cases), max(1, math.ceil(share * len(cases))))
    return frozenset(random.Random(seed).sample([case.name for case in cases], count))


@dataclass(frozen=True)
class ChangedOnly:
    """Decides whether a case must race.

    Args:
        drawn: Names of cases that race in any event, see `drawn`.
        executed: Returns the code that each of two entrants executes, or ``None`` for one that fails.
    """

    contender: Side
    drawn: frozenset[str]
    executed: Callable[[Entrant, Entrant], Sequence[ExecutedCode | None]]

    def spares(self, case: Case, rival: Side, there: Case, differences: Sequence[str]) -> Reason | None:
        """Return why the case need not race, ``None`` if it must.

        A doubt makes it race: a side whose probing launch fails, and code or files that are not known.

        Args:
            there: The case as it is called on the rival side.
            differences: Of the environments, one phrase each.

        Raises:
            SideError: A side does not start.
        """
        claimed = case.name in self.drawn or bool(case.claims_on(TIME))  # contracts on time need times
        if claimed or differences or there != case or self.contender.slowdown or self.contender.env != rival.env:
            return None
        before, now = self.executed(Entrant(there, rival), Entrant(case, self.contender))
        if before is None or now is None or not (now.source and now.files):
            return None
        trees = rival.tree_redirect or ("", "")
        mine, theirs = (_below(one.files, tree) for one, tree in zip((now, before), trees, strict=True))
        if (before.source, theirs, before.graphs) != (now.source, mine, now.graphs):
            return None
        same = f"benchmark, imported files of the project ({len(mine)}), graphs, packages and settings"
        return Reason(ReasonCode.SAME_CODE, f"not raced, because both sides have the same {same}")


def _below(files: Mapping[str, str], tree: str) -> dict[str, str]:
    """Return the files with paths relative to a source tree, if they lie in it."""
    top = Path(tree)
    return {
        str(Path(path).relative_to(top)) if tree and Path(path).is_relative_to(top) else path: digest
        for path, digest in files.items()
    }
