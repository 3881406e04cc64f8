"""Race the same cases on several versions at once, in the same rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import BenchmarkSkipped, UsageError
from tfbench.model import JSON, Case, Outcome, VariantResult
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.session.results import of_variant
from tfbench.sides.side import Side
from tfbench.sides.spec import of_version

Entry = VariantResult | str
"""A case on one side: its result, or why it could not be timed."""


@dataclass(frozen=True)
class Row:
    """A case on all sides."""

    case: Case
    entries: tuple[Entry, ...]
    """In the order of the sides."""

    @property
    def results(self) -> list[VariantResult]:
        """The entries with times."""
        return [entry for entry in self.entries if isinstance(entry, VariantResult)]

    @property
    def slowdown(self) -> float:
        """The largest ratio on any side, 0 without one."""
        return max((result.ratio.center for result in self.results if result.ratio), default=0.0)


@dataclass(frozen=True)
class Matrix:
    """The results of all cases on all sides."""

    sides: Mapping[str, JSON]
    """By label, the reference first: Python, packages, settings and the import time of TensorFlow."""
    rows: tuple[Row, ...]
    seconds: float

    @property
    def labels(self) -> list[str]:
        return list(self.sides)

    @property
    def by_slowdown(self) -> list[Row]:
        """The rows by the largest slowdown on any side. Rows without times come last."""
        return sorted(self.rows, key=lambda row: row.slowdown, reverse=True)

    @property
    def has_regression(self) -> bool:
        """Whether a case is slower on any side."""
        return any(result.outcome is Outcome.REGRESSED for row in self.rows for result in row.results)


def ordered(labels: Sequence[str], reference: str = "") -> list[str]:
    """Return the labels of the sides with the reference first.

    Raises `UsageError` if there are fewer than two labels, a duplicate, or no label for the reference.
    """
    if len(set(map(of_version, labels))) < max(2, len(labels)):
        taken = ", ".join(labels) or "none of the arguments"
        raise UsageError(
            "give two or more versions, each only once; to race one against itself, give `self` as the second "
            f"(taken for versions, as no file has such a name: {taken})"
        )
    first = next((label for label in labels if of_version(label) == of_version(reference or labels[0])), None)
    if first is None:
        raise UsageError(f"--reference {reference}: give one of {', '.join(labels)}")
    return sorted(labels, key=lambda label: label != first)


def sides_of(labels: Sequence[str], make: Callable[[str, str], Side]) -> list[Side]:
    """Make a side of each label, the reference first. `self` is the reference again, in separate processes.

    ``make`` gets a specification and a name, and raises `SideError` if the side cannot be created.
    """
    first = make(labels[0], labels[0])
    others = [replace(first, name=one) if one == "self" else make(one, one) for one in labels[1:]]
    return [first, *others]


def race(
    cases: Sequence[Case],
    sides: Sequence[Side],
    launcher: ProcessLauncher,
    policy: Policy,
    rng: random.Random,
    progress: Callable[[str], None],
) -> Matrix:
    """Race every case on all sides at once. A side that is decided against the reference leaves later launches.

    Raises:
        SideError: A side does not start.
    """
    began = time.monotonic()
    environments = dict.fromkeys(case.env for case in cases)
    progress(f"starting {len(sides)} sides")
    launcher.ready([(side, env) for side in sides for env in environments], range(policy.looks[0]))
    pairs = min(policy.zygotes, max(policy.looks[0], policy.zygotes_together // len(sides)))
    config = RaceConfig(len(cases) * (len(sides) - 1), range(pairs))

    def row(number: int, case: Case) -> Row:
        entrants = [Entrant(case, side) for side in sides]
        text = f"{number}/{len(cases)} {case.short_name}"
        progress(text)
        Prober(launcher, policy).share(entrants)
        made = Race(entrants, launcher, policy, config, time.perf_counter, rng)
        made.run(lambda race: progress(f"{text}, {len(race.launches)} launches"))
        return Row(case, tuple(_entry(made, index) for index in range(len(sides))))

    rows = tuple(row(number, case) for number, case in enumerate(cases))
    return Matrix({side.name: _describe(launcher, side) for side in sides}, rows, time.monotonic() - began)


def _entry(race: Race, index: int) -> Entry:
    if (failure := race.failures.get(index)) is not None:
        if isinstance(failure, BenchmarkSkipped):
            return f"skipped: {failure}"
        printed = getattr(failure, "output", "").strip().splitlines()
        return f"broke: {failure}{f'; its last output: {printed[-1].strip()}' if printed else ''}"
    if race.reference != 0:
        return "the reference cannot run it"
    if race.abort_reason:
        return f"disturbed: {race.abort_reason}"
    return of_variant(race, index).variant_result or "it was not timed"


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    shown = {key: environment[key] for key in ("python", "packages", "settings", "defaults")}
    return {"spec": side.spec, **shown, "import_seconds": launcher.import_seconds(side)}
