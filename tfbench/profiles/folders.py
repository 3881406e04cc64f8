"""Find and keep profiles in folders.

Format: "Trace Event Format", complete events (``ph`` = ``X``) in microseconds.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tfbench.errors import ProfileError, ReportError, UsageError
from tfbench.fs import read_text, write_whole
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.profiles import TITLES, Section, xprof
from tfbench.profiles.attribution import Seen, StepBreakdown, advice, faster_half, step_slices, trimmed
from tfbench.profiles.tfdata import Input, bottlenecks
from tfbench.profiles.xplane import DEVICE, Event, Space, levels_of, load, steps_of
from tfbench.profiles.xprof import NO_KERNELS, input_pipeline, kernel_stats, memory_profile, op_stats, overview, pods
from tfbench.untrusted import (
    a_number,
    a_text,
    an_object,
    brief,
    command,
    described,
    parse_json,
    render_json,
    some,
    texts,
)

# Read one profile with every tool. If one tool fails, the others go on


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

    def kernels_of_device() -> tuple[bool, Section]:
        if (devices := first.of(DEVICE)) and not any(line.events for plane in devices for line in plane.lines):
            raise ProfileError(f"the device's part of the profile is empty: {NO_KERNELS}")
        return kernel_stats(answers)

    ops = use("ops", lambda: op_stats(answers))
    view = use("overview", lambda: overview(answers, ops or ()))
    if view is not None:
        use("input", lambda: (None, input_pipeline(answers, view.waiting)))
    else:
        sections["input"] = Section("input", absent=sections["overview"].absent)
    waits = use("tf_data", lambda: bottlenecks(data, [step.span for step in steps] or [first.span]))
    kernels = use("kernels", kernels_of_device)
    use("memory", lambda: (None, memory_profile(answers)))
    use("pods", lambda: (None, pods(answers)))
    breakdown = StepBreakdown(trimmed(step_slices(first, data, steps), policy.profile_trim)) if steps else None
    seen = Seen(breakdown, waits, view, kernels or False)
    use("advice", lambda: (None, advice(seen, policy)))
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


# Convert the profiled steps to a Chrome trace, which Perfetto and chrome://tracing open


def chrome_trace(space: Space, steps: Sequence[Event]) -> JSON:
    """Return all events during the marked steps, or all of the profile if no step is marked."""
    events = list(_events(space, steps))
    return {"displayTimeUnit": "ns", "traceEvents": events, "metadata": {"host": space.host, "steps": len(steps)}}


def _events(space: Space, steps: Sequence[Event]) -> Iterator[JSON]:
    low, high = (min(step.start for step in steps), max(step.end for step in steps)) if steps else space.span
    for process, plane in enumerate(space.planes, 1):
        if not plane.lines:
            continue
        yield _named("process_name", plane.name, process, 0)
        for thread, line in enumerate(plane.lines, 1):
            yield _named("thread_name", line.name, process, thread)
            for event in line.events:
                if event.end >= low and event.start <= high:
                    yield {
                        "ph": "X",
                        "name": event.name,
                        "cat": event.kind or "event",
                        "ts": (event.start - low) * 1e-6,
                        "dur": (event.end - event.start) * 1e-6,
                        "pid": process,
                        "tid": thread,
                        "args": {key: _plain(value) for key, value in event.stats.items()},
                    }


def _named(what: str, name: str, process: int, thread: int) -> JSON:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _plain(value: object) -> object:
    """Convert a value for JSON, which has no bytes, and in which floats are finite and 64-bit ids lose digits."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    unsafe = (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > 2**53)
    return str(value) if unsafe else value


# Folders of profiles: one per case, with the files of each side in TensorBoard's layout


SCHEMA = "tfbench-profiled-case/1"
ABOUT = "case.json"
RUNS = Path("plugins", "profile")
"""Where TensorBoard looks below a log folder: one folder per run, with one file per host."""
_UNFIT = re.compile(r"[^\w.,=+-]+", re.ASCII)
_SHOWN = ("tensorflow", "tf-nightly", "keras", "tf-keras")
"""Packages that the description of a side lists. The side's file has the rest."""
_LONGEST = 150
"""Characters of a folder's name. File systems allow 255 bytes."""


