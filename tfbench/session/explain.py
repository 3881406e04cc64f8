"""Explain what changed in a case between two entrants, from probes without timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.errors import BenchmarkError
from tfbench.metrics.catalog import read
from tfbench.metrics.graph_diff import explain, metric_changes
from tfbench.metrics.parity import compare
from tfbench.metrics.probe_output import ProbeOutput
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober


@dataclass(frozen=True)
class Explanation:
    """The changes as rows of text."""

    changes: Sequence[tuple[str, str, str]]
    """Where, what, and a description of the change."""
    metrics: Sequence[tuple[str, str, str, str]]
    """Metric, value before, value now, items gained and lost."""
    notes: Sequence[str]
    """Other differences of the sides, and why something could not be compared."""


def explained(prober: Prober, before: Entrant, now: Entrant) -> Explanation:
    """Probe both entrants, and return what changed from the first to the second.

    Raises:
        SideError: A process does not start.
        BenchmarkError, BenchmarkSkipped: One of the entrants cannot run.
    """
    first, second = map(_probed, list(prober.probe([before, now])))
    changes = [(change.where, change.what, change.text) for change in explain(first, second)]
    return Explanation(changes, metric_changes(read(first), read(second)), _notes(first, second))


def _probed(found: ProbeOutput | Exception) -> ProbeOutput:
    if isinstance(found, BenchmarkError):
        raise BenchmarkError(f"{found}\n{found.output}" if found.output else str(found))
    if isinstance(found, Exception):
        raise found
    return found


def _notes(before: ProbeOutput, now: ProbeOutput) -> list[str]:
    notes = []
    dnn = ["on" if side.found["graph"]["onednn"] else "off" for side in (before, now) if "graph" in side.found]
    if len(set(dnn)) == 2:
        notes.append(f"oneDNN is {dnn[0]} before, {dnn[1]} now")
    for probe in ("graph", "xla"):
        if probe in before.absent and probe in now.absent:
            notes.append(f"{probe}: {now.absent[probe]}")
    if before.outputs and now.outputs:
        difference = compare(now.outputs, before.outputs)
        notes.append(f"the outputs differ{difference.describe(' of their largest number')}")
    return notes
