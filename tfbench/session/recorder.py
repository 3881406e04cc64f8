"""What a run leaves behind: the baseline that was asked for, its floors, and what may become a baseline."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import BaselineError
from tfbench.model import EnvironmentInfo, MeasurementContext, Outcome, Sample
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.source_tree import CANDIDATES, KEPT, Snapshot, snapshot
from tfbench.storage.baselines import Baseline, Baselines, now
from tfbench.storage.history import History, SessionRecord
from tfbench.storage.layout import Layout

_CHANGED = (Outcome.REGRESSED, Outcome.IMPROVED)


@dataclass(frozen=True)
class RunMeasurements:
    """What a run measured, and how."""

    results: Sequence[CaseResult]
    way: str
    """``variants`` or ``sides``: what raced each other."""
    environment: Callable[[Snapshot | None], EnvironmentInfo]
    """Of the contender, with this tree."""

    @property
    def samples(self) -> dict[str, Sample]:
        """By the case's name; those that have any launch."""
        found = {result.case.name: result.sample for result in self.results}
        return {name: sample for name, sample in found.items() if sample is not None and sample.runs}


class RunRecorder:
    """Writes down what runs of one folder measured."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._session = f"{now()}-{secrets.token_hex(4)}"
        self.baselines = Baselines(Layout(request.folder).baselines)
        self.history = History(Layout(request.folder).history)

    def save(self, measurements: RunMeasurements) -> Path:
        """Save the contender's samples as the baseline that was asked for.

        Raises:
            BaselineError: A case failed, nothing was measured, or the file cannot be written.
        """
        name = self._request.save
        if failed := next((result.case.name for result in measurements.results if result.failures), ""):
            raise BaselineError(f"the baseline {name!r} was not saved: {failed} did not pass")
        if self._request.slowdown:
            raise BaselineError(f"the baseline {name!r} was not saved: its times hold an injected slowdown")
        if not measurements.samples:
            raise BaselineError(f"the baseline {name!r} was not saved: nothing was measured")
        return self.baselines.save(name, self._measured(measurements, KEPT + name))

    def remember(self, measurements: RunMeasurements, saved: Baseline | None) -> Path | None:
        """Write down what is to be known of a run later: its floors, and what `baseline accept` would take.

        Args:
            saved: The baseline that the run was held against, if any.

        Returns:
            The file of the run that may become a baseline, if there is one.

        Raises:
            TfbenchError, OSError: It cannot be written.
        """
        if self._request.slowdown or not measurements.samples:
            return None
        measured = self._measured(measurements, CANDIDATES + saved.name if saved else "")
        # What is known to be other code would pass for the spread of the same code.
        changed = {one.case.name for one in measurements.results if one.verdict and one.verdict.outcome in _CHANGED}
        floors = {name: sample.floors for name, sample in measurements.samples.items() if name not in changed}
        sources = {name: sample.case.source for name, sample in measurements.samples.items()}
        self.history.record(SessionRecord(measured.context, floors, sources))
        return Baselines(Layout(self._request.folder).candidates).save(saved.name, measured) if saved else None

    def _measured(self, measurements: RunMeasurements, keep_as: str) -> Baseline:
        tree = snapshot(self._request.root, keep_as)
        context = MeasurementContext(
            session=self._session,
            environment=measurements.environment(tree),
            tree=tree.tree if tree else "",
            policy=self._request.policy.name,
            way=measurements.way,
        )
        metric_values = {
            one.case.name: one.metric_values for one in measurements.results if one.metric_values is not None
        }
        return Baseline(context, measurements.samples, metric_values)