@dataclass(frozen=True)
class Kept:
    """The profiles of one case."""

    folder: Path
    case: str
    sides: Mapping[str, JSON]
    """Name -> description of the side. The contender is always present."""
    raced: float | None = None
    """The raced slowdown, as a fraction."""

    def environment(self, side: str) -> str:
        """Describe where a side ran: ``git:main, Python 3.11.7, tensorflow 2.21.0, …``."""
        about = self.sides[side]
        environment = about.get("environment") or {}
        packages = environment.get("packages", {})
        parts = [str(about.get("spec", "")), f"Python {environment['python']}" if "python" in environment else ""]
        parts += [f"{name} {version}" for name, version in packages.items() if name.startswith(_SHOWN)]
        parts.append(str(environment.get("machine", {}).get("processor", "")))
        return ", ".join(filter(None, parts))

    def runs(self, side: str) -> list[list[Path]]:
        """Return the files of each launch of a side, one file per host.

        Raises:
            ProfileError: There is none.
        """
        place = self.folder / side
        runs = [files for run in sorted((place / RUNS).glob("*")) if (files := sorted(run.glob("*.xplane.pb")))]
        if not runs:
            raise ProfileError(f"{place} holds no XPlane file: profile the case again")
        return runs


def folder_of(case: str) -> str:
    """Return the name of a case's folder: the node id without special characters.

    It ends in a digest of the node id if characters were replaced or cut.
    """
    name = case.replace("/", ".").replace("::", ".").replace("[", ".").removesuffix("]")
    fit = _UNFIT.sub("_", name)
    if fit == name and len(fit) <= _LONGEST:
        return fit
    return f"{fit[:_LONGEST]}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def write_about(kept: Kept) -> None:
    """Write the description of a case's folder.

    Raises:
        OSError: The file cannot be written.
    """
    content = {"schema": SCHEMA, "case": kept.case, "sides": dict(kept.sides), "raced": kept.raced}
    write_whole(kept.folder / ABOUT, render_json(content, 1) + "\n")


def write_read(folder: Path, side: str, texts: Mapping[str, str], trace: JSON) -> None:
    """Write the tables, texts and trace of a side.

    Args:
        texts: File name -> content.

    Raises:
        OSError: A file cannot be written.
    """
    for name, text in texts.items():
        write_whole(folder / side / name, text)
    with gzip.open(folder / side / "trace.json.gz", "wt", encoding="utf-8", compresslevel=6) as file:
        json.dump(trace, file, allow_nan=False)


def named(folder: Path, name: str) -> list[Kept]:
    """Find the profiles of a case by its name, with or without its file, or of all cases whose names contain the text.

    Raises:
        UsageError: No case matches, or the folder does not exist.
        ProfileError: A description is not in the format of this version.
    """
    if not folder.is_dir():
        how = command("pytest", "--benchmark", "--profile", str(folder))
        raise UsageError(f"{folder} is not a folder: create profiles with `{how}`")
    kept = [_read(about) for about in sorted(folder.glob(f"*/{ABOUT}"))]
    wanted = name.strip("…").replace("...", "")
    exact = [one for one in kept if one.case == name or one.case.endswith(f"::{name}")]
    found = exact or [one for one in kept if wanted in one.case]
    if not found:
        there = some([one.case.rpartition("::")[2] for one in kept], 5) or "none"
        raise UsageError(f"{folder} has no profile of {name!r}; available: {there}")
    return found


def _read(about: Path) -> Kept:
    try:
        content = an_object(parse_json(read_text(about)), "the content")
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {brief(content['schema'])!r}")
        given = an_object(content["sides"], "sides")
        sides = {name: _side(side, name) for name, side in given.items() if name in ("baseline", "contender")}
        if "contender" not in sides:
            raise ValueError("it has no contender")
        raced = None if content.get("raced") is None else a_number(content["raced"], "raced")
        return Kept(about.parent, a_text(content["case"], "case"), sides, raced)
    except (ReportError, ValueError, KeyError) as error:
        text = f"{brief(about)} is not in tfbench's format ({described(error)}): profile the case again"
        raise ProfileError(text) from None


def _side(content: Any, name: str) -> JSON:
    """Check the parts of a side's description that `Kept.environment` reads."""
    found = an_object(content, name)
    if environment := an_object(found.get("environment") or {}, "environment"):
        a_text(environment.get("python", ""), "python")
        texts(environment.get("packages", {}), "packages")
        an_object(environment.get("machine", {}), "machine")
    return found
