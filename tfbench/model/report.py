"""The report of a run, and where its sides come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tfbench.model.case import JSON, TIME
from tfbench.model.measurement import StoredRounds
from tfbench.model.verdict import Skip, SuiteVerdict, VariantResult, Verdict
from tfbench.untrusted import a_flag, a_list, a_text, an_integer, an_object, brief, texts

# The environment of a side, and the conditions under which a run measured it


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """The environment of a side, complete enough to recreate it."""

    python: str
    """Version of the interpreter, such as ``3.11.7``."""
    executable: str
    packages: Mapping[str, str]
    """Distribution -> version, of the packages that can change a time."""
    commit: str
    """Commit of the benchmarks' checkout, ``""`` outside version control."""
    dirty: bool
    """Whether the checkout had uncommitted changes."""
    settings: Mapping[str, str]
    """Environment variables that change TensorFlow's behaviour."""
    cpus: tuple[int, ...]
    threads: int
    machine: Mapping[str, str]
    """Processor, digest of its flags, cores, devices."""

    def as_json(self) -> JSON:
        return asdict(self) | {"cpus": list(self.cpus)}

    @staticmethod
    def of_json(content: JSON) -> EnvironmentInfo:
        """Parse the result of `as_json`.

        Raises:
            ValueError, KeyError: The content has another form.
        """
        found = an_object(content, "recipe")
        packages, settings, machine = (texts(found[name], name) for name in ("packages", "settings", "machine"))
        for name, form, words in (
            ("package", _PACKAGE, (f"{package}=={version}" for package, version in packages.items())),
            ("setting", _SETTING, (f"{key}={value}" for key, value in settings.items())),
        ):
            if odd := next((word for word in words if not form.fullmatch(word)), None):
                raise ValueError(f"{brief(odd)!r} is no {name}")
        return EnvironmentInfo(
            python=a_text(found["python"], "python"),
            executable=a_text(found["executable"], "executable"),
            packages=packages,
            commit=a_text(found["commit"], "commit"),
            dirty=a_flag(found["dirty"], "dirty"),
            settings=settings,
            cpus=tuple(an_integer(cpu, "cpus", 0) for cpu in a_list(found["cpus"], "cpus")),
            threads=an_integer(found["threads"], "threads", 0),
            machine=machine,
        )


_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", re.ASCII)
"""What may be passed on to the installer: a name and a version, and neither an option nor an address."""
_SETTING = re.compile(r"[A-Za-z_]\w*=[^\0]*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """The conditions of a run. Times of two sessions are comparable only under the same conditions."""

    session: str
    """Unique name of the run: its start time and random letters."""
    environment: EnvironmentInfo
    tree: str
    """git's hash of the source tree, ``""`` outside version control."""
    policy: str
    way: str
    """``variants`` or ``sides``: the entrants of the races. A block's time depends on the blocks before it."""


# The report of a run, and the error rates that a calibration measures


@dataclass(frozen=True, slots=True)
class Report:
    """The complete results of a run."""

    policy: JSON
    sides: Mapping[str, JSON]
    verdicts: tuple[Verdict, ...] = ()
    variant_results: tuple[VariantResult, ...] = ()
    skips: tuple[Skip, ...] = ()
    wall_seconds: float = 0.0
    seconds_by_phase: Mapping[str, float] = field(default_factory=dict)
    """What the wall time was spent on, see `tfbench.race.timer`; summed over the shards of a merged report.

    Empty in a report of a version that did not tell.
    """
    seconds_by_case: Mapping[str, float] = field(default_factory=dict)
    """Name of a case -> wall time that it cost, from its race to its profiles and without the start of zygotes.

    Variants that race each other share their cost equally. A case that was taken from an interrupted run is absent.
    """
    seed: int = 0
    interrupted: bool = False
    due: tuple[str, ...] = ()
    """Names of the cases that the run had to measure, fixed before it measured anything, and of missing ones."""
    complete: bool | None = None
    """Whether the run wrote this report at its end. ``None`` in a report of a version that did not tell."""
    shard: JSON | None = None
    """The part of the suite, see `tfbench.suite.shards`. ``None`` for the whole suite."""
    suite: SuiteVerdict | None = None
    """The verdict on the mean of all cases; ``None`` if the run was not asked for it."""
    profiles: tuple[JSON, ...] = ()
    """Contents of the profiles, one entry per case and side, see `tfbench.report.profile`."""
    rounds: tuple[StoredRounds, ...] = ()
    """The rounds of each case and side that was raced live. Empty in a report of a version that did not keep them."""
    machines: tuple[JSON, ...] = ()
    """The machines of a fleet: facts, canary, number of jobs. Empty in a report of a run without a job."""

    @property
    def gap(self) -> str:
        """Why this report is incomplete; ``""`` if each case that was due has one row on time or a skip."""
        if self.complete is None:
            return "it does not tell which cases were due; measure again with this version of tfbench"
        if not self.complete:
            return "the run did not come to its end"
        rows = [row.case.name for row in self.verdicts if row.metric == TIME]
        answers = Counter([*rows, *(skip.case.name for skip in self.skips)])
        due = set(self.due)
        if stranger := next((name for name in answers if name not in due), ""):
            return f"it has a result of {stranger}, which was not due"
        if name := next((name for name in self.due if answers[name] != 1), ""):
            return f"{name} was due and has {answers[name] or 'no'} results"
        return ""

    def why(self, case: str) -> list[str]:
        """Return the explanation of a regressed case by its latest profiles, as lines."""
        return next((profile["why"] for profile in reversed(self.profiles) if profile["case"] == case), [])


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of hits among trials, with a 95% interval of the rate."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The observed rate, 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0

    def as_json(self) -> JSON:
        return {"hits": self.hits, "trials": self.trials, "interval": [self.low, self.high]}


@dataclass(frozen=True, slots=True)
class RateRow:
    """The error rates of one workload, or of all workloads, under one method of deciding."""

    name: str
    method: str
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
    nominal: float | None = None
    """The coverage that these intervals claim: the mean of their confidences."""
    tails: Mapping[str, Rate] = field(default_factory=dict)
    """Kind of injected slow calls -> share of its trials with the verdict regressed."""
    seconds_tails: Mapping[str, float] = field(default_factory=dict)
    """The same kind -> median cost of its verdicts."""

    def as_json(self) -> JSON:
        return {
            "name": self.name,
            "method": self.method,
            "false_alarms": self.false_alarms.as_json(),
            "inconclusive": self.inconclusive.as_json(),
            "detected": {str(slowdown): rate.as_json() for slowdown, rate in self.detected.items()},
            "smallest_found": self.smallest_found,
            "seconds": self.seconds,
            "seconds_detected": {str(slowdown): seconds for slowdown, seconds in self.seconds_detected.items()},
            "launches": self.launches,
            "coverage": self.coverage and self.coverage.as_json(),
            "nominal_coverage": self.nominal,
            "tails": {kind: rate.as_json() for kind, rate in self.tails.items()},
            "seconds_tails": dict(self.seconds_tails),
        }
