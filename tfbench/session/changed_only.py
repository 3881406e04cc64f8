"""Find the cases that run the same code on both sides, whose race ``--changed-only`` spares."""

from __future__ import annotations

import filecmp
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import TIME, Case, Reason, ReasonCode
from tfbench.race.interfaces import Entrant
from tfbench.sides.side import Side
from tfbench.storage.history_index import digest

_METADATA = re.compile(r", metadata=\{[^}]*\}")
"""Where an instruction of XLA comes from: among others, paths of the source tree."""
_UNKNOWN = (
    "--changed-only: cases race although their code may be the same, because this system does not report the files that "
    "they read; on Linux, raise fs.inotify.max_user_watches above the number of the repository's folders"
)


@dataclass(frozen=True)
class ExecutedCode:
    """What a probing launch of a case executed."""

    source: str = ""
    """Digest of the benchmark's own code, ``""`` if unknown."""
    read: frozenset[str] | None = None
    """Files of its source tree that its process has read, relative to the tree; ``None`` if unknown."""
    installed: str = ""
    """Identity of the interpreter, modules and libraries from outside the tree, ``""`` if unknown."""
    graphs: str = ""
    """Digest of TensorFlow's graphs and XLA's modules."""

    @staticmethod
    def of_probe(output: ProbeOutput) -> ExecutedCode:
        """Extract it from the output of a probing launch."""
        graphs = output.found.get("graph") or output.absent.get("graph", "")
        modules = sorted(_METADATA.sub("", text) for text in output.modules.values())
        facts, read = output.facts, output.facts.get("read")
        return ExecutedCode(
            source=facts.get("source", ""),
            read=None if read is None else frozenset(read),
            installed=facts.get("installed", ""),
            graphs=digest([graphs, modules]),
        )


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
    notes: set[str] = field(default_factory=set, init=False)
    """What the user should know about cases that race."""

    def spares(self, case: Case, rival: Side, there: Case, differences: Sequence[str]) -> Reason | None:
        """Return why the case need not race, ``None`` if it must.

        A doubt makes it race: a side whose probing launch fails, and code or files that are not known. Two environments
        differ even if they hold the same versions.

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
        if before is not None and now is not None and (before.read is None or now.read is None):
            self.notes.add(_UNKNOWN)
        if before is None or now is None or not (before.read and now.read and now.source and now.installed):
            return None
        if (before.source, before.installed, before.graphs) != (now.source, now.installed, now.graphs):
            return None
        files = before.read | now.read
        if rival.tree_redirect and not all(_same(name, *rival.tree_redirect) for name in files):
            return None
        same = f"benchmark, files of the project that it reads ({len(files)}), graphs, loaded packages and settings"
        return Reason(ReasonCode.SAME_CODE, f"not raced, because both sides have the same {same}")


def _same(name: str, *trees: str) -> bool:
    """Whether two source trees have the same file under this name, or both have none."""
    one, other = (Path(tree, name) for tree in trees)
    try:
        return filecmp.cmp(one, other, shallow=False)
    except FileNotFoundError:
        return not one.exists() and not other.exists()
    except OSError:
        return False
