"""Verdicts, the report of a run with them, and where its sides come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct

from tfbench.model.case import JSON, TIME, Case, Word
from tfbench.model.formats import (
    Amount,
    Count,
    Digest,
    Fraction,
    Free,
    Name,
    Number,
    Seconds,
    Text,
    Texts,
    Time,
    exactly,
)
from tfbench.model.measurement import Calls, Ratio, StoredRounds
from tfbench.model.reasons import Reason

# Results of comparisons, with their outcomes and reasons


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of contender to baseline after the launches so far."""

    ratio: Ratio
    launches: int
    rounds: int

    @property
    def columns(self) -> JSON:
        """What a verdict states of it."""
        return {"ratio": self.ratio, "launches": self.launches, "rounds": self.rounds}


class Outcome(Word):
    """The nine verdicts."""

    UNCHANGED = "unchanged"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    MISSING = "missing"
    ERROR = "error"
    UNGATED = "ungated"
    """It would have prevented a pass, and the mark of the case says why it must not."""


DECIDED = (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)
"""Outcomes of a comparison. An inconclusive one may have been compared too."""


Of = TypeVar("Of")
Row = TypeVar("Row", bound="CaseRow")


class Both(Struct, Generic[Of], frozen=True):
    """A value of the baseline and that of the contender."""

    baseline: Of
    contender: Of

    def __iter__(self) -> Iterator[Of]:
        return iter((self.baseline, self.contender))


class Thresholds(Struct, frozen=True):
    """What a case has instead of the thresholds of the policy."""

    minimum_effect: Fraction
    tolerance: Fraction


class CaseRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the rows about a case: what the file has of it. Fields that are null or empty are left out of the file."""

    name: Name = msgspec.field(name="case")
    workload: Name
    variant: Texts = msgspec.field(default_factory=dict)
    group: Text = ""
    """``""`` if that is its name without parameters."""
    thresholds: Thresholds | None = None

    @classmethod
    def about(cls: type[Row], case: Case, **columns: Any) -> Row:
        """Make the row of a case with these further columns."""
        group = "" if case.group == case.name.partition("[")[0] else case.group
        own = Thresholds(**dict(case.thresholds)) if case.thresholds else None
        known: JSON = {"name": case.name, "workload": case.workload, "variant": case.levels, "group": group}
        return cls(**known, thresholds=own, **columns)

    def changed(self: Row, **columns: Any) -> Row:
        """Return the row with other values in these columns."""
        return msgspec.structs.replace(self, **columns)

    @property
    def case(self) -> Case:
        """The case, as far as the file has it."""
        return Case(
            self.name,
            self.workload,
            self.group or self.name.partition("[")[0],
            tuple(sorted(self.variant.items())),
            thresholds=tuple(msgspec.structs.asdict(self.thresholds).items()) if self.thresholds else (),
        )


class Verdict(CaseRow, frozen=True, kw_only=True, omit_defaults=True):
    """One row of the report.

    Raises `ValueError` if it compares times without a ratio, launches and rounds: such a verdict has lost its evidence.
    """

    outcome: Outcome
    reason: Reason
    metric: Name
    ratio: Ratio | None = None
    launches: Count
    rounds: Count
    wall_seconds: Seconds
    values: Both[float | None] | None = None
    """The metric's values. Times have none, because they are ratios."""
    unit: Annotated[str, Meta(max_length=20)] = ""
    rates: dict[Annotated[str, exactly("items/s|B/s|FLOP/s")], Both[float | None]] = msgspec.field(default_factory=dict)
    """Of a verdict on time: unit of a throughput -> that of both sides, see `tfbench.stats.rounds`."""
    calls: Both[Calls] | None = None
    """Of a verdict on time after a live race: the calls of both sides."""
    tail: Ratio | None = None
    """Of the same: the ratio of the geometric means of the calls; ``None`` where the tail is not judged."""

    def __post_init__(self) -> None:
        if self.compares_times and not (self.ratio and self.launches and self.rounds):
            raise ValueError(f"{self.name} has the verdict {self.outcome} on time without the rounds that show it")

    @property
    def compares_times(self) -> bool:
        """Whether it says that one time is longer than another, or as long."""
        return self.metric == TIME and (self.ratio is not None or self.outcome in DECIDED)

    @classmethod
    def of(cls, case: Case, outcome: Outcome, reason: Reason, metric: str = TIME, **columns: Any) -> Verdict:
        """Make the row of a case. Of ``values``, ``rates`` and ``calls``, the baseline's comes first."""
        columns = {"launches": 0, "rounds": 0, "wall_seconds": 0.0, **columns}
        columns |= {name: Both(*columns[name]) for name in ("values", "calls") if columns.get(name)}
        columns["rates"] = {unit: Both(*both) for unit, both in columns.get("rates", {}).items()}
        return cls.about(case, outcome=outcome, reason=reason, metric=metric, **columns)

    def noted(self, *notes: Reason | None) -> Verdict:
        """Return the verdict with further notes on its reason."""
        return self.changed(reason=self.reason.noted(*notes))


