"""Read one profile with every tool. If one tool fails, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tfbench.errors import ProfileError
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.profiles import xprof
from tfbench.profiles.advice import Seen, advice
from tfbench.profiles.bottleneck import bottlenecks
from tfbench.profiles.chrome_trace import chrome_trace
from tfbench.profiles.memory_profile import memory_profile
from tfbench.profiles.op_stats import NO_KERNELS, Kernel, input_pipeline, kernel_stats, op_stats
from tfbench.profiles.overview import overview, pods
from tfbench.profiles.step_breakdown import StepBreakdown, faster_half, step_slices, trimmed
from tfbench.profiles.tables import TITLES, Section
from tfbench.profiles.tfdata import Input
from tfbench.profiles.xplane import DEVICE, Event, levels_of, load, steps_of

Found = TypeVar("Found")


@dataclass(frozen=True)
class Profile:
    """The results of all tools on the files of one run."""

    sections: Sequence[Section]
    """In reading order."""
    seen: Seen
    trace: JSON
    """Trace of the first host, see `chrome_trace`."""
    levels: Mapping[str, int]
    """Levels of the profiler's tracers, see `levels_of`."""


def read(files: Sequence[Path], policy: Policy, ask: Callable[..., xprof.Answers] = xprof.ask) -> Profile:
    """Read one run.

    Args:
        files: One XPlane file per host.

    Raises:
        ProfileError: There is no file, or one is incomplete.
    """
    if not files:
        raise ProfileError("there is no XPlane file: profile the case again")
    spaces = [load(file) for file in files]
    first = spaces[0]
    data = Input(first, policy.slow_call_seconds)
    steps: list[Event] = []
    with suppress(ProfileError):  # without marked steps, tools that need them report it
        steps = steps_of(first)
    answers = ask(files, policy.profile_read_seconds)
    sections: dict[str, Section] = {}

    def use(name: str, tool: Callable[[], tuple[Found, Section]]) -> Found | None:
        """Run a tool, and keep its section, with the reason if the tool fails."""
        try:
            found, sections[name] = tool()
            return found
        except ProfileError as error:
            reason = str(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # another version of xprof
            reason = f"xprof's answer has an unknown format ({type(error).__name__}: {error})"
        sections[name] = Section(name, absent=reason)
        return None

    def kernels_of_device() -> tuple[Sequence[Kernel], Section]:
        if (devices := first.of(DEVICE)) and not any(line.events for plane in devices for line in plane.lines):
            raise ProfileError(f"the device's part of the profile is empty: {NO_KERNELS}")
        return kernel_stats(answers)

    ops = use("ops", lambda: op_stats(answers))
    view = use("overview", lambda: overview(answers, ops or ()))
    if view is not None:
        use("input", lambda: input_pipeline(answers, view.waiting))
    else:
        sections["input"] = Section("input", absent=sections["overview"].absent)
    waits = use("tf_data", lambda: bottlenecks(data, [step.span for step in steps] or [first.span]))
    kernels = use("kernels", kernels_of_device)
    use("memory", lambda: memory_profile(answers))
    use("pods", lambda: pods(answers))
    breakdown = StepBreakdown(trimmed(step_slices(first, data, steps), policy.profile_trim)) if steps else None
    seen = Seen(breakdown, waits, view, kernels or ())
    use("advice", lambda: advice(seen, policy))
    if errors := [error for space in spaces for error in space.errors]:
        sections["errors"] = Section("errors", notes=tuple(errors))
    ordered = [sections[name] for name in TITLES if name in sections]
    return Profile(ordered, seen, chrome_trace(first, steps), levels_of(first))


def step_breakdown(files: Sequence[Path], policy: Policy) -> StepBreakdown:
    """Read the steps of several launches of one program, and keep the faster half of the launches.

    Raises:
        ProfileError: A file is incomplete, or has no step marker.
    """
    launches = []
    for file in files:
        space = load(file)
        try:
            launches.append(step_slices(space, Input(space, policy.slow_call_seconds), steps_of(space)))
        except ProfileError as error:
            raise ProfileError(f"{file}: {error}") from None
    return faster_half([trimmed(launch, policy.profile_trim) for launch in launches])
