"""Keep what runs have measured: named baselines and the history."""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.errors import BaselineError, SideError
from tfbench.model import MODULES, EnvironmentInfo, MeasurementContext, Sample
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.environments import distributions_of
from tfbench.sides.source_tree import KEPT, drop, keep, snapshot, tags_of
from tfbench.storage.baselines import Baseline, Baselines, Layout, now
from tfbench.storage.history import Anchor, History, SessionRecord
from tfbench.untrusted import plural


@dataclass(frozen=True)
class RunMeasurements:
    """The measurements of a run and their conditions."""

    results: Sequence[CaseResult]
    environment: EnvironmentInfo | None
    """Environment of the contender without its commit; ``None`` if the contender never started."""
    modules: Collection[str] = ()
    """Top-level modules that the benchmarks of the contender import."""
    anchor: Anchor | None = None
    """The baseline side, if the run belongs to a history."""

    @property
    def samples(self) -> dict[str, Sample]:
        """Samples with at least one launch, by case name."""
        return {result.case.name: result.sample for result in self.results if result.sample and result.sample.runs}


def remove_baseline(root: Path, name: str) -> Path:
    """Delete a baseline of a project and its trees in git; returns the path of the deleted file.

    Raises `BaselineError` if no baseline has this name.
    """
    path = Baselines(Layout.of(root).baselines).remove(name)
    drop(root, KEPT + name)
    return path


class RunRecorder:
    """Write the measurements of a run into its folder."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._session = request.session_name or f"{now()}-{secrets.token_hex(4)}"
        self.baselines = Baselines(Layout(request.folder).baselines)
        self.notes: list[str] = []
        """What became of the run's part in a history."""
        self._history = History(Path(request.history)) if request.history else None

    def save(self, measurements: RunMeasurements) -> Path:
        """Save the contender's samples as the baseline that the user named.

        Raises `BaselineError` if a case failed, there is no sample, or the file cannot be written.
        """
        name = self._request.save_baseline
        failed = next((result.case.name for result in measurements.results if result.failures), "")
        if why := f"{failed} did not pass" if failed else self._unfit(measurements):
            raise BaselineError(f"the baseline {name!r} was not saved: {why}")
        measured = self._measured(measurements, KEPT + name)
        if not measured.context.tree:
            self.notes.append(
                f"the baseline {name!r} has times only: {self._request.root} is in no git checkout, so its code cannot "
                "be raced again"
            )
        path = self.baselines.save(name, measured)
        if measured.tree:
            with suppress(SideError):  # otherwise git goes on keeping the earlier tree, which no file needs any more
                keep(self._request.root, measured.tree, KEPT + name)
        return path

    def _unfit(self, measurements: RunMeasurements) -> str:
        """Return why these are no measurements to keep, ``""`` if they are."""
        if self._request.inject_slowdown:
            return "its times contain an injected slowdown; run without --inject-slowdown"
        return "" if measurements.samples else "no case was measured"

    def remember(self, measurements: RunMeasurements) -> None:
        """Record a run in its history, if it has one. Raises `TfbenchError` or `OSError` if that cannot be written."""
        if self._history and (why := self._unfit(measurements)):
            self.notes.append(f"history: this run was not added, because {why}")
        elif self._history:
            self._record(self._history, self._measured(measurements, ""), measurements)

    def _record(self, history: History, measured: Baseline, measurements: RunMeasurements) -> None:
        anchor, samples, commit = measurements.anchor, measured.samples, measured.environment.commit
        ratios = {
            result.case.name: ratio
            for result in measurements.results
            if anchor and result.baseline and result.verdict and (ratio := result.verdict.ratio)
            if result.case.name in samples and 0 < ratio.center < math.inf
        }
        path = history.record(
            SessionRecord(
                measured.context,
                floors={name: sample.floors for name, sample in samples.items()},
                ratios=ratios,
                anchor=anchor,
                releases=tags_of(self._request.root, commit) if commit else (),
            )
        )
        content = f"{plural(len(ratios), 'ratio')} to {anchor.label}" if anchor else "floors alone"
        self.notes.append(f"history: {path} added, {content}")

    def _measured(self, measurements: RunMeasurements, keep_as: str) -> Baseline:
        tree, environment = snapshot(self._request.root, keep_as), measurements.environment
        assert environment is not None  # samples come from a contender that started
        if tree is not None:
            environment = replace(environment, commit=tree.commit, dirty=tree.dirty)
        if keep_as:
            runs = [run for sample in measurements.samples.values() for run in sample.runs]
            modules = {*measurements.modules, *(name for run in runs for name in run.facts.get(MODULES, ()))}
            environment = replace(environment, packages={**distributions_of(modules), **environment.packages})
        context = MeasurementContext(
            session=self._session,
            environment=environment,
            tree=tree.tree if tree else "",
            policy=self._request.policy.name,
        )
        values = {result.case.name: result.metric_values for result in measurements.results if result.metric_values}
        samples, usual = measurements.samples, self._request.policy.statistic
        if keep_as:  # a change that is raced against it cannot choose its own
            samples = {
                name: replace(sample, case=replace(sample.case, statistic=sample.case.statistic or usual))
                for name, sample in samples.items()
            }
        return Baseline(context, samples, values)
