"""Hold every threshold and budget in one immutable value, each with its reason."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from tfbench.errors import UsageError
from tfbench.model import JSON

FIRST_CALL_DEVIATION = 0.06
"""Standard deviation between launches of the same code, as a log-ratio. The median of 50 cases was 0.044, and that of
104 others 0.031. It is higher so that a case at 0.12, where the noisiest tenth begins, is wrongly called `unchanged` at
the tolerance in less than 5%, also by `quick` after two launches."""
FIRST_CALL_ZYGOTE_DEVIATION = 0.02
"""The same between pairs of zygotes."""
MEMORY_DEVIATION = 0.002
"""Standard deviation of a peak of host memory between launches of the same code, as a log-ratio: the median of 35
cases, which reach from 0.0004 to 0.05."""
MEMORY_ZYGOTE_DEVIATION = 0.003
"""The same between pairs of zygotes."""
DEVICE_DEVIATION = 0.02
"""Standard deviation of device time and energy between launches of the same code to expect, as a log-ratio: that of the counter's
steps."""
ANCESTOR_DEVIATION = 0.0015
"""`zygote_deviation` if both zygotes of a pair have a common ancestor: measured from 0 to 0.4%."""
GPU_CASE_FACTOR = 3.0
"""`case_seconds` of a case on a GPU, as a multiple. Its launches start CUDA and choose kernels, which takes 5 to 10 s
for a model, so that 40 s would be over before the looks are."""
GPU_SETUP_SECONDS = 600.0
"""`setup_seconds` of a launch on a GPU. XLA compiles ResNet-50 and tries its kernels in minutes."""
WARMUP_TRACING_SECONDS = 3.0
"""`warmup_limit_seconds` while its calls trace functions again, as those of a step with batches of many shapes do, one after the
other. A step that always traces takes so long in each launch."""
WARMUP_STEADY = 0.02
"""Largest difference between the floors of two successive intervals of a steady step."""


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


@dataclass(frozen=True, slots=True)
class Policy:
    """Set the certainty and the cost of a run. Fractions are of one, times are in seconds."""

    name: str = "standard"
    _: KW_ONLY

    # Which changes count, and how certain a verdict is

    minimum_effect: float = 0.01
    """A case is `regressed` if the whole interval lies above 1 + this. Smaller slowdowns lead to no action."""
    tolerance: float = 0.02
    """A case is `unchanged` if the whole interval lies within 1 ± this. It is at least twice the minimum effect, which
    leaves room for an interval between the two."""
    statistic: str = "median and tail"
    """What a verdict on time is about, one of `tfbench.model.STATISTICS`. The median has the least noise, and
    the tail covers what it cannot see: slow calls, of which users pay all. ``mean`` has more noise."""
    tail_effect: float = 0.02
    """A case is `regressed` as well if slow calls raise the geometric mean of its calls by more than this: 5% of calls that
    take ten times as long raise it by 12%, and 2% that take sixty times as long by 8.5%."""
    tail_tolerance: float = 0.08
    """A case is `unchanged` if the geometric mean lies within 1 ± this as well. Beside a busy process it scatters by 1 to 3%
    per launch, so that much less would leave unchanged cases undecided. `quick` has less, since its first look has two
    launches, in which a slow call of 2% may happen to be rare."""
    rare_calls: int = 1200
    """Calls of each side that the launches up to the first look have together where these take no longer than
    `RARE_LAUNCH_SECONDS` each: of three calls in a thousand that are slow, so many contain one in 97% of the races. 0 for none."""
    alpha: float = 0.01
    """Probability that a run reports a case that is not slower by the minimum effect, shared over its cases. It is one
    failing run in a hundred at that edge, and far fewer on the same code."""
    alpha_case: float = 0.05
    """Upper limit for both ends of one stage's interval, however few cases there are.
    No second race confirms variants: at the edge, one in 40 is wrong."""
    alpha_unchanged: float = 0.03
    """Probability that a case at the edge of the tolerance is called `unchanged`, over all looks of its race, if its
    noise is as assumed. With pairs of zygotes at 1.2%, the noisiest measured, it stays below the usual 5%, as it does
    where a slowdown is measured a twentieth too small (decision 3). The cases do not share it: a false alarm fails the
    whole run, a wrong `unchanged` hides one slowdown of a tolerance."""
    min_compared: float = 0.5
    """Least share of a report's cases whose times must have been compared for the gate to pass. Where fewer than half
    were, most of the suite is new, skipped or gone, and a pass would say little about the change. Cases that a live side does
    not have do not count."""
    hopeless: float = 2.0
    """A race ends early if a decision would take this many times the launches that its looks and seconds leave, as
    estimated from the interval. The estimate is often wrong by half. `quick` leaves fewer launches, and has 4."""
    looks: tuple[int, ...] = (3, 4, 6, 9, 13, 26, 48, 96)
    """Launches after which the evidence is evaluated. Three detect a large change. Every look costs the others a part of
    alpha, so steps are small where most cases are decided, and then double, for small changes. At deviations of 1.6%, a
    slowdown of 2% is found in 90% of the races, with up to 64 launches in 74%. `strict` has finer steps, which save a
    tenth of its launches."""
    confirm: bool = True
    """A first `regressed` is raced again in fresh launches of fresh zygotes, which share no data with the first."""
    suite_passes: int = 4
    """How often all cases may be raced again to decide their mean, and again to confirm that it is slower. Each pass takes the
    launches of a first look. Where these are two, one pass over 40 cases confirmed 0.5% in six of ten simulated runs."""

    # Prior knowledge of the noise, so that few launches suffice: standard deviations of log-ratios

    launch_deviation: float = 0.006
    """Standard deviation between launches of the same code, as a log-ratio: the median of fourteen workloads on a calm
    machine. To it comes the error that the rounds of a case show."""
    zygote_deviation: float = 0.005
    """Standard deviation between pairs of zygotes of the same program: the median of six workloads."""
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

    # Zygotes, launches, rounds and blocks of a race

    zygotes: int = 12
    """Zygotes per side, started when a race needs them. Easy cases need three or four. Where pairs differ by 1.2%
    (eager ops), six leave 30% of unchanged cases undecided and detect 68% of 3% slowdowns. Twelve leave 2% undecided
    and detect 97%. Each takes 66 MB, or 180 to 230 MB and 3 s if it imports TensorFlow itself."""
    first_zygotes: int = 16
    """At most so many of them take turns in the first launches of a race: all, as none has more."""
    more_zygotes_after: int = 9
    """Launches after which the others take turns, too. Two pairs say little about how far pairs differ, so an interval from
    them stays wide, however many launches there are: with 20 launches of `quick` that differ by 2%, 5% is found in 70% of
    the races from two pairs, and in 98% if four take turns from the sixth launch on."""
    most_zygotes_after: int = 26
    """Launches after which as many more take turns. Where launches differ by 1.5% and pairs by 0.4%, `standard` finds 2% in
    70% of the races from eight pairs, and in 83% from twelve."""
    ancestors: int = 4
    """`first_zygotes` where both sides run the same programs, so that each pair is forked from one ancestor and differs
    less. Such a race has two or three times as many in all."""
    zygotes_alive: int = 24
    """Upper limit for the zygotes of a run, beyond which the least recently used ones end: both sides of one race."""
    zygotes_variants: int = 15
    """The same for a race of more than two sides or environments, which share it: with six environments, the processes
    of a run stay below 4 GB of private memory."""
    alone_launches: int = 3
    """Launches of a case that has nothing to race against. An interval over the launches of a saved run needs three."""
    ahead_launch_seconds: float = 0.6
    """Rounds of a launch of such steps take about this long, because blocks differ by the elements that happen to be ready.
    Seven rounds, as many as ``launch_seconds`` has room for, leave 1.6 to 6 times the error of 25."""
    launch_seconds: float = 0.3
    """Time budget for the rounds of one launch: 300 rounds of 0.3 ms and their priming."""
    rounds_max: int = 300
    """More rounds rarely lower the deviation of a launch."""
    rounds_min: int = 7
    """A median of fewer rounds is too coarse if they take less than `rounds_min_seconds`."""
    warmup_seconds: float = 0.03
    """Time that a fresh process runs the step before the check for steadiness."""
    warmup_limit_seconds: float = 0.5
    """The race starts after this time even if the step is not steady."""

    # How the metrics other than time are sampled and judged

    once_effects: tuple[float, float] = (0.05, 0.1)
    """Minimum effect and tolerance for a step of `bench.once`, whose noise is that of a first call."""
    first_call_effect: float = 0.15
    """Minimum effect for the first call, which is paid once and takes seconds at most."""
    first_call_tolerance: float = 0.3
    """Tolerance for the first call. A launch gives one sample of it, and hundreds of the step."""
    first_call_abs_tolerance: float = 5e-3
    """Seconds by which first calls may differ, however short they are: a few milliseconds, once, do not matter."""
    memory_tolerance: float = 0.01
    """Sizes that differ by less than this fraction are equal: files contain dates and names, and allocators round."""
    sampled_seconds: float = 10.0
    """Seconds of further launches for a first call or a memory peak that is open once the time is decided: two or three
    looks of a cheap case. A first call that takes seconds itself stays inconclusive."""
    probe_calls: int = 4
    """Calls after the first ones in which retraces and leaked tensors are counted. One call shows what grows with every
    call, and four cost little compared with the start of the process."""
    leak_windows: tuple[int, int, int] = (4, 50, 2000)
    """Windows of calls in which something must grow to be a leak, since caches and pools of threads fill up in the first
    ones; most calls of each: 1 kB a call is then 50 kB, much more than allocators keep; and most calls of each with
    `@no_leak` if they are quick: 400 B a call is then 800 kB, which the resident size shows."""
    many_seconds: float = 0.25
    """Seconds for which a probing launch repeats the step to see whether later calls take longer. Two sides side by side
    lengthen a run by a tenth for it."""
    probe_launches: int = 3
    """Launches per side that read a differing metric before it counts. A metric that differs among them is not
    exact. A regression takes as many again, from other zygotes."""
    exact_across_versions: bool = False
    """Whether exact metrics gate between different environments (TensorFlow versions, settings). Otherwise they only
    explain, because another version may have other graphs on purpose."""
    parity_scatter: float = 10.0
    """An error counts from this many times the largest difference between launches of one side. Random results of two equal
    sides reach twice the largest difference among three launches of either in 1% to 3%, and ten times in at most 0.1%
    (400,000 simulated pairs per distribution: normal, uniform, exponential, lognormal, Pareto)."""

    # Which launches on a GPU count, and what a process on a GPU is given

    device_launches: int = 3
    """Profiled launches of each side, from which device time and energy are compared. Each takes seconds on a GPU."""
    device_effect: float = 0.05
    """Minimum effect for device time and energy; the tolerance is twice as much."""
    device_gated: bool = False
    """Whether growth of device time or energy is `regressed`. Otherwise it is reported: where the step has become faster or is
    host-bound, users pay nothing for it."""
    disturbed_launches: int = 5
    """Launches of a race that may be discarded because the GPU was disturbed, before the race ends inconclusive."""

    # Where a race or a process is ended

    start_seconds: float = 120.0
    """Time limit for the start of a zygote, its collection included. An uncompiled TensorFlow imports in 10 s."""
    setup_seconds: float = 120.0
    """Time limit for a launch to call `bench`. XLA compiles a large model in a minute."""
    answer_seconds: float = 60.0
    """Time limit for a worker's answer, in addition to its requested work."""
    output_bytes: int = 1 << 26
    """Largest output of a launch. TensorFlow's most talkative log of a launch takes a few megabytes, and a step that
    prints in every iteration would fill the disk."""
    case_seconds: float = 120.0
    """Time limit for the race of a group, for each pair of entrants, whether looks are left or not. Launches of 50 ms steps
    take 1.2 s, and where they differ by 1.4%, 43 of them find 68% of the slowdowns of 2%, and 96 find 95%."""
    case_launches: int = 6
    """The launches of long steps may take more than `case_seconds`, until there are so many: those of the third look."""

    def with_slowdown(self, smallest: float) -> Policy:
        """Return this policy with another smallest slowdown that counts: 0.1 for 10%.

        A slowdown of twice this size must not pass as unchanged.
        Raises `UsageError` if it does not lie between 0 and 0.5.
        """
        if not 0 < smallest < 0.5:
            raise UsageError(f"a smallest slowdown of {smallest:g}: give a fraction between 0 and 0.5, such as 0.05")
        tolerance = 2 * smallest
        return dataclasses.replace(self, minimum_effect=smallest, tolerance=tolerance)

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
            FIRST_CALL_DEVIATION, FIRST_CALL_ZYGOTE_DEVIATION,
        )  # fmt: skip

    @property
    def once(self) -> Thresholds:
        return Thresholds(*self.once_effects, FIRST_CALL_DEVIATION, FIRST_CALL_ZYGOTE_DEVIATION)

    @property
    def memory(self) -> Thresholds:
        """Thresholds of the peak of host memory."""
        return Thresholds(self.memory_tolerance, 2 * self.memory_tolerance, MEMORY_DEVIATION, MEMORY_ZYGOTE_DEVIATION)

    @property
    def device(self) -> Thresholds:
        """Thresholds of device time and energy."""
        return Thresholds(self.device_effect, 2 * self.device_effect, DEVICE_DEVIATION, self.zygote_deviation)

    def with_device_gate(self, effect: float) -> Policy:
        """Return the policy that gates device time and energy at this effect, or this one if it is 0."""
        return dataclasses.replace(self, device_effect=effect, device_gated=True) if effect else self

    def on_gpu(self) -> Policy:
        """Return the policy for cases on a GPU, whose launches take longer to prepare."""
        seconds = GPU_CASE_FACTOR * self.case_seconds
        return dataclasses.replace(self, case_seconds=seconds, setup_seconds=GPU_SETUP_SECONDS)

    def with_common_ancestors(self) -> Policy:
        """Return the policy for a race of two sides whose zygotes have common ancestors."""
        zygotes = min(self.ancestors * self._groups(self.looks[-1] - 1), self.zygotes)
        deviation = min(ANCESTOR_DEVIATION, self.zygote_deviation)
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

        ``pools`` is the number of its sides, times the number of their environments.
        """
        alive = self.zygotes_alive if pools <= 2 else self.zygotes_variants
        # With one pair of zygotes, its bias would be taken for a difference.
        return min(self.zygotes, max(2, alive // pools))

    def warmup(self, brief: bool = False) -> tuple[float, float, float, float]:
        """Seconds, limits and steadiness of the warm-up, as messages have them; nearly none for a ``brief`` launch."""
        full = self.warmup_seconds, self.warmup_limit_seconds, WARMUP_STEADY, WARMUP_TRACING_SECONDS
        return (0.0, self.warmup_seconds, 1.0, 0.0) if brief else full

    def as_json(self) -> JSON:
        """Return every field under its own name, for the report."""
        return dataclasses.asdict(self)


# Detects 5%, where standard detects 3%, with a first look after two launches.
_QUICK = Policy(
    "quick", minimum_effect=0.02, tolerance=0.05, tail_tolerance=0.06, rare_calls=0, looks=(2, 3, 5, 8, 13, 20), zygotes=6, ancestors=2, more_zygotes_after=5,
    device_launches=2, rounds_max=150, case_seconds=40.0, case_launches=5, sampled_seconds=5.0, hopeless=4.0,
)  # fmt: skip
# Detects 1%, for three to ten times the launches. The first 32 come from eight pairs, so that those of both races fit
# among the live zygotes and serve one case after another. Any other graph counts.
_STRICT = Policy(
    "strict", minimum_effect=0.0015, tolerance=0.01, tail_effect=0.01, tail_tolerance=0.05,
    looks=(*range(4, 15), 16, 18, 20, 22, 25, 28, 32, 40, 50, 64, 100, 200),
    zygotes=16, ancestors=8, more_zygotes_after=32, most_zygotes_after=32, zygotes_alive=32,
    exact_across_versions=True, alone_launches=4, device_launches=4, case_seconds=300.0, setup_seconds=600.0,
    sampled_seconds=30.0, many_seconds=3.5,
)  # fmt: skip
# Detects 0.5% of steps up to a few milliseconds. The tolerance lies below that, so an interval that misses the truth must be
# rarer: where launches differ by 0.6% and pairs by 0.15%, 0.5% is found in 50 s in the median.
_FINEST = dataclasses.replace(_STRICT, name="finest", minimum_effect=0.001, tolerance=0.004, alpha_unchanged=0.01)
PRESETS = {policy.name: policy for policy in (_QUICK, Policy(), _STRICT, _FINEST)}


def preset(name: str) -> Policy:
    """Return the preset with this name. Raises `UsageError` if there is none."""
    if name not in PRESETS:
        raise UsageError(f"no policy named {name!r}; the policies are {', '.join(PRESETS)}")
    return PRESETS[name]
