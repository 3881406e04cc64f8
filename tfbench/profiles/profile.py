"""Read one profile with every tool. If one tool fails, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from tfbench.errors import ProfileError
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.profiles import advice, xprof
from tfbench.profiles.bottleneck import bottlenecks
from tfbench.profiles.chrome_trace import chrome_trace
from tfbench.profiles.input_pipeline import input_pipeline
from tfbench.profiles.kernel_stats import NO_KERNELS, kernel_stats
from tfbench.profiles.memory_profile import memory_profile
from tfbench.profiles.op_stats import op_stats
from tfbench.profiles.overview import overview
from tfbench.profiles.pod_view import pods
from tfbench.profiles.step_breakdown import StepBreakdown, faster_half, step_slices, trimmed
from tfbench.profiles.steps import ProfileStep, steps_of
from tfbench.profiles.tables import Section
from tfbench.profiles.tfdata import Input
from tfbench.profiles.xplane import DEVICE, levels_of, load


class Findings(Protocol):
    """The results of a tool."""

    def section(self) -> Section: ...


Found = TypeVar("Found", bound=Findings)


@dataclass(frozen=True)
class Profile:
    """The results of all tools on the files of one run."""

    sections: Sequence[Section]
    """In reading order."""
    seen: advice.Seen
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
    steps: list[ProfileStep] = []
    with suppress(ProfileError):  # without marked steps, tools that need them report it
        steps = steps_of(first)
    answers = ask(files, policy.profile_read_seconds)
    tools = _Tools()
    ops = tools.ask("ops", "TensorFlow stats", lambda: op_stats(answers))
    view = tools.ask("overview", "Overview", lambda: overview(answers, ops.without_idle if ops else ()))
    if view is not None:
        tools.ask("input", "Input pipeline analyzer", lambda: input_pipeline(answers, view))
    else:
        tools.missing("input", "Input pipeline analyzer", tools.sections["overview"].absent)
    windows = [step.span for step in steps] or [data.whole]
    waits = tools.ask("tf_data", "tf.data bottleneck analysis", lambda: bottlenecks(data, windows))
    if first.of(DEVICE) and not any(True for _ in first.on_devices):
        tools.missing("kernels", "Kernel stats", f"the device's part of the profile is empty: {NO_KERNELS}")
        kernels = None
    else:
        kernels = tools.ask("kernels", "Kernel stats", lambda: kernel_stats(answers))
    tools.ask("memory", "Memory profile", lambda: memory_profile(answers))
    tools.ask("pods", "Pod view", lambda: pods(answers))
    breakdown = StepBreakdown(trimmed(step_slices(first, data, steps), policy.profile_trim)) if steps else None
    seen = advice.Seen(breakdown, waits, view, kernels)
    tools.sections["advice"] = advice.section(advice.advice(seen, policy))
    if errors := [error for space in spaces for error in space.errors]:
        tools.sections["errors"] = Section("errors", "Errors of the profiler", notes=tuple(errors))
    order = ("errors", "overview", "advice", "input", "tf_data", "ops", "kernels", "memory", "pods")
    sections = [tools.sections[one] for one in order if one in tools.sections]
    return Profile(sections, seen, chrome_trace(first, steps), levels_of(first))


def step_breakdown(files: Sequence[Path], policy: Policy) -> StepBreakdown:
    """Read the steps of several launches of one program, and keep the faster half of the launches.

    Raises:
        ProfileError: A file is incomplete, or has no step marker.
    """
    spaces = [load(file) for file in files]
    launches = [step_slices(space, Input(space, policy.slow_call_seconds), steps_of(space)) for space in spaces]
    return faster_half([trimmed(launch, policy.profile_trim) for launch in launches])


class _Tools:
    """Run tools and collect their sections, with the reason if a tool fails."""

    def __init__(self) -> None:
        self.sections: dict[str, Section] = {}

    def ask(self, name: str, title: str, tool: Callable[[], Found]) -> Found | None:
        try:
            found = tool()
            self.sections[name] = found.section()
        except ProfileError as error:
            self.missing(name, title, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # another version of xprof
            self.missing(name, title, f"xprof's answer has an unknown format ({type(error).__name__}: {error})")
        else:
            return found
        return None

    def missing(self, name: str, title: str, reason: str) -> None:
        self.sections[name] = Section(name, title, absent=reason)
