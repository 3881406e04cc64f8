"""Verdicts, the report of a run with them, and where its sides come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from msgspec import Meta, Struct
from msgspec import field as struct_field

from tfbench.model.case import JSON, TIME, Case, Word
from tfbench.model.formats import (
    FORMS,
    Amount,
    Cost,
    Count,
    Digest,
    Form,
    Fraction,
    Free,
    Name,
    Number,
    Record,
    Seconds,
    Share,
    Text,
    Texts,
    Time,
    exactly,
    plain,
)
from tfbench.model.measurement import Calls, Ratio, StoredRounds
from tfbench.model.reasons import Reason

# Results of comparisons, with their outcomes and reasons


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of contender to baseline after the launches so far."""

    ratio: Ratio
    launches: int
    pairs: int
    rounds: int


class Outcome(Word):
    """The eight verdicts."""

    UNCHANGED = "unchanged"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    MISSING = "missing"
    ERROR = "error"


DECIDED = (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)
"""Outcomes of a comparison. An inconclusive one may have been compared too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the report.

    Raises `ValueError` if it compares times without a ratio, launches and rounds: such a verdict has lost its evidence.
    """

    case: Case
    outcome: Outcome
    reason: Reason
    metric: Name = TIME
    ratio: Ratio | None = None
    launches: Count = 0
    rounds: Count = 0
    wall_seconds: Cost = 0.0
    values: tuple[float | None, float | None] | None = None
    """The metric's values of baseline and contender. Times have none, because they are ratios."""
    unit: Annotated[str, Meta(max_length=20)] = ""
    rates: Mapping[Annotated[str, exactly("items/s|B/s|FLOP/s")], tuple[float | None, float | None]] = field(
        default_factory=dict
    )
    """Of a verdict on time: unit of a throughput -> that of baseline and contender, see `tfbench.stats.rounds`."""
    calls: tuple[Calls, Calls] | None = None
    """Of a verdict on time after a live race: the calls of baseline and contender."""
    tail: Ratio | None = None
    """Of the same: the ratio of the geometric means of the calls; ``None`` where the tail is not judged."""

    def __post_init__(self) -> None:
        if self.compares_times and not (self.ratio and self.launches and self.rounds):
            raise ValueError(f"{self.case.name} has the verdict {self.outcome} on time without the rounds that show it")

    @property
    def compares_times(self) -> bool:
        """Whether it says that one time is longer than another, or as long."""
        return self.metric == TIME and (self.ratio is not None or self.outcome in DECIDED)


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


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The time of a variant compared with the reference variant of its workload, in one run."""

    case: Case
    reference: Name
    """Name of the reference case, which can be this case."""
    median_seconds: Time
    ratio: Ratio | None
    """Variant / reference; ``None`` for the reference itself."""
    outcome: Outcome | None
    launches: Count
    rounds: Count
    facts: VariantFacts = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Skip:
    """A case that cannot run on this machine or side, with the reason."""

    case: Case
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

    class _Part(TypedDict):
        kind: Text
        """Type of an op, an XLA instruction, a kernel, or a stage of the input."""
        category: Text
        seconds: Seconds
        calls: Annotated[float, Meta(ge=0, le=1e9)]

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
        parts: Annotated[list[_Part], Meta(max_length=20)]
        """The longest kinds of work."""


_Rows = Meta(max_length=100_000)


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
    wall_seconds: Cost = 0.0
    seconds_by_phase: Annotated[Mapping[Name, Cost], Meta(max_length=100)] = field(default_factory=dict)
    """What the wall time was spent on, see `tfbench.race.timer`; summed over the shards of a merged report."""
    seconds_by_case: Mapping[Name, Cost] = field(default_factory=dict)
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
    rounds: Annotated[tuple[StoredRounds, ...], Meta(max_length=200_000)] = ()
    """The rounds of each case and side that was raced live."""

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


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of hits among trials, with a 95% interval of the rate."""

    hits: Count
    trials: Count
    interval: tuple[Share, Share]

    @property
    def value(self) -> float:
        """The observed rate, 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]


@dataclass(frozen=True, slots=True)
class RateRow:
    """The error rates of one workload, or of all workloads; as in files."""

    name: str
    false_alarms: Rate
    inconclusive: Rate
    detected: Mapping[float, Rate]
    """Slowdown -> share of its trials with the verdict regressed."""
    smallest_found: float | None
    """The smallest slowdown from which on nearly all trials are detected."""
    seconds: float | None
    """Median cost of a verdict on unchanged code, without the start of zygotes."""
    seconds_detected: Mapping[float, float]
    """Slowdown -> median cost of its verdicts."""
    launches: float | None
    coverage: Rate | None = None
    """Share of verdicts on unchanged code whose intervals hold the true ratio; ``None`` if no trial has intervals."""
    nominal_coverage: float | None = None
    """The coverage that these intervals claim: the mean of their confidences."""
    tails: Mapping[str, Rate] = field(default_factory=dict)
    """Kind of injected slow calls -> share of its trials with the verdict regressed."""
    seconds_tails: Mapping[str, float] = field(default_factory=dict)
    """The same kind -> median cost of its verdicts."""


# The form of a type in the file, where it is another one than in memory


class _Sides(Struct, frozen=True):
    baseline: int | float | None
    contender: int | float | None


class _CallsOfSides(Struct, frozen=True):
    baseline: Calls
    contender: Calls


class _Thresholds(Struct, frozen=True):
    minimum_effect: Fraction
    tolerance: Fraction


class _Reason(Struct, frozen=True, omit_defaults=True):
    code: Name
    message: Text
    facts: Free = struct_field(default_factory=dict)
    notes: tuple[_Reason, ...] = ()


def _written(reason: Reason) -> _Reason:
    return _Reason(str(reason.code), reason.message, dict(reason.facts), tuple(map(_written, reason.notes)) or ())


def _read(row: _Reason) -> Reason:
    return Reason(row.code, row.message, row.facts, tuple(map(_read, row.notes)))


def _pair(kind: Any) -> Form:
    return Form(kind, lambda pair: kind(*pair), lambda row: (row.baseline, row.contender))


FORMS |= {
    Reason: Form(_Reason, _written, _read),
    tuple[float | None, float | None]: _pair(_Sides),
    tuple[Calls, Calls]: _pair(_CallsOfSides),
}


def _full_case(row: Any) -> Case:
    own = row.thresholds
    return Case(
        row.case,
        row.workload,
        row.case.partition("[")[0],
        tuple(sorted(row.variant.items())),
        thresholds=tuple(plain(own).items()) if own else (),
    )


_NAMED = {"case": (Name, lambda case: case.name)}
_VERDICT = Record(
    Verdict,
    {
        **_NAMED,
        "workload": (Name, lambda case: case.workload),
        "variant": (Texts, lambda case: case.levels),
        "thresholds": (
            _Thresholds | None,
            lambda case: _Thresholds(**dict(case.thresholds)) if case.thresholds else None,
        ),
    },
    _full_case,
)
FORMS |= {
    Verdict: _VERDICT.form(),
    VariantResult: Record(VariantResult, _NAMED, lambda row: Case.named(row.case)).form(),
    Skip: Record(Skip, _NAMED, lambda row: Case.named(row.case)).form(),
    SuiteVerdict: Record(SuiteVerdict).form(),
}
