"""One question about several versions: the same cases on every side, racing in the same rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import BenchmarkSkipped, UsageError
from tfbench.model import JSON, Case, VariantResult
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.session.results import of_variant
from tfbench.sides.side import Side
from tfbench.sides.spec import of_version

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """What became of the question."""

    sides: Mapping[str, JSON]
    """Side, the reference first -> its Python, packages and what importing TensorFlow took it."""
    rows: tuple[tuple[Case, tuple[VariantResult | str, ...]], ...]
    """Each case, and in the order of the sides how it stands to the reference, or why it could not be timed."""
    seconds: float


def ordered(labels: Sequence[str], reference: str = "") -> list[str]:
    """The labels of the sides, the reference first.

    Raises:
        UsageError: Fewer than two, one twice, or a reference that is none of them.
    """
    if len(set(map(of_version, labels))) < max(2, len(labels)):
        raise UsageError("give two or more versions, each once; for the same twice, give `self` as the second")
    first = next((one for one in labels if of_version(one) == of_version(reference or labels[0])), None)
    if first is None:
        raise UsageError(f"--reference {reference}: it is none of {', '.join(labels)}")
    return sorted(labels, key=lambda one: one != first)


def sides_of(labels: Sequence[str], make: Callable[[str, str], Side]) -> list[Side]:
    """A side for each label, the reference first; `self` is the reference once more, in processes of its own.

    Args:
        make: From a specification and a name to a side.

    Raises:
        SideError: One of them cannot be made.
    """
    first = make(of_version(labels[0]), labels[0])
    others = [replace(first, name=one) if one == "self" else make(of_version(one), one) for one in labels[1:]]
    return [first, *others]


def race(
    cases: Sequence[Case],
    sides: Sequence[Side],
    launcher: ProcessLauncher,
    policy: Policy,
    rng: random.Random,
    progress: Progress,
) -> Compared:
    """Race every case on all sides at once; whoever is decided against the reference drops out of later launches.

    Raises:
        SideError: A side does not start.
    """
    began = time.monotonic()
    environments = dict.fromkeys(case.env for case in cases)
    progress(f"starting {len(sides)} sides")
    launcher.ready([(side, env) for side in sides for env in environments], range(policy.looks[0]))
    pairs = min(policy.zygotes, max(policy.looks[0], policy.zygotes_together // len(sides)))
    config = RaceConfig(len(cases) * (len(sides) - 1), range(pairs))
    rows = []
    for number, case in enumerate(cases):
        entrants = [Entrant(case, side) for side in sides]
        one = Race(entrants, launcher, policy, config, time.perf_counter, rng)
        text = f"{number}/{len(cases)} {case.name.rpartition('::')[2]}"
        progress(text)
        Prober(launcher, policy).share(entrants)
        one.run(lambda race, text=text: progress(f"{text}, {len(race.launches)} launches"))  # type: ignore[misc]
        rows.append((case, tuple(_entry(one, index) for index in range(len(sides)))))
    return Compared(
        sides={side.name: _describe(launcher, side) for side in sides},
        rows=tuple(rows),
        seconds=time.monotonic() - began,
    )


def _entry(race: Race, index: int) -> VariantResult | str:
    if (failure := race.failures.get(index)) is not None:
        if isinstance(failure, BenchmarkSkipped):
            return f"skipped: {failure}"
        printed = getattr(failure, "output", "").strip().splitlines()
        return f"broke: {failure}{f'; its last words: {printed[-1].strip()}' if printed else ''}"
    if race.reference != 0:
        return "the reference cannot run it"
    if race.abort_reason:
        return f"disturbed: {race.abort_reason}"
    variant_result = of_variant(race, index).variant_result
    return variant_result if variant_result is not None else "it was not timed"


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    return {
        "spec": side.spec,
        "python": environment["python"],
        "packages": environment["packages"],
        "settings": environment["settings"],
        "defaults": environment["defaults"],
        "import_seconds": launcher.import_seconds(side),
    }