if TYPE_CHECKING:
    VariantFacts = JSON
else:

    class VariantFacts(Free):
        """What a variant's launches tell besides times. Readers compute with these numbers."""

        fields = TypedDict(
            "VariantFacts",
            {
                **dict.fromkeys(("first_call", "p90", "dispatch_time"), Seconds),
                **dict.fromkeys(("peak_host_memory", "artifact_bytes", "artifact_gzipped_bytes"), Amount),
                **dict.fromkeys(("flops", "bytes", "items", "share", "device_share"), Amount),
                "accuracy": float,
            },
            total=False,
        )


class VariantResult(CaseRow, frozen=True, kw_only=True, omit_defaults=True):
    """The time of a variant compared with the reference variant of its workload, in one run."""

    reference: Name
    """Name of the reference case, which can be this case."""
    median_seconds: Time
    ratio: Ratio | None = None
    """Variant / reference; ``None`` for the reference itself."""
    outcome: Outcome | None = None
    launches: Count
    rounds: Count
    facts: VariantFacts = msgspec.field(default_factory=dict)
    cpus: Count = 1
    """Processors that it may use, 0 for every one of the run."""


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """The verdict on the mean time of all cases that were compared with the baseline."""

    limit: Annotated[float, Meta(gt=0, le=1)]
    """The slowdown of the mean that the run was asked to find, as a fraction."""
    outcome: Outcome
    reason: Reason
    cases: Count
    """Cases in the mean."""
    ratio: Ratio | None = None


class Skip(CaseRow, frozen=True, kw_only=True, omit_defaults=True):
    """A case that cannot run on this machine or side, with the reason."""

    reason: Text


# The environment of a side, and the conditions under which a run measured it


_Package = Annotated[str, exactly(r"[A-Za-z0-9][A-Za-z0-9_.-]*")]
_Version = Annotated[str, exactly(r"[A-Za-z0-9_.!+-]+")]
"""What may be passed on to the installer: a name and a version, and neither an option nor an address."""
_Variable = Annotated[str, exactly("[A-Za-z_][A-Za-z0-9_]*")]
_Value = Annotated[str, exactly(r"[^\0]*")]


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """The environment of a side, complete enough to recreate it."""

    python: Text
    """Version of the interpreter, such as ``3.11.7``."""
    executable: Text
    packages: Mapping[_Package, _Version]
    """Distribution -> version, of the packages that can change a time."""
    commit: Text
    """Commit of the benchmarks' checkout, ``""`` outside version control."""
    dirty: bool
    """Whether the checkout had uncommitted changes."""
    settings: Mapping[_Variable, _Value]
    """Environment variables that change TensorFlow's behaviour."""
    cpus: tuple[Count, ...]
    threads: Count
    machine: Texts
    """Processor, digest of its flags, cores, devices."""


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """The conditions of a run. Times of two sessions are comparable only under the same conditions."""

    session: Name
    """Unique name of the run: its start time and random letters."""
    environment: EnvironmentInfo
    tree: Annotated[str, exactly("[0-9a-z]{0,64}")]
    """git's hash of the source tree, ``""`` outside version control. It names a folder, and an argument of git."""
    policy: Text


BASELINE_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""What names a saved baseline. It can be an argument in a shell."""
BaselineName = Annotated[str, exactly(BASELINE_NAME)]

# The report of a run, and the error rates that a calibration measures


if TYPE_CHECKING:
    PolicyContent = JSON
    Sides = Mapping[str, JSON]
    Shard = JSON
    ProfileEntry = JSON
else:
    PolicyContent = dict[
        Annotated[str, Meta(max_length=200)],
        int
        | float
        | bool
        | Annotated[str, Meta(max_length=2000)]
        | Annotated[list[int | float], Meta(max_length=1000)]
        | None,
    ]
    _Commit, _Sha256 = "[0-9a-f]{40}|[0-9a-f]{64}", "[0-9a-f]{64}"

    class _Code(TypedDict):
        spec: Text
        commit: Annotated[str, exactly(f"({_Commit})?")]
        """The commit that is checked out; empty without one."""
        dirty: bool
        """Whether the tree is another one than the commit's."""
        tree: Annotated[str, exactly(f"{_Commit}|sources:{_Sha256}|session:.{{1,200}}")]
        """What was raced: git's hash of the tree. Without git, a SHA-256 of the files of code; of a baseline that was
        saved without git, the run that measured it."""

    class _Side(_Code, total=False):
        saved: BaselineName
        """Of a side that is a saved baseline: its name."""
        root: Text
        python: Text
        executable: Text
        slowdown: float
        import_seconds: Seconds | None
        packages: Texts
        settings: Texts
        defaults: Texts
        machine: Texts

    class SideInfo(Free):
        """What a side was: its specification and code, and of a started one its Python, packages and machine."""

        fields = _Side

    class Sides(TypedDict, total=False):
        """The sides that the run had."""

        baseline: SideInfo
        contender: SideInfo

    class _Part(TypedDict):
        index: Number
        of: Number
        suite: Digest
        suite_cases: Count
        cases: Annotated[list[Name], Meta(max_length=100_000)]

    class Shard(_Part, total=False):
        """The part of a suite that was measured. ``suite`` is a digest of the names of all its cases."""

        job: Digest
        """Of the job of a fleet."""

    class ProfileEntry(TypedDict):
        """The steps of one side of a case in its profiles. Times are seconds per step."""

        schema: Literal["tfbench-profile/1"]
        case: Name
        side: Annotated[str, exactly("baseline|contender")]
        folder: Text
        why: Annotated[list[Text], Meta(max_length=5)]
        step: Seconds
        time: Annotated[dict[Text, Seconds], Meta(max_length=20)]
        """Category of time, such as ``waiting for input`` -> seconds."""


