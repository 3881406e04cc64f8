"""Profiles from start to end: launches that are profiled, files that are kept, what was read of them, and why."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, ProfileError
from tfbench.fs import replace_dir
from tfbench.gpus.monitor import GpuMonitor
from tfbench.metrics.catalog import COPY_TIME, DEVICE_SHARE, DEVICE_TIME, ENERGY
from tfbench.model import JSON, Outcome
from tfbench.policy import Policy
from tfbench.profiles.attribution import Attribution, attribute
from tfbench.profiles.folders import Kept, folder_of, write_about, write_read
from tfbench.profiles.profile import Profile, read, step_breakdown
from tfbench.profiles.step_breakdown import StepBreakdown, TimeCategory
from tfbench.race.energy import joules
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.profiler import Profiler
from tfbench.report import profile as profile_report
from tfbench.report.attribution import MOST, in_words
from tfbench.session.request import CaseResult, RunRequest

BASELINE, CONTENDER = "baseline", "contender"


@dataclass(frozen=True)
class Explained:
    """What the profiles of a case say."""

    kept: Kept
    profiles: Mapping[str, Profile]
    """By side."""
    attribution: Attribution | None
    """``None`` where only one side was profiled."""
    why: Sequence[str]
    """Of the slowdown, at most five lines; why there are none, if there ought to be."""
    notes: Sequence[str] = ()
    """How the profiles are not what was asked for."""

    def as_json(self) -> list[JSON]:
        """One entry for each side, as a report has them."""
        return [
            {
                "folder": str(self.kept.folder / side),
                **profile_report.as_json(self.kept.case, side, [section.short() for section in profile.sections], why),
            }
            for side, profile in self.profiles.items()
            for why in [self.why if side == CONTENDER else ()]
        ]


def take(
    profiler: Profiler,
    entrants: Mapping[str, Entrant],
    place: Path,
    policy: Policy,
    raced: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Explained:
    """Profile a case on one side or two, keep the files and what was read of them.

    Args:
        entrants: By side; two are profiled in turns, over several launches.
        place: Folder of profiles; the case gets one of its own in it, in the place of an earlier one.
        raced: The slowdown that was raced, as a fraction.

    Raises:
        SideError: A process does not start.
        BenchmarkError, BenchmarkSkipped: One side breaks, or cannot run here.
        ProfileError: What the profiler wrote cannot be read.
    """
    case = entrants[CONTENDER].case
    folder = place / folder_of(case.name)
    launches = policy.profile_launches if len(entrants) > 1 else 1
    with replace_dir(folder) as half:
        profiler.ready(entrants.values(), launches)
        sides = {
            side: {
                "spec": entrant.side.spec or "working tree",
                "case": entrant.case.name,
                "launches": launches,
                "recipe": profiler.environment(entrant.side),
            }
            for side, entrant in entrants.items()
        }
        kept = Kept(half, case.name, sides, raced)
        for launch in range(launches):
            for side, entrant in entrants.items():
                tell(f"{case.workload}: profiling {side}, launch {launch + 1} of {launches}")
                profiler.profile(entrant, half / side, launch)
        write_about(kept)
        tell(f"{case.workload}: reading profiles")
        explained = reread(kept, policy)
        for side, profile in explained.profiles.items():
            write_read(half, side, _texts(explained, side, profile), profile.trace)
        levels = {side: profile.levels for side, profile in explained.profiles.items()}
        notes = [note for side in sides if (note := _other_levels(side, levels[side], profiler.levels))]
    return replace(explained, kept=replace(kept, folder=folder), notes=notes)


def _other_levels(side: str, noted: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """That the profiler did not take the levels that it was given, as TensorFlow 2.21's does not."""
    if not noted or all(noted[name] == level for name, level in wanted.items()):
        return ""
    worked = ", ".join(f"{name}={level}" for name, level in noted.items())
    return f"profile: TensorFlow took no notice of --profile-levels on the side {side}, and worked with {worked}"


def reread(kept: Kept, policy: Policy) -> Explained:
    """Read profiles that are kept.

    Raises:
        ProfileError: A file is not there, or not whole.
    """
    profiles = {side: read(kept.runs(side)[0], policy) for side in kept.sides}
    if BASELINE not in kept.sides:
        return Explained(kept, profiles, None, ())
    try:
        before, now = (
            step_breakdown([file for run in kept.runs(side) for file in run], policy) for side in (BASELINE, CONTENDER)
        )
    except ProfileError as error:
        return Explained(kept, profiles, None, (f"profile: {error}",))
    found = attribute(before, now, policy.profile_cause)
    return Explained(kept, profiles, found, in_words(found, kept.raced, policy.profile_found))


