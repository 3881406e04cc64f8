"""Define what a session is asked for, how it reports progress, and what it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.model import Case, MetricValues, Note, Outcome, Reason, Sample, VariantResult, Verdict, because
from tfbench.model.report import ProfileEntry
from tfbench.race.lanes import Processors
from tfbench.race.race import Race
from tfbench.race.workers import Suite
from tfbench.ruling import fails
from tfbench.session.options import RunOptions
from tfbench.sides.counterparts import Selection
from tfbench.suite.shards import SuitePart

# Define what a session is asked for, how it reports progress, and what it answers


@dataclass(frozen=True, kw_only=True)
class RunRequest(RunOptions):
    """What one run is asked for: the user's options, and what follows from them.

    ``statistic`` is that of the command line, instead of a configuration file, and ``history`` a folder.
    """

    root: Path
    suite: Suite
    processors: Processors
    executable: str
    folder: Path
    """Folder of baselines and of recreated source trees."""
    collect_command: tuple[str, ...] = ()
    """Command that collects another source tree, see `sides.counterparts`."""
    gate: tuple[str, ...] = ()
    """Words of the options that decide what passes, those of the configuration file included."""
    seed: int = 0
    selection: Selection = field(default_factory=Selection)
    """What the user asked for, to select the same cases on the other side."""
    suite_cases: tuple[Case, ...] = ()
    """The cases of all shards."""
    part: SuitePart | None = None
    """The job of a fleet that this run does, ``None`` for none."""
    journal: Path | None = None
    """File of the finished cases; ``None`` for the one in ``folder``."""
    session_name: str = ""
    """Identity of the run in a history, ``""`` for a new one."""
    collected: frozenset[str] = frozenset()
    """Names of all cases in the collected files. Those that are deselected are in no shard."""
    uncollected: Sequence[CaseResult] = ()
    """Results instead of the cases of files that pytest could not collect."""
    profiles: Path = Path()
    """Folder of profiles, if the options ask for some."""
    lane_processors: Sequence[Processors] = ()
    """The processors of each lane, if several cases race at the same time."""
    lanes_ahead: int | None = None
    """How many groups lanes may race ahead of the test that pytest runs; ``None`` for all."""
    uncertain: frozenset[str] = frozenset()
    """Names of the cases that pytest may skip when their turn comes, so that no lane races them before it."""
    written: frozenset[Path] = frozenset()
    """Reports and logs of this run."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment before a conftest.py or a benchmark changed it."""

    @property
    def suite_names(self) -> list[str]:
        """Names of the cases of all shards."""
        return [case.name for case in self.suite_cases]

    @property
    def known(self) -> set[str]:
        """Names of all cases that have a result in the report of a shard, and of what could not be collected."""
        return {*self.suite_names, *(result.case.name for result in self.uncollected)}

    @property
    def sharing(self) -> int:
        """Number of cases that share the policy's alpha, those of other shards or jobs included."""
        return max(len(self.suite_cases), self.part.suite_cases if self.part else 0)


class RunProgress:
    """What the run does now, and how many of its ``total`` cases are done. ``show`` is called with it after each change."""

    def __init__(self, show: Progress, total: int) -> None:
        self.text = ""
        self.race: Race | None = None
        self.done = 0
        self.total = total
        self._lock = threading.Lock()
        self._show = show

    def __call__(self, text: str, race: Race | None = None) -> None:
        with self._lock:
            self.text, self.race = text, race
            self._show(self)


Progress = Callable[[RunProgress], None]


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: either a ``verdict`` or the reason of a ``skip``.

    Raises `ValueError` if the verdict compares times, and the sample has no launch.
    """

    case: Case
    verdict: Verdict | None = None
    skip: str = ""
    variant_result: VariantResult | None = None
    sample: Sample | None = None
    baseline: Sample | None = None
    """Sample of the baseline side, if that side raced."""
    metrics: tuple[Verdict, ...] = ()
    """Verdicts on the other metrics and on the contracts."""
    metric_values: MetricValues | None = None
    output: str = ""
    """Last output of the process that failed."""
    profiles: tuple[ProfileEntry, ...] = ()
    """Profiles of the sides, in the format of a report."""
    why: tuple[str, ...] = ()
    """Causes of a slowdown according to the profiles, or why there are none; at most five lines."""

    def __post_init__(self) -> None:
        if self.verdict and self.verdict.compares_times and not (self.sample and self.sample.runs):
            raise ValueError(f"{self.case.name} has the verdict {self.verdict.outcome} on time without a launch")

    @property
    def rows(self) -> tuple[Verdict, ...]:
        """All verdicts on the case, the verdict on its time first."""
        return (*([self.verdict] if self.verdict else []), *self.metrics)

    @property
    def failures(self) -> list[Verdict]:
        """The verdicts that fail a test."""
        return [row for row in self.rows if fails(row)]


# Report the cases that the other side has and the run lacks


def missing(request: RunRequest, gone: Sequence[Case], deleted: Reason, deselected: Reason) -> list[Verdict]:
    """Return a verdict for each missing case that this run was expected to have, sorted by name.

    Args:
        gone: Cases of the other side that this run does not measure.
        deleted: The reason if pytest does not collect a case here.
        deselected: The reason if pytest collects it, and then deselects it.
    """
    shard = request.shard
    if request.selection.reruns:
        return []
    ours = [case for case in gone if request.selection.has(case.name) and (shard is None or shard.has(case))]

    def reason_of(case: Case) -> Reason:
        """Return the reason, with the file that may have the case if it lies in no folder that pytest collects."""
        if case.name in request.collected:
            return deselected
        file = case.name.partition("::")[0]
        folder = file[: file.find("/") + 1]
        if (
            not folder
            or not (request.root / file).is_file()
            or any(name.startswith(folder) for name in request.collected)
        ):
            return deleted
        return deleted.noted(because(Note.OUTSIDE, file=file, folder=folder))

    return [Verdict.of(case, Outcome.MISSING, reason_of(case)) for case in sorted(ours, key=lambda known: known.name)]
