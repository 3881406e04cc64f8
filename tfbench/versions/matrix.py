"""Race the same cases on several versions at once, in the same rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import BenchmarkSkipped, SideError, UsageError
from tfbench.model import JSON, Case, Outcome, VariantResult
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.race.zygote_pool import Environment
from tfbench.session.results import of_variant
from tfbench.sides.side import Side
from tfbench.sides.spec import of_version


@dataclass(frozen=True)
class Untimed:
    """A case on a side that has no time."""

    why: str
    skipped: bool = False
    """Whether the benchmark skipped itself there, as where a version lacks what it measures."""


Entry = VariantResult | Untimed
"""A case on one side."""
_NO_REFERENCE = Untimed("the reference cannot run it", skipped=True)
_NO_OTHER = Untimed("no other side can run it", skipped=True)


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
    """By label, the reference first: Python, packages, settings and the import time of TensorFlow, if the side starts."""
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
    def outcomes(self) -> list[Outcome | None]:
        """The outcomes of all comparisons with the reference."""
        return [result.outcome for row in self.rows for result in row.results if result.ratio]

    @property
    def has_regression(self) -> bool:
        """Whether a case is slower on any side."""
        return Outcome.REGRESSED in self.outcomes

    @property
    def has_gaps(self) -> bool:
        """Whether a case has no time on a side that did not skip it."""
        entries = (entry for row in self.rows for entry in row.entries)
        return any(isinstance(entry, Untimed) and not entry.skipped for entry in entries)


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

    A side that does not start has that as the reason in its cases.

    Raises:
        SideError: The reference does not start, or none of the other sides does.
    """
    began = time.monotonic()
    environments = list(dict.fromkeys(case.env for case in cases))
    progress(f"starting {len(sides)} sides")
    broken = _not_starting(launcher, sides, environments, range(policy.looks[0]))
    pairs = min(policy.zygotes, max(policy.looks[0], policy.zygotes_together // len(sides)))
    config = RaceConfig(len(cases) * (len(sides) - 1), range(pairs))

    def row(number: int, case: Case) -> Row:
        missing = {side.name: why for side in sides if (why := broken.get((side.name, case.env)))}
        racing = [side for side in sides if side.name not in missing]
        if sides[0].name in missing or len(racing) < 2:
            why = _NO_REFERENCE if sides[0].name in missing else _NO_OTHER
            return Row(case, tuple(missing.get(side.name, why) for side in sides))
        entrants = [Entrant(case, side) for side in racing]
        text = f"{number}/{len(cases)} {case.short_name}"
        progress(text)
        Prober(launcher, policy).share(entrants)
        made = Race(entrants, launcher, policy, config, time.perf_counter, rng)
        made.run(lambda race: progress(f"{text}, {len(race.launches)} launches"))
        entries = {**missing, **{side.name: _entry(made, index) for index, side in enumerate(racing)}}
        return Row(case, tuple(entries[side.name] for side in sides))

    rows = tuple(row(number, case) for number, case in enumerate(cases))
    return Matrix({side.name: _describe(launcher, side) for side in sides}, rows, time.monotonic() - began)


def _not_starting(
    launcher: ProcessLauncher, sides: Sequence[Side], environments: Sequence[Environment], pairs: Sequence[int]
) -> dict[tuple[str, Environment], Untimed]:
    """Start the sides in all environments; return the sides that do not start, by name and environment.

    Raises:
        SideError: The reference starts in no environment, or no other side does.
    """
    try:
        launcher.ready([(side, env) for side in sides for env in environments], pairs)
        return {}
    except SideError as error:
        first = error  # it tells what the side printed
    found: dict[tuple[str, Environment], SideError] = {}
    for side in sides:
        for env in environments:
            try:
                launcher.ready([(side, env)], pairs)
            except SideError as error:
                found[side.name, env] = error
    starting = [side for side in sides if any((side.name, env) not in found for env in environments)]
    if sides[0] not in starting or len(starting) < 2:
        raise first
    return {key: Untimed(f"does not start: {str(error).partition(chr(10))[0]}") for key, error in found.items()}


def _entry(race: Race, index: int) -> Entry:
    if (failure := race.failures.get(index)) is not None:
        if isinstance(failure, BenchmarkSkipped):
            return Untimed(f"skipped: {failure}", skipped=True)
        printed = getattr(failure, "output", "").strip().splitlines()
        return Untimed(f"broke: {failure}{f'; its last output: {printed[-1].strip()}' if printed else ''}")
    if race.reference != 0:
        return _NO_REFERENCE
    if race.abort_reason:
        return Untimed(f"disturbed: {race.abort_reason}")
    if not race.runs(index):
        return _NO_OTHER
    return of_variant(race, index).variant_result or Untimed("it was not timed")


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    shown: JSON = {
        key: environment[key] for key in ("python", "packages", "settings", "defaults") if key in environment
    }
    return {"spec": side.spec, **shown, "import_seconds": launcher.import_seconds(side)}
