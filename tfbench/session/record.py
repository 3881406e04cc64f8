"""Keep what runs have measured: named baselines, the history, and candidates, which a user accepts as a baseline."""

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
from tfbench.sides.source_tree import CANDIDATES, KEPT, drop, keep, snapshot, tags_of
from tfbench.storage.baselines import Acceptance, Baseline, Baselines, Layout, now
from tfbench.storage.history import Anchor, History, SessionRecord
from tfbench.untrusted import plural, some


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
    saved: str = ""
    """When the baseline of the run was saved, ``""`` without one."""

    @property
    def samples(self) -> dict[str, Sample]:
        """Samples with at least one launch, by case name."""
        return {result.case.name: result.sample for result in self.results if result.sample and result.sample.runs}


class BaselineStore:
    """The baselines and candidates of a project, below pytest's root directory."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self.root = root
        layout = Layout(folder) if folder else Layout.of(root)
        self.saved = Baselines(layout.baselines)
        self.candidates = Baselines(layout.candidates)

    def accept(self, name: str, reason: str, drop_missing: bool = False) -> Baseline:
        """Replace a baseline by the last run against it.

        With ``drop_missing``, cases that the run did not measure may leave the baseline.
        Raises `BaselineError` if the baseline or the run does not exist, or the run left out cases.
        """
        before, again = self.saved.fetch(name), f"run the whole suite with pytest --benchmark --baseline {name}"
        if name not in self.candidates.names():
            raise BaselineError(f"{name}: no run to accept; {again}")
        candidate = self.candidates.fetch(name)
        if candidate.against != before.saved:
            raced = f"the last run raced the baseline of {candidate.against}, and this one is of {before.saved}"
            raise BaselineError(f"{name}: {raced}; {again}")
        lost = self.left_out(name)
        if lost and not drop_missing:
            measured = f"the last run measured {plural(len(candidate.samples), 'case')}, but not {some(lost, 1)}"
            raise BaselineError(f"{name}: {measured}; {again}, or remove {len(lost)} of its cases with --drop-missing")
        acceptance = Acceptance(now(), reason, before.saved)
        accepted = replace(candidate, accepted=(*before.accepted, acceptance), against="")
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name, earlier=True)
        self.saved.save(name, accepted)
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name)
        self.drop_candidate(name)
        return accepted

    def drop_candidate(self, name: str) -> None:
        """Forget the run that `accept` would take: a later run begins, or replaces the baseline."""
        if name in self.candidates.names():
            self.candidates.remove(name)
            with suppress(SideError):  # git goes on keeping a tree that no file needs any more
                drop(self.root, CANDIDATES + name)

    def left_out(self, name: str) -> list[str]:
        """Return the names of the baseline's cases that the last run against it did not measure.

        Raises `BaselineError` if the baseline or the run does not exist.
        """
        return sorted(set(self.saved.fetch(name).samples) - set(self.candidates.fetch(name).samples))

    def remove(self, name: str) -> Path:
        """Delete a baseline, its candidate and its trees in git; returns the path of the deleted file.

        Raises `BaselineError` if no baseline has this name.
        """
        path = self.saved.remove(name)
        drop(self.root, KEPT + name)
        self.drop_candidate(name)
        return path


class RunRecorder:
    """Write the measurements of a run into its folder."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._session = request.session_name or f"{now()}-{secrets.token_hex(4)}"
        self.store = BaselineStore(request.root, request.folder)
        self.notes: list[str] = []
        """What became of the run's part in a history."""

    def save(self, measurements: RunMeasurements) -> Path:
        """Save the contender's samples as the baseline that the user named.

        Raises `BaselineError` if a case failed, there is no sample, or the file cannot be written.
        """
        name = self._request.save_baseline
        failed = next((result.case.name for result in measurements.results if result.failures), "")
        if why := f"{failed} did not pass" if failed else self._unfit(measurements):
            raise BaselineError(why)
        measured = self._measured(measurements, KEPT + name)
        if not measured.context.tree:
            self.notes.append(
                f"the baseline {name!r} has times only: without a git checkout, its code cannot be raced again"
            )
        self.store.drop_candidate(name)
        return self._save(self.store.saved, name, measured, KEPT)

    def _unfit(self, measurements: RunMeasurements) -> str:
        """Return why these are no measurements to keep, ``""`` if they are."""
        if self._request.inject_slowdown:
            return "its times contain an injected slowdown; run without --inject-slowdown"
        return "" if measurements.samples else "no case was measured"

    def remember(self, measurements: RunMeasurements) -> Path | None:
        """Record a run in its history, and the candidate that `baseline accept` would take.

        Returns the candidate's file, if there is one. Raises `TfbenchError` or `OSError` if a file cannot be written.
        """
        baseline = self._request.baseline
        if why := self._unfit(measurements):
            if self._request.history:
                self.notes.append(f"history: this run was not added, because {why}")
            return None
        if not self._request.history and not baseline:
            return None
        measured = self._measured(measurements, CANDIDATES + baseline if baseline else "")
        if self._request.history:
            self._record(measured, measurements)
        if not baseline:
            return None
        return self._save(self.store.candidates, baseline, replace(measured, against=measurements.saved), CANDIDATES)

    def _record(self, measured: Baseline, measurements: RunMeasurements) -> None:
        anchor, samples, commit = measurements.anchor, measured.samples, measured.environment.commit
        ratios = {
            result.case.name: ratio
            for result in measurements.results
            if anchor and result.baseline and result.verdict and (ratio := result.verdict.ratio)
            if result.case.name in samples and 0 < ratio.center < math.inf
        }
        floors = {name: sample.floors for name, sample in samples.items()}
        releases = tags_of(self._request.root, commit) if commit else ()
        record = SessionRecord(measured.context, floors, ratios, anchor, releases)
        path = History(Path(self._request.history)).record(record)
        content = f"{plural(len(ratios), 'ratio')} to {anchor.label}" if anchor else "floors alone"
        self.notes.append(f"history: {path} added, {content}")

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
        if keep_as:
            runs = [run for sample in measurements.samples.values() for run in sample.runs]
            modules = {*measurements.modules, *(name for run in runs for name in run.facts.get(MODULES, ()))}
            environment = replace(environment, packages={**distributions_of(modules), **environment.packages})
        of_tree, policy = tree.tree if tree else "", self._request.policy
        context = MeasurementContext(self._session, environment, of_tree, policy.name)
        values = {result.case.name: result.metric_values for result in measurements.results if result.metric_values}
        samples, usual = measurements.samples, policy.statistic
        if keep_as:  # a change that is raced against it cannot choose its own
            samples = {
                name: replace(sample, case=replace(sample.case, statistic=sample.case.statistic or usual))
                for name, sample in samples.items()
            }
        return Baseline(context, samples, values)
