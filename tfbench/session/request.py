"""What is asked of a session, how far it is, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.model import JSON, Case, MetricValues, Outcome, Sample, VariantResult, Verdict
from tfbench.policy import Policy
from tfbench.race.process_launcher import Processors
from tfbench.race.profiler import USUAL, ProfilerConfig
from tfbench.race.race import Race
from tfbench.race.zygote import Suite
from tfbench.suite.shards import Shard


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for."""

    root: Path
    suite: Suite
    policy: Policy
    processors: Processors
    executable: str
    folder: Path
    """Where baselines and made source trees are kept."""
    collect_command: tuple[str, ...]
    """Starts a process that collects another source tree, see `sides.counterparts`."""
    against: str = ""
    baseline: str = ""
    replay: str = "all"
    save: str = ""
    slowdown: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)
    require_gpu: bool = False
    device: str = "all"
    """``cpu``, ``gpu`` or ``all``."""
    gpus: tuple[str, ...] = ()
    """Indices or UUIDs of those that were named; all of them without any."""
    seed: int = 0
    expected: tuple[str, ...] | None = None
    """Files and folders whose saved cases this run ought to have, or ``None`` for all of them."""
    selection: tuple[str, ...] = ()
    """Options of pytest's that chose the cases, as ``-k`` and what follows it."""
    paths: tuple[str, ...] = ()
    """Files, folders and cases that pytest was given, relative to the root; none if it was given none."""
    shard: Shard | None = None
    """The part of the suite that this run is."""
    suite_cases: tuple[str, ...] = ()
    """Names of the cases of all shards."""
    collected: frozenset[str] = frozenset()
    """Every case there is in those files, deselected ones included."""
    profile: Path | None = None
    """Where each case's profile goes; none are taken without."""
    profile_regressed: Path | None = None
    """Where both sides' profiles of a case that regressed go."""
    profiler_config: ProfilerConfig = USUAL


@dataclass(frozen=True)
class RunProgress:
    """How far the run is, for whoever draws it."""

    text: str
    race: Race | None = None
    done: int = 0
    total: int = 0


Progress = Callable[[RunProgress], None]


@dataclass(frozen=True)
class CaseResult:
    """What became of one case. One of ``verdict`` and ``skip`` is there."""

    case: Case
    verdict: Verdict | None = None
    skip: str = ""
    variant_result: VariantResult | None = None
    sample: Sample | None = None
    rival: Sample | None = None
    """Of the baseline's side, where it was raced."""
    metrics: tuple[Verdict, ...] = ()
    """On what else the case shows, and on its contracts."""
    metric_values: MetricValues | None = None
    output: str = ""
    """What the broken process printed last."""
    profiles: tuple[JSON, ...] = ()
    """Of its sides, as a report has them."""
    why: tuple[str, ...] = ()
    """What profiles say of a slowdown, or why they say nothing; at most five lines."""

    @property
    def rows(self) -> tuple[Verdict, ...]:
        """Every verdict on the case, the one on its time first."""
        return (*([self.verdict] if self.verdict else []), *self.metrics)

    @property
    def failures(self) -> list[Verdict]:
        """Those that fail a test."""
        return [row for row in self.rows if row.outcome in (Outcome.REGRESSED, Outcome.ERROR)]
