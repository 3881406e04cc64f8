"""Hold every threshold and budget in one immutable value, each with its reason."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.errors import UsageError
from tfbench.model import JSON, STATISTICS
from tfbench.model.thresholds.decision import DecisionThresholds
from tfbench.model.thresholds.gpus import GpuThresholds
from tfbench.model.thresholds.history import HistoryThresholds
from tfbench.model.thresholds.launches import LaunchBudgets
from tfbench.model.thresholds.limits import TimeLimits
from tfbench.model.thresholds.metrics import MetricThresholds
from tfbench.model.thresholds.noise import NoiseThresholds
from tfbench.model.thresholds.profiles import ProfileThresholds
from tfbench.model.thresholds.saved_times import SavedTimesThresholds


class Thresholds(NamedTuple):
    """What decides about a duration: the effects that matter, and the noise to expect of unchanged code."""

    minimum_effect: float
    tolerance: float
    launch_deviation: float
    zygote_deviation: float

    def confirming(self) -> Thresholds:
        """Return these for a race that confirms a change: it is `unchanged` only if less than the minimum effect.

        Such a race asks whether the change exceeds the minimum effect. Where it is about as large as the tolerance, an
        interval within the tolerance is often found first, and would end the race before it can answer.
        """
        return self._replace(tolerance=self.minimum_effect)


_FEWEST_PAIRS = 2  # with one pair of zygotes, its bias would be taken for a difference


@dataclass(frozen=True, slots=True)
class Policy(
    DecisionThresholds, NoiseThresholds, LaunchBudgets, MetricThresholds, SavedTimesThresholds, ProfileThresholds,
    GpuThresholds, HistoryThresholds, TimeLimits,
):  # fmt: skip
    """Set the certainty and the cost of a run. Fractions are of one, times are in seconds."""

    name: str = "standard"

    def __post_init__(self) -> None:
        looks = self.looks and self.looks[0] >= 2 and list(self.looks) == sorted(set(self.looks))
        first_call = 0 < self.first_call_effect < self.first_call_tolerance < 1
        probes = min(self.probe_calls, self.probes_at_once, self.probe_launches)
        counts = min(probes, self.memory_launches, self.alone_launches, self.suite_passes)
        limits = min(self.overrun, self.output_bytes, self.file_bytes)
        rules = {
            "0 < minimum_effect < tolerance < 1 must hold": 0 < self.minimum_effect < self.tolerance < 1,
            "0 < tail_effect < tail_tolerance < 1 must hold": 0 < self.tail_effect < self.tail_tolerance < 1,
            "tail_alpha must lie between 0 and 1": 0 < self.tail_alpha < 1,
            "tail_rounds must be at least 1, and tail_launch_seconds 0": self.tail_rounds >= 1
            and self.tail_launch_seconds >= 0,
            f"statistic must be one of {', '.join(STATISTICS)}": self.statistic in STATISTICS,
            "alpha must lie between 0 and 0.5": 0 < self.alpha < 0.5,
            "min_compared must be a share from 0 to 1": 0 <= self.min_compared <= 1,
            "changed_only_share must lie between 0 and 1": 0 < self.changed_only_share <= 1,
            "alpha_case must lie between 0 and 0.5": 0 < self.alpha_case < 0.5,
            "alpha_unchanged must lie between 0 and 0.25": 0 < self.alpha_unchanged < 0.25,
            "looks must be increasing numbers of launches, the first at least 2": looks,
            "zygotes, first_zygotes and ancestors must be at least 1": min(
                self.zygotes, self.first_zygotes, self.ancestors
            )
            >= 1,
            "most_zygotes_after must be at least more_zygotes_after": self.more_zygotes_after
            <= self.most_zygotes_after,
            "overrun, output_bytes and file_bytes must be at least 1": limits >= 1,
            "screen_tolerance must be at least tolerance": self.screen_tolerance >= self.tolerance,
            "0 < first_call_effect < first_call_tolerance < 1 must hold": first_call,
            "0 < once_effects[0] < once_effects[1] < 1 must hold": 0 < self.once_effects[0] < self.once_effects[1] < 1,
            "probe_calls, probes_at_once, the numbers of launches and suite_passes must be at least 1": counts >= 1,
            "leak_windows must be at least 2 windows of 2 calls": min(self.leak_windows) >= 2,
            "bisect_retry_factor and repro_launches must be at least 1": min(
                self.bisect_retry_factor, self.repro_launches
            )
            >= 1,
            "sessions must be at least 3, and floor_launches 1": self.sessions >= 3 and self.floor_launches >= 1,
        }
        for rule, holds in rules.items():
            if not holds:
                raise UsageError(f"policy {self.name}: {rule}")

    def with_slowdown(self, smallest: float) -> Policy:
        """Return this policy with another smallest slowdown that counts: 0.1 for 10%.

        A slowdown of twice this size must not pass as unchanged.

        Raises:
            UsageError: It does not lie between 0 and 0.5.
        """
        if not 0 < smallest < 0.5:
            raise UsageError(f"a smallest slowdown of {smallest:g}: give a fraction between 0 and 0.5, such as 0.05")
        tolerance = 2 * smallest
        screen = max(self.screen_tolerance, tolerance)
        return dataclasses.replace(self, minimum_effect=smallest, tolerance=tolerance, screen_tolerance=screen)

    @property
    def step_time(self) -> Thresholds:
        return Thresholds(self.minimum_effect, self.tolerance, self.launch_deviation, self.zygote_deviation)

    @property
    def tail_time(self) -> Thresholds:
        """Thresholds of the geometric mean of calls. A case with looser thresholds of its own has looser ones here, too."""
        effect = max(self.tail_effect, self.minimum_effect)
        tolerance = max(self.tail_tolerance, self.tolerance, 2 * effect)
        return Thresholds(effect, tolerance, self.launch_deviation, self.zygote_deviation)

    @property
    def first_call(self) -> Thresholds:
        return Thresholds(
            self.first_call_effect, self.first_call_tolerance,
            self.first_call_deviation, self.first_call_zygote_deviation,
        )  # fmt: skip

    @property
    def once(self) -> Thresholds:
        return Thresholds(*self.once_effects, self.first_call_deviation, self.first_call_zygote_deviation)

    @property
    def memory(self) -> Thresholds:
        """Thresholds of the peak of host memory."""
        return Thresholds(
            self.memory_tolerance, 2 * self.memory_tolerance, self.memory_deviation, self.memory_zygote_deviation
        )

    def patient(self) -> Policy:
        """Return the policy for a race that was inconclusive: more launches and zygotes, see `bisect_retry_factor`."""
        last, factor = self.looks[-1], self.bisect_retry_factor
        more = {round(last * (1 + (factor - 1) * share)) for share in (0.25, 0.5, 1)}
        looks = (*self.looks, *sorted(more - {last}))
        zygotes, alive = 2 * self.zygotes, 2 * self.zygotes_alive
        seconds = factor * self.case_seconds
        return dataclasses.replace(self, looks=looks, zygotes=zygotes, zygotes_alive=alive, case_seconds=seconds)

    def with_common_ancestors(self) -> Policy:
        """Return the policy for a race of two sides whose zygotes have common ancestors."""
        zygotes = min(self.ancestors * self._groups(self.looks[-1] - 1), self.zygotes)
        deviation = min(self.ancestor_deviation, self.zygote_deviation)
        return dataclasses.replace(self, zygotes=zygotes, first_zygotes=self.ancestors, zygote_deviation=deviation)

    def _groups(self, launches: int) -> int:
        """Return how many groups of zygotes, each as many as the first ones, take turns after so many launches."""
        return 1 + sum(launches >= after for after in (self.more_zygotes_after, self.most_zygotes_after))

    def pair_order(self) -> tuple[int, ...]:
        """Return the pair of zygotes of each launch of a race of two sides: the one with the fewest launches so far."""
        used = [0] * self.zygotes
        order = list[int]()
        for launch in range(self.looks[-1]):
            among = used[: self.first_zygotes * self._groups(launch)]
            order.append(among.index(min(among)))
            used[order[-1]] += 1
        return tuple(order)

    def pairs(self, pools: int) -> int:
        """Return the pairs of zygotes that a race starts at most.

        Args:
            pools: Number of its sides, times the number of their environments.
        """
        alive = self.zygotes_alive if pools <= 2 else self.zygotes_variants
        return min(self.zygotes, max(_FEWEST_PAIRS, alive // pools))

    def warmup(self, brief: bool = False) -> tuple[float, float, float]:
        """Seconds, limit and steadiness of the warm-up, as messages have them; nearly none for a ``brief`` launch."""
        full = self.warmup_seconds, self.warmup_limit_seconds, self.warmup_steady
        return (0.0, self.warmup_seconds, 1.0) if brief else full

    def as_json(self) -> JSON:
        """Return every field under its own name, for the report."""
        return dataclasses.asdict(self)


RENAMED_FIELDS = {
    "first_call_slack": "first_call_abs_tolerance",
    "memory_slack": "memory_abs_tolerance",
    "patience": "bisect_retry_factor",
}
"""Field name in reports of earlier versions -> current field name."""

# Detects 5%, where standard detects 3%, with a first look after two launches.
_QUICK = Policy(
    "quick", minimum_effect=0.02, tolerance=0.05, tail_tolerance=0.06, looks=(2, 3, 5, 8, 13, 20), zygotes=6, ancestors=2, more_zygotes_after=5,
    floor_launches=3, rounds_max=150, case_seconds=40.0, sampled_seconds=5.0, repro_launches=3, hopeless=4.0,
)  # fmt: skip
# Detects 1%, for three to ten times the launches. The first 32 come from eight pairs, so that those of both races fit
# among the live zygotes and serve one case after another. Any other graph counts.
_STRICT = Policy(
    "strict", minimum_effect=0.0015, tolerance=0.01, tail_effect=0.01, tail_tolerance=0.05,
    looks=(*range(4, 15), 16, 18, 20, 22, 25, 28, 32, 40, 50, 64, 100, 200),
    zygotes=16, ancestors=8, more_zygotes_after=32, most_zygotes_after=32, zygotes_alive=32,
    exact_across_versions=True, alone_launches=4, case_seconds=300.0, sampled_seconds=30.0,
)  # fmt: skip
PRESETS = {policy.name: policy for policy in (_QUICK, Policy(), _STRICT)}


def preset(name: str) -> Policy:
    """Return the preset with this name. Raises `UsageError` if there is none."""
    if name not in PRESETS:
        raise UsageError(f"no policy named {name!r}; the policies are {', '.join(PRESETS)}")
    return PRESETS[name]