_Rows = Meta(max_length=100_000)


@dataclass(frozen=True, slots=True)
class YardstickChange:
    """A definition of a benchmark file that the run has raced on both sides, and that the baseline has otherwise."""

    file: Name
    """Relative to the top of the checkout."""
    name: Text
    """Of the function, fixture or other definition; ``""`` for a file that is no code."""
    before: Text
    """Its first line that differs; ``""`` if there is none, since the definition is new."""
    now: Text


@dataclass(frozen=True, slots=True)
class Report:
    """The complete results of a run: what ``--report-json`` writes.

    Times are seconds, ratios are contender / baseline.
    """

    policy: PolicyContent
    sides: Sides
    verdicts: Annotated[tuple[Verdict, ...], _Rows] = ()
    variant_results: Annotated[tuple[VariantResult, ...], _Rows] = ()
    skips: Annotated[tuple[Skip, ...], _Rows] = ()
    wall_seconds: Seconds = 0.0
    seconds_by_phase: Annotated[Mapping[Name, Seconds], Meta(max_length=100)] = field(default_factory=dict)
    """What the wall time was spent on, see `tfbench.race.timer`; summed over the shards of a merged report."""
    seconds_by_case: Mapping[Name, Seconds] = field(default_factory=dict)
    """Name of a case -> wall time that it cost, from its race to its profiles and without the start of zygotes.

    Variants that race each other share their cost equally. A case that was taken from an interrupted run is absent.
    """
    seed: int = 0
    interrupted: bool = False
    due: Annotated[tuple[Name, ...], _Rows] = ()
    """Names of the cases that the run had to measure, fixed before it measured anything, and of missing ones."""
    complete: bool = False
    """Whether the run wrote this report at its end. No decision is made from a report without true here."""
    shard: Shard | None = None
    """The part of the suite, see `tfbench.suite.shards`. ``None`` for the whole suite."""
    suite: SuiteVerdict | None = None
    """The verdict on the mean of all cases; ``None`` if the run was not asked for it."""
    profiles: Annotated[tuple[ProfileEntry, ...], Meta(max_length=10_000)] = ()
    """Contents of the profiles, one entry per case and side, see `tfbench.report.profile`."""
    yardstick: Annotated[tuple[YardstickChange, ...], Meta(max_length=1000)] = ()
    """The changes of the benchmarks themselves, which judge both sides as the contender has them."""
    rounds: Annotated[tuple[StoredRounds, ...], Meta(max_length=200_000)] = ()
    """The rounds of each case and side that was raced live."""
    schema: Literal["tfbench-report/1"] = "tfbench-report/1"

    @property
    def gap(self) -> str:
        """Why this report is incomplete; ``""`` if each case that was due has one row on time or a skip."""
        if not self.complete:
            return (
                "it has saved times, and no run compared them" if self.is_saved else "the run did not come to its end"
            )
        rows = [row.case.name for row in self.verdicts if row.metric == TIME]
        answers = Counter([*rows, *(skip.case.name for skip in self.skips)])
        due = set(self.due)
        if stranger := next((name for name in answers if name not in due), ""):
            return f"it has a result of {stranger}, which was not due"
        if name := next((name for name in self.due if answers[name] != 1), ""):
            return f"{name} was due and has {answers[name] or 'no'} results"
        return ""

    @property
    def is_saved(self) -> bool:
        """Whether it shows saved times, which no run compared: a run fixes the cases that are due before it measures one."""
        return bool(self.verdicts) and not self.due and not self.complete

    def why(self, case: str) -> list[str]:
        """Return the explanation of a regressed case by its latest profiles, as lines."""
        return next((profile["why"] for profile in reversed(self.profiles) if profile["case"] == case), [])