class Profiles:
    """The profiles that a question asks for.

    Args:
        tell: Called with what is being done.
    """

    def __init__(self, request: RunRequest, launcher: ProcessLauncher, tell: Callable[[str], None]) -> None:
        self._request = request
        self._launcher = launcher
        self._profiler = Profiler(launcher, request.policy, request.profiler_config)
        self._tell = tell

    def with_device(self, result: CaseResult, contender: Entrant, gpu_monitor: GpuMonitor) -> CaseResult:
        """The result of a variant with what the device did in it, which times say nothing of; a host-bound one is told."""
        variant_result = result.variant_result
        if variant_result is None:
            return result
        self._tell(f"{result.case.workload}: the device's part")
        policy = self._request.policy
        facts: JSON = {}
        why: tuple[str, ...] = ()
        try:
            facts |= on_device(self._profiler, contender, policy)
        except (BenchmarkError, BenchmarkSkipped, ProfileError, OSError) as error:
            why += (failure(error),)
        try:
            if (amount := joules(self._launcher, gpu_monitor, contender, policy)) is not None:
                facts[ENERGY] = amount
        except (BenchmarkError, BenchmarkSkipped, LaunchDisturbed) as error:
            why += (f"energy: not read: {error}",)
        if DEVICE_SHARE in facts and facts[DEVICE_SHARE] < policy.device_bound:
            why += (
                f"host-bound: the device works in {facts[DEVICE_SHARE]:.0%} of a step; see advice in tfbench explain",
            )
        return replace(result, variant_result=replace(variant_result, facts={**variant_result.facts, **facts}), why=why)

    def of(self, result: CaseResult, contender: Entrant, rival: Entrant | None) -> CaseResult:
        """The result with its profiles, if it is one that was to be profiled.

        Args:
            rival: The other side of the race; ``None`` if it was not raced against one.
        """
        request, verdict = self._request, result.verdict
        if verdict is None or result.sample is None:
            return result
        regressed = verdict.outcome is Outcome.REGRESSED
        place = request.profile or (request.profile_regressed if regressed else None)
        if place is None:
            return result
        entrants, raced = {CONTENDER: contender}, None
        why: tuple[str, ...] = ()
        if regressed and request.slowdown:
            why = ("profile: the slowdown was put there by --inject-slowdown, outside of what is profiled",)
        elif regressed and rival is not None:
            entrants = {BASELINE: rival, CONTENDER: contender}
            raced = verdict.ratio.center - 1 if verdict.ratio else None
        try:
            found = take(self._profiler, entrants, place, request.policy, raced, self._tell)
        except (BenchmarkError, BenchmarkSkipped, ProfileError, OSError) as error:
            return replace(result, why=(failure(error),))
        return replace(result, profiles=tuple(found.as_json()), why=why or (*found.why, *found.notes)[:MOST])


def _texts(explained: Explained, side: str, profile: Profile) -> dict[str, str]:
    """The files that stand beside a side's profile."""
    case = explained.kept.case
    why = explained.why if side == CONTENDER else ()
    text = profile_report.markdown(f"{case.rpartition('::')[2]}, {side}", profile.sections)
    tables = {os.path.join("tables", name): text for name, text in profile_report.csv_files(profile.sections).items()}
    content = profile_report.as_json(case, side, profile.sections, why)
    return {**tables, "profile.md": text, "profile.json": profile_report.as_text(content)}


def on_device(profiler: Profiler, entrant: Entrant, policy: Policy) -> JSON:
    """What a launch that is profiled shows of accelerators: seconds of a step with kernels, with copies, and the share of
    the step in which either ran. Empty where no accelerator took part.

    Raises:
        SideError: A process does not start.
        BenchmarkError, BenchmarkSkipped, ProfileError: The case breaks, cannot run here, or leaves no profile.
    """
    with tempfile.TemporaryDirectory(prefix="tfbench-device-") as folder:
        place = profiler.profile(entrant, Path(folder), 0)
        return device_facts(step_breakdown(sorted(place.iterdir()), policy))


def device_facts(step: StepBreakdown) -> JSON:
    """The same from the breakdown of a step."""
    keys = {
        category: [key for key in step.parts if key.category is category]
        for category in (TimeCategory.DEVICE, TimeCategory.COPY)
    }
    if not any(keys.values()):
        return {}
    together = step.covered([*keys[TimeCategory.DEVICE], *keys[TimeCategory.COPY]])
    return {
        DEVICE_TIME: step.covered(keys[TimeCategory.DEVICE]),
        COPY_TIME: step.covered(keys[TimeCategory.COPY]),
        DEVICE_SHARE: together / step.seconds,
    }


def failure(error: BenchmarkError | BenchmarkSkipped | ProfileError | OSError) -> str:
    """Why there is no profile, as one line."""
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
    return f"profile: none could be taken: {text.partition(chr(10))[0]}"
