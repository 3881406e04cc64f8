"""Hold every threshold and budget in one immutable value, each with its reason."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.errors import UsageError
from tfbench.model import JSON
from tfbench.model.gpu_thresholds import GpuThresholds
from tfbench.model.history_thresholds import HistoryThresholds
from tfbench.model.profile_thresholds import ProfileThresholds


class Thresholds(NamedTuple):
    """What decides about a duration: the effects that matter, and the noise to expect of unchanged code."""

    minimum_effect: float
    tolerance: float
    launch_deviation: float
    zygote_deviation: float


_FEWEST_PAIRS = 2  # with one pair of zygotes, its bias would be taken for a difference


@dataclass(frozen=True, slots=True)
class Policy(HistoryThresholds, ProfileThresholds, GpuThresholds):
    """Set the certainty and the cost of a run. Fractions are of one, times are in seconds."""

    name: str = "standard"

    # Decision
    minimum_effect: float = 0.01
    """A case is `regressed` if the whole interval lies above 1 + this. Smaller slowdowns lead to no action."""
    tolerance: float = 0.02
    """A case is `unchanged` if the whole interval lies within 1 ± this. It is twice the minimum effect, which leaves
    room for an interval between the two."""
    alpha: float = 0.01
    """Probability that a run reports a case that is not slower by the minimum effect, shared over its cases. It is one
    failing run in a hundred at that edge, and far fewer on the same code."""
    alpha_case: float = 0.05
    """Upper limit for both ends of one stage's interval, however few cases there are, and the level at which saved
    times prove `unchanged`. No second race confirms variants or saved times: at the edge, one in 40 is wrong."""
    alpha_unchanged: float = 0.035
    """Probability that a case at the edge of the tolerance is called `unchanged`, over all looks of its race, if its
    noise is as assumed. With pairs of zygotes at 1.2%, the noisiest measured, it stays below the usual 5%. The cases
    do not share it: a false alarm fails the whole run, a wrong `unchanged` hides one slowdown of a tolerance."""
    min_compared: float = 0.5
    """Least share of a report's cases whose times must have been compared for the gate to pass. Where fewer than half
    were, most of the suite is new, skipped or gone, and a pass would say little about the change."""
    changed_only_share: float = 0.1
    """Share of the cases that race under ``--changed-only`` although their code is the same. The comparison lacks data
    files, among others: of 30 cases that such a change slows down, at least one then races in 96% of the runs."""
    hopeless: float = 4.0
    """A race ends early if a decision would take this many times the launches that its looks and seconds leave, as
    estimated from the interval. The estimate is often wrong by half."""
    looks: tuple[int, ...] = (3, 4, 6, 9, 12, 18, 30)
    """Launches after which the evidence is evaluated. Three detect a large change. Steps of about 1.4 follow, because a
    look at little new evidence wastes alpha. Beyond 30, the zygotes limit the decision, and no launches help."""
    confirm: bool = True
    """A first `regressed` is raced again in fresh launches of fresh zygotes, which share no data with the first."""

    # Prior knowledge of noise, so that few launches suffice
    launch_deviation: float = 0.006
    """Standard deviation between launches of the same code, as a log-ratio: the median of fourteen workloads."""
    zygote_deviation: float = 0.005
    """Standard deviation between pairs of zygotes of the same program: the median of six workloads."""
    ancestor_deviation: float = 0.0015
    """The same if both zygotes of a pair have a common ancestor: measured from 0 to 0.4%."""
    shared_zygote_deviation: float = 0.001
    """The same if both entrants come from one zygote and share its layout."""
    launch_spread: float = 0.5
    """Standard deviation of the logarithm of `launch_deviation` over cases: two in three lie within a factor of 1.6.
    The tails are those of a t distribution, so no case is ruled out."""
    zygote_spread: float = 0.8
    """The same for pairs of zygotes, which were measured from 0 to 1.3%: a factor of 2.2."""
    clip: float = 3.0
    """A launch further from the median than this many deviations counts as if it were there. One process in another
    mode (a tenth of eager launches) must not decide alone."""

    # Saved times that are not raced again
    floor_launches: int = 6
    """Launches whose fastest block represents a session. With six, the floor of unchanged code moved by 0.6 to 0.8%
    between sessions, and medians by 5 to 26%."""
    sessions: int = 5
    """Sessions of a case that are needed to judge a saved time by their spread. With fewer, a t interval is more than
    five deviations wide and decides nothing."""
    screen_tolerance: float = 0.05
    """`--replay suspects` does not race a case whose saved times prove a smaller slowdown than this. The spread between
    sessions rarely proves less, and undecided cases are raced."""

    # Metrics other than time
    once_effects: tuple[float, float] = (0.05, 0.1)
    """Minimum effect and tolerance for a step of `bench.once`, whose noise is that of a first call."""
    first_call_effect: float = 0.15
    """Minimum effect for the first call, which is paid once and takes seconds at most."""
    first_call_tolerance: float = 0.3
    """Tolerance for the first call. A launch gives one sample of it, and hundreds of the step."""
    first_call_abs_tolerance: float = 5e-3
    """Seconds by which first calls may differ, however short they are: a few milliseconds, once, do not matter."""
    first_call_deviation: float = 0.08
    """Standard deviation between launches of the same code, as a log-ratio: the median of 11 cases, which reach from
    0.035 to 0.29."""
    first_call_zygote_deviation: float = 0.02
    """The same between pairs of zygotes."""
    memory_tolerance: float = 0.01
    """Sizes that differ by less than this fraction are equal: files contain dates and names, and allocators round."""
    memory_abs_tolerance: int = 1 << 20
    """Bytes by which peaks of host memory may differ: one of Python's arenas, which take 1 MiB. Launches reuse space
    that their zygote left free in it, and zygotes of different sides leave different amounts."""
    memory_deviation: float = 0.002
    """Standard deviation of a peak of host memory between launches of the same code, as a log-ratio: the median of 35
    cases, which reach from 0.0004 to 0.05."""
    memory_zygote_deviation: float = 0.003
    """The same between pairs of zygotes."""
    sampled_seconds: float = 10.0
    """Seconds of further launches for a first call or a memory peak that is open once the time is decided: two or three
    looks of a cheap case. A first call that takes seconds itself stays inconclusive."""
    memory_launches: int = 3
    """Launches of each side before a memory peak is decided. Fewer say nothing about their scatter."""
    probe_calls: int = 4
    """Calls after the first ones in which retraces and leaked tensors are counted. One call shows what grows with every
    call, and four cost little compared with the start of the process."""
    leak_windows: tuple[int, int] = (4, 50)
    """Windows of calls in which something must grow to be a leak, since caches and pools of threads fill up in the first
    ones, and most calls of each: 1 kB a call is then 50 kB, much more than allocators keep."""
    leak_seconds: tuple[float, float] = (0.4, 5.0)
    """Seconds of all windows, and for a case with `@no_leak`: ten calls in each for steps of 10 ms, and of 0.1 s."""
    leak_bytes: float = 256.0
    """Bytes per call that are none: caches of allocators and of Python grow by some bytes in every window."""
    leak_resident_bytes: float = 16384.0
    """The same for resident memory, which grows in pages and in arenas of up to 1 MiB."""
    leak_objects: float = 1.5
    """Python objects per call that are none. `Model.fit` keeps about one of its own per call (TensorFlow 2.21)."""
    leak_events: float = 0.01
    """Threads, open files and traces per call that are none: one in a hundred calls."""
    probe_launches: int = 3
    """Launches per side that read a differing metric before it counts. A metric that differs among them is not
    exact."""
    exact_across_versions: bool = False
    """Whether exact metrics gate between different environments (TensorFlow versions, settings). Otherwise they only
    explain, because another version may have other graphs on purpose."""
    parity_floor: float = 1e-4
    """Smaller errors of results are rounding: sums of float32 in another order differ by 1e-7 to 1e-5."""
    parity_growth: float = 2.0
    """An error against the reference variant above the floor may grow by this factor, because rounding errors depend on
    the order of a sum."""

    # Zygotes and launches
    zygotes: int = 12
    """Zygotes per side, started when a race needs them. Easy cases need three or four. Where pairs differ by 1.2%
    (eager ops), six leave 30% of unchanged cases undecided and detect 68% of 3% slowdowns. Twelve leave 2% undecided
    and detect 97%. Each takes 66 MB, or 230 MB and 3 s if it imports TensorFlow itself."""
    ancestors: int = 4
    """The same where both sides run the same programs, so that each pair is forked from one ancestor and differs less."""
    zygotes_alive: int = 24
    """Upper limit for the zygotes of a run, beyond which the least recently used ones end: both sides of one race."""
    zygotes_variants: int = 15
    """The same for a race of more than two sides or environments, which share it: with six environments, the processes
    of a run stay below 4 GB of private memory."""
    block_seconds: float = 3e-4
    """Length of a timed block. Faster turns cancel more of a noise burst."""
    device_block_seconds: float = 3e-3
    """The same for devices, whose blocks start with an empty queue and end with a synchronization of at least 12 µs."""
    prime_seconds: float = 4e-4
    """Untimed work before each block, which starts with cold caches. At least one iteration."""
    prime_below_seconds: float = 0.02
    """Longer steps are not primed: they refill the caches in 2% of their time, and priming doubles a round's cost."""
    launch_seconds: float = 0.3
    """Time budget for the rounds of one launch: 300 rounds of 0.3 ms and their priming."""
    rounds_max: int = 300
    """More rounds no longer lower the deviation of a launch."""
    rounds_long: int = 20
    """Of a long step, up to this many rounds may take as long as the preparation took. More launches instead would each
    prepare anew."""
    rounds_min: int = 7
    """A median of fewer rounds is too coarse, however long an iteration takes."""
    sliced_above_seconds: float = 0.02
    """Both sides of longer steps run on one processor at once, whose scheduler alternates them every few milliseconds.
    A burst of noise then hits both. Their processor times are compared."""
    sliced_waiting: float = 0.25
    """Not if a step waits longer than this fraction of the minimum effect, since processor time lacks what it waits."""
    warmup_seconds: float = 0.05
    """Time that a fresh process runs the step before the check for steadiness."""
    settle_seconds: float = 0.01
    """Time that a process which was warmed up on another processor runs the step where it races, to fill the caches
    there. A longer step hides the misses of its first turn."""
    warmup_limit_seconds: float = 0.5
    """The race starts after this time even if the step is not steady."""
    warmup_steady: float = 0.02
    """Largest difference between the floors of two successive intervals of a steady step."""

    # Budgets and time limits
    bisect_retry_factor: int = 3
    """An inconclusive step of a bisection is raced again with this many times the launches, from twice the zygotes. A
    wrong decision there makes the answer wrong, and an inconclusive one only leaves it open."""
    zygotes_together: int = 48
    """Upper limit for the zygotes of all sides of `tfbench versions`: 11 GB of private memory, two sides at their
    limit."""
    start_seconds: float = 120.0
    """Time limit for the start of a zygote, its collection included. An uncompiled TensorFlow imports in 10 s."""
    setup_seconds: float = 120.0
    """Time limit for a launch to call `bench`. XLA compiles a large model in a minute."""
    answer_seconds: float = 60.0
    """Time limit for a worker's answer, in addition to its requested work."""
    overrun: float = 3.0
    """The rounds of a launch may take this many times their planned time, besides `answer_seconds`. Neighbours that use
    the processor slow a launch down, rarely by more."""
    output_bytes: int = 1 << 26
    """Largest output of a launch. TensorFlow's most talkative log of a launch takes a few megabytes, and a step that
    prints in every iteration would fill the disk."""
    file_bytes: int = 1 << 32
    """Largest file that a launch may write. Data sets and models of benchmarks stay far below."""
    case_seconds: float = 60.0
    """Time limit for the race of a group, for each pair of entrants, whether looks are left or not."""

    def __post_init__(self) -> None:
        looks = self.looks and self.looks[0] >= 3 and list(self.looks) == sorted(set(self.looks))
        first_call = 0 < self.first_call_effect < self.first_call_tolerance < 1
        counts = min(self.probe_calls, self.probe_launches, self.memory_launches)
        limits = min(self.overrun, self.output_bytes, self.file_bytes)
        rules = {
            "0 < minimum_effect < tolerance < 1 must hold": 0 < self.minimum_effect < self.tolerance < 1,
            "alpha must lie between 0 and 0.5": 0 < self.alpha < 0.5,
            "min_compared must be a share from 0 to 1": 0 <= self.min_compared <= 1,
            "changed_only_share must lie between 0 and 1": 0 < self.changed_only_share <= 1,
            "alpha_case must lie between 0 and 0.5": 0 < self.alpha_case < 0.5,
            "alpha_unchanged must lie between 0 and 0.25": 0 < self.alpha_unchanged < 0.25,
            "looks must be increasing numbers of launches, the first at least 3": looks,
            "zygotes and ancestors must be at least 1": min(self.zygotes, self.ancestors) >= 1,
            "overrun, output_bytes and file_bytes must be at least 1": limits >= 1,
            "screen_tolerance must be at least tolerance": self.screen_tolerance >= self.tolerance,
            "0 < first_call_effect < first_call_tolerance < 1 must hold": first_call,
            "0 < once_effects[0] < once_effects[1] < 1 must hold": 0 < self.once_effects[0] < self.once_effects[1] < 1,
            "probe_calls, probe_launches and memory_launches must be at least 1": counts >= 1,
            "leak_windows must be at least 2 windows of 2 calls": min(self.leak_windows) >= 2,
            "bisect_retry_factor must be at least 1": self.bisect_retry_factor >= 1,
            "sessions must be at least 3, and floor_launches 1": self.sessions >= 3 and self.floor_launches >= 1,
        }
        for rule, holds in rules.items():
            if not holds:
                raise UsageError(f"policy {self.name}: {rule}")

    @property
    def step_time(self) -> Thresholds:
        return Thresholds(self.minimum_effect, self.tolerance, self.launch_deviation, self.zygote_deviation)

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
        pairs = min(self.ancestors, self.zygotes)
        deviation = min(self.ancestor_deviation, self.zygote_deviation)
        return dataclasses.replace(self, zygotes=pairs, zygote_deviation=deviation)

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

# Detects 5%, where standard detects 3%, in three launches of half the length from three pairs of zygotes.
_QUICK = Policy(
    "quick", minimum_effect=0.02, tolerance=0.05, looks=(3, 4, 6, 9, 13, 20), zygotes=6, ancestors=2, floor_launches=3,
    launch_seconds=0.15, rounds_max=150, case_seconds=40.0, sampled_seconds=5.0,
)  # fmt: skip
# Detects 2% between sides and 1% between variants, for two to four times the launches. Any other graph counts.
_STRICT = Policy(
    "strict", minimum_effect=0.005, tolerance=0.01, looks=(4, 6, 8, 12, 16, 24, 32, 48), zygotes=16, ancestors=8,
    zygotes_alive=32, exact_across_versions=True, case_seconds=180.0, sampled_seconds=30.0,
)  # fmt: skip
PRESETS = {policy.name: policy for policy in (_QUICK, Policy(), _STRICT)}


def preset(name: str) -> Policy:
    """Return the preset with this name. Raises `UsageError` if there is none."""
    if name not in PRESETS:
        raise UsageError(f"no policy named {name!r}; the policies are {', '.join(PRESETS)}")
    return PRESETS[name]
