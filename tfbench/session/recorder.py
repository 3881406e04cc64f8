"""Persist a run: the named baseline, the floors of its cases, and a candidate for the next baseline."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.errors import BaselineError, SideError
from tfbench.model import EnvironmentInfo, MeasurementContext, Sample
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.source_tree import CANDIDATES, KEPT, keep, snapshot, tags_of
from tfbench.storage.baselines import Baseline, Baselines, now
from tfbench.storage.histories import opened
from tfbench.storage.history import Anchor, SessionRecord
from tfbench.storage.layout import Layout


@dataclass(frozen=True)
class RunMeasurements:
    """The measurements of a run and their conditions."""

    results: Sequence[CaseResult]
    way: str
    """What raced each other: ``variants`` or ``sides``."""
    environment: EnvironmentInfo | None
    """Environment of the contender without its commit; ``None`` if the contender never started."""
    anchor: Anchor | None = None
    """The baseline side, if the run belongs to a history."""

    @property
    def samples(self) -> dict[str, Sample]:
        """Samples with at least one launch, by case name."""
        found = {result.case.name: result.sample for result in self.results}
        return {name: sample for name, sample in found.items() if sample is not None and sample.runs}


class RunRecorder:
    """Write the measurements of a run into its folder."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._session = request.session_name or f"{now()}-{secrets.token_hex(4)}"
        self.baselines = Baselines(Layout(request.folder).baselines)
        self.notes: list[str] = []
        """What became of the run's part in a history."""
        self.history = opened(request.history or Layout(request.folder).history)

    def save(self, measurements: RunMeasurements) -> Path:
        """Save the contender's samples as the baseline that the user named.

        Raises:
            BaselineError: A case failed, there is no sample, or the file cannot be written.
        """
        name = self._request.save
        why = ""
        if failed := next((result.case.name for result in measurements.results if result.failures), ""):
            why = f"{failed} did not pass"
        elif self._request.slowdown:
            why = "its times contain an injected slowdown; run without --inject-slowdown"
        elif not measurements.samples:
            why = "no case was measured"
        if why:
            raise BaselineError(f"the baseline {name!r} was not saved: {why}")
        return self._save(self.baselines, name, self._measured(measurements, KEPT + name), KEPT)

    def remember(self, measurements: RunMeasurements, baseline: str) -> Path | None:
        """Record a run in its history, and the candidate that `baseline accept` would take.

        Args:
            baseline: Name of the baseline that the run was gated against, ``""`` without one.

        Returns:
            The candidate's file, if there is one.

        Raises:
            TfbenchError, OSError: A file cannot be written.
        """
        samples = measurements.samples
        if self._request.slowdown or not samples:
            if self._request.history:
                why = "its times contain an injected slowdown" if self._request.slowdown else "no case was measured"
                self.notes.append(f"history: this run was not added, because {why}")
            return None
        measured = self._measured(measurements, CANDIDATES + baseline if baseline else "")
        environment = measured.context.environment
        verdicts = {
            one.case.name: one.verdict for one in measurements.results if one.verdict and one.case.name in samples
        }
        raced = {one.case.name for one in measurements.results if one.rival is not None and measurements.anchor}
        ratios = {name: one.ratio for name, one in verdicts.items() if name in raced and one.ratio is not None}
        path = self.history.record(
            SessionRecord(
                measured.context,
                floors={name: sample.floors for name, sample in samples.items()},
                sources={name: sample.case.source for name, sample in samples.items()},
                ratios={name: ratio for name, ratio in ratios.items() if 0 < ratio.center < math.inf},
                outcomes={name: one.outcome for name, one in verdicts.items()},
                anchor=measurements.anchor,
                releases=tags_of(self._request.root, environment.commit) if environment.commit else (),
            )
        )
        if self._request.history:
            content = f"{len(ratios)} ratios to {measurements.anchor.label}" if measurements.anchor else "floors alone"
            self.notes.append(f"history: {path} added, {content}")
        candidates = Baselines(Layout(self._request.folder).candidates)
        return self._save(candidates, baseline, measured, CANDIDATES) if baseline else None

    def _save(self, place: Baselines, name: str, measured: Baseline, refs: str) -> Path:
        path = place.save(name, measured)
        if measured.tree:
            with suppress(SideError):  # otherwise git goes on keeping the earlier tree, which no file needs any more
                keep(self._request.root, measured.tree, refs + name)
        return path

    def _measured(self, measurements: RunMeasurements, keep_as: str) -> Baseline:
        tree, environment = snapshot(self._request.root, keep_as), measurements.environment
        assert environment is not None  # samples come from a contender that started
        if tree is not None:
            environment = replace(environment, commit=tree.commit, dirty=tree.dirty)
        context = MeasurementContext(
            session=self._session,
            environment=environment,
            tree=tree.tree if tree else "",
            policy=self._request.policy.name,
            way=measurements.way,
        )
        values = {one.case.name: one.metric_values for one in measurements.results if one.metric_values is not None}
        return Baseline(context, measurements.samples, values)
