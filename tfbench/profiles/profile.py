"""One profile, read with every tool: what one tool cannot read, the others go on without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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
from tfbench.profiles.xplane import DEVICE, Space, levels_of, load

Found = TypeVar("Found")


@dataclass(frozen=True)
class Profile:
    """What the tools found in the files of one run."""

    sections: Sequence[Section]
    """In the order in which they are read."""
    seen: advice.Seen
    trace: JSON
    """Of the first host, see `chrome_trace`."""
    levels: Mapping[str, int]
    """That its tracers worked with, see `levels_of`."""


def read(files: Sequence[Path], policy: Policy, ask: Callable[..., xprof.Answers] = xprof.ask) -> Profile:
    """Read one run: a file of each of its hosts.

    Raises:
        ProfileError: There is no file, or one of them is not whole.
    """
    if not files:
        raise ProfileError("there is no xplane file: profile the case again")
    spaces = [load(file) for file in files]
    first = spaces[0]
    data = Input(first, policy.slow_call_seconds)
    steps = _marked(first)
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
    seen = advice.Seen(
        StepBreakdown(trimmed(step_slices(first, data, steps), policy.profile_trim)) if steps else None,
        waits,
        view,
        kernels,
    )
    tools.sections["advice"] = advice.section(advice.advice(seen, policy))
    if errors := [error for space in spaces for error in space.errors]:
        tools.sections["errors"] = Section("errors", "What the profiler could not do", notes=tuple(errors))
    order = ("errors", "overview", "advice", "input", "tf_data", "ops", "kernels", "memory", "pods")
    sections = [tools.sections[one] for one in order if one in tools.sections]
    return Profile(sections, seen, chrome_trace(first, steps), levels_of(first))


def step_breakdown(files: Sequence[Path], policy: Policy) -> StepBreakdown:
    """The steps of several launches of one program, the faster half of them.

    Raises:
        ProfileError: A file is not whole, or has no step marker.
    """
    spaces = [load(file) for file in files]
    launches = [step_slices(space, Input(space, policy.slow_call_seconds), steps_of(space)) for space in spaces]
    return faster_half([trimmed(launch, policy.profile_trim) for launch in launches])


def _marked(space: Space) -> list[ProfileStep]:
    try:
        return steps_of(space)
    except ProfileError:
        return []


class _Tools:
    """Asks tools, and keeps why one found nothing."""

    def __init__(self) -> None:
        self.sections: dict[str, Section] = {}

    def ask(self, name: str, title: str, tool: Callable[[], Found]) -> Found | None:
        try:
            found = tool()
            self.sections[name] = found.section()  # type: ignore[attr-defined]
        except ProfileError as error:
            self.missing(name, title, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # another xprof, another table
            self.missing(name, title, f"xprof's answer is not what is read here ({type(error).__name__}: {error})")
        else:
            return found
        return None

    def missing(self, name: str, title: str, why: str) -> None:
        self.sections[name] = Section(name, title, absent=why)
