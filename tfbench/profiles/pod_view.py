"""The pod view: step time of each worker of a distributed program, by category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, mode
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.tables import COUNT, SECONDS, Column, Section, Table
from tfbench.profiles.xplane import NO_MARKER
from tfbench.profiles.xprof import PODS, Answers, number


@dataclass(frozen=True)
class Worker:
    """One core of one host, or of one sampled process."""

    host: str
    core: str
    steps: int
    seconds: float
    """Mean per step."""
    parts: Mapping[str, float]
    """Mean seconds per step in each category."""
    bottleneck: str
    """What bounds most of its steps."""


def pods(answers: Answers) -> tuple[Sequence[Worker], Section]:
    """Read xprof's pod viewer: the workers, the slowest first.

    Raises:
        ProfileError: xprof gave no answer, or the profile has no step marker.
    """
    workers = [worker for name, content in answers.content(PODS).items() for worker in _workers(name, content)]
    if not workers:
        raise ProfileError(NO_MARKER)
    workers.sort(key=lambda worker: -worker.seconds)
    parts = list(dict.fromkeys(part for worker in workers for part in worker.parts))
    table = Table(
        "workers", "Mean step of each worker",
        (Column("host"), Column("core"), Column("steps", COUNT), Column("step", SECONDS),
         *(Column(part.lower(), SECONDS) for part in parts), Column("bound by")),
        tuple(
            (one.host, one.core, one.steps, one.seconds, *(one.parts.get(part, 0.0) for part in parts), one.bottleneck)
            for one in workers
        ),
    )  # fmt: skip
    notes = []
    slowest, fastest = workers[0], workers[-1]
    if slowest is not fastest and fastest.seconds > 0:
        notes.append(
            f"the slowest worker, {slowest.host}, takes {slowest.seconds / fastest.seconds:.2f} times as long per step "
            f"as the fastest, {fastest.host}"
        )
    return workers, Section("pods", (table,), tuple(notes))


def _workers(name: str, content: Mapping[str, Any]) -> list[Worker]:
    """Read one file, whose name is the host or the sampled address."""
    names = {str(event["id"]): str(event["name"]) for event in content.get("stepBreakdownEvents", [])}
    steps: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for step in content.get("podStatsSequence", {}).get("podStatsMap", []):
        for core, one in step.get("podStatsPerCore", {}).items():
            steps[str(core)].append(one)
    return [_worker(name, core, ones, names) for core, ones in steps.items()]


def _worker(host: str, core: str, steps: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Worker:
    parts: dict[str, float] = defaultdict(float)
    for step in steps:
        for part, microseconds in step["stepBreakdownUs"].items():
            parts[names.get(str(part), str(part))] += number(microseconds) * 1e-6 / len(steps)
    seconds = mean(number(step["totalDurationUs"]) * 1e-6 for step in steps)
    return Worker(host, core, len(steps), seconds, parts, mode(str(step.get("bottleneck", "")) for step in steps))
