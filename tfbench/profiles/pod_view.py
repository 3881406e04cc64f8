"""The pod view: what the steps of each worker of a distributed program are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.steps import NO_MARKER
from tfbench.profiles.tables import COUNT, SECONDS, Column, Section, Table
from tfbench.profiles.xprof import PODS, Answers, number


@dataclass(frozen=True)
class Worker:
    """One core of one host, or of one process that was sampled."""

    host: str
    core: str
    steps: int
    seconds: float
    """Of a step, the mean."""
    parts: Mapping[str, float]
    """Seconds of a step by what it is made of, the mean."""
    bottleneck: str
    """What most of its steps were bound by."""


@dataclass(frozen=True)
class Pods:
    """The workers, the slowest first."""

    workers: Sequence[Worker]

    def section(self) -> Section:
        parts = list(dict.fromkeys(part for worker in self.workers for part in worker.parts))
        table = Table(
            "workers", "A step of each worker, the mean",
            (Column("host"), Column("core"), Column("steps", COUNT), Column("step", SECONDS),
             *(Column(part.lower(), SECONDS) for part in parts), Column("bound by")),
            tuple(
                (one.host, one.core, one.steps, one.seconds, *(one.parts.get(part, 0.0) for part in parts), one.bottleneck)
                for one in self.workers
            ),
        )  # fmt: skip
        notes = []
        if len(self.workers) > 1 and self.workers[-1].seconds > 0:
            slowest, fastest = self.workers[0], self.workers[-1]
            notes.append(
                f"the slowest worker, {slowest.host}, takes {slowest.seconds / fastest.seconds:.2f} times as long a step "
                f"as the fastest, {fastest.host}"
            )
        return Section("pods", "Pod view", (table,), tuple(notes))


def pods(answers: Answers) -> Pods:
    """From xprof's pod viewer.

    Raises:
        ProfileError: xprof gave none, or the profile has no step marker.
    """
    workers = [worker for name, content in answers.content(PODS).items() for worker in _workers(name, content)]
    if not workers:
        raise ProfileError(NO_MARKER)
    return Pods(sorted(workers, key=lambda worker: -worker.seconds))


def _workers(name: str, content: Mapping[str, Any]) -> list[Worker]:
    """Of one host's file, which is named after the host, or after the address where it was sampled."""
    names = {str(event["id"]): str(event["name"]) for event in content.get("stepBreakdownEvents", [])}
    found: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for step in content.get("podStatsSequence", {}).get("podStatsMap", []):
        for core, one in step.get("podStatsPerCore", {}).items():
            found[str(core)].append(one)
    return [_worker(name, core, ones, names) for core, ones in found.items()]


def _worker(host: str, core: str, ones: Sequence[Mapping[str, object]], names: Mapping[str, str]) -> Worker:
    parts: dict[str, list[float]] = defaultdict(list)
    for one in ones:
        breakdown = one["stepBreakdownUs"]
        assert isinstance(breakdown, dict)
        for number_, microseconds in breakdown.items():
            parts[names.get(str(number_), str(number_))].append(number(microseconds) * 1e-6)
    bound = [str(one.get("bottleneck", "")) for one in ones]
    return Worker(
        host=host,
        core=core,
        steps=len(ones),
        seconds=mean(number(one["totalDurationUs"]) * 1e-6 for one in ones),
        parts={name: sum(values) / len(ones) for name, values in parts.items()},
        bottleneck=max(dict.fromkeys(bound), key=bound.count),
    )
