"""Hold every threshold and budget in one immutable value, each with its reason."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.errors import UsageError
from tfbench.model import JSON


@dataclass(frozen=True, kw_only=True)
class DecisionThresholds:
    """Which changes count, and how certain a verdict is. Fractions are of one, times are in seconds."""

    minimum_effect: float = 0.01
    """A case is `regressed` if the whole interval lies above 1 + this. Smaller slowdowns lead to no action."""
    tolerance: float = 0.02
    """A case is `unchanged` if the whole interval lies within 1 ± this. It is at least twice the minimum effect, which
    leaves room for an interval between the two."""
    statistic: str = "median and tail"
    """What a verdict on time is about, one of `tfbench.model.STATISTICS`. The median has the least noise, and
    the tail covers what it cannot see: slow calls, of which users pay all. ``mean`` and ``p90`` have more noise."""
    tail_effect: float = 0.02
    """A case is `regressed` as well if slow calls raise the geometric mean of its calls by more than this: 5% of calls that
    take ten times as long raise it by 12%, and 2% that take sixty times as long by 8.5%."""
    tail_tolerance: float = 0.08
    """A case is `unchanged` if the geometric mean lies within 1 ± this as well. Beside a busy process it scatters by 1 to 3%
    per launch, so that much less would leave unchanged cases undecided. `quick` has less, since its first look has two
    launches, in which a slow call of 2% may happen to be rare."""
    tail_rounds: int = 150
    """Rounds of each side that the launches up to the first look have together, if `tail_launch_seconds` allows them. Of two
    calls in a hundred that are slow, so many rounds contain at least one in 95% of the races, and 60 rounds in 70%."""
    tail_launch_seconds: float = 0.75
    """The rounds of a launch may take this long to reach `tail_rounds`. Steps above 5 ms have fewer, and their reason says how
    rare slow calls can be without being seen."""
    tail_alpha: float = 0.25
    """Share of the alpha of a first race that is spent on the tail, the rest on the median. A second race asks only what
    the first one found, at the whole alpha: the products of both stages add up to the square of the alpha at most."""
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
    changed_only_share: float = 0.1
    """Share of the cases that race under ``--changed-only`` although their code is the same. The comparison lacks files
    that are looked for and not opened, among others: of 30 cases that such a change slows down, at least one then races
    in 96% of the runs."""
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


@dataclass(frozen=True, kw_only=True)
class NoiseThresholds:
    """Prior knowledge of the noise, so that few launches suffice: standard deviations of log-ratios."""

    launch_deviation: float = 0.006
    """Standard deviation between launches of the same code, as a log-ratio: the median of fourteen workloads on a calm
    machine. To it comes the error that the rounds of a case show."""
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
    speed_distance: float = 5.0
    """Two groups of calls are two speeds if their medians lie so many standard deviations of a group apart. Halves of a
    normal distribution lie 2.6 apart, and halves of a uniform one 3.5."""
    speed_gap: float = 0.2
    """And if the slow ones take so much longer: less is no other way of working, but a colder cache."""
    speed_share: float = 0.1
    """And if each group has this share of the calls: fewer are disturbances."""
    speed_calls: int = 5
    """And this many: three that agree by chance are a group of their own."""


@dataclass(frozen=True, kw_only=True)
class LaunchBudgets:
    """Zygotes, launches, rounds and blocks of a race. Times are in seconds."""

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
    block_seconds: float = 3e-4
    """Length of a timed block. Faster turns cancel more of a noise burst."""
    block_longest: float = 4.0
    """The block of the slowest side takes at most this many times the planned length, unless a single iteration does. A step
    that returns at once on one side would otherwise make the other one repeat its own thousands of times."""
    device_block_seconds: float = 0.003
    """The same for devices, whose blocks start with an empty queue and end with a synchronization. That takes 30 µs on an H200:
    1% of a block, by which a slowdown is measured too small. Successive blocks of small steps
    there differ by 8 to 20% at 10 ms, and by 14 to 15% at 3 ms, of which a launch has three times as many."""
    device_launch_seconds: float = 1.0
    """Rounds of a launch of such steps take about this long, as long as CUDA's start and the first calls. Pairs of their rounds
    differ by 15% on an H200, and launches of one processor by no more than that explains."""
    ahead_block_seconds: float = 0.02
    """The same for steps whose threads work ahead, such as prefetching pipelines. A shorter block takes what is ready."""
    ahead_launch_seconds: float = 0.6
    """Rounds of a launch of such steps take about this long, because blocks differ by the elements that happen to be ready.
    Seven rounds, as many as ``launch_seconds`` has room for, leave 1.6 to 6 times the error of 25."""
    ahead_drained: float = 0.5
    """Before the rounds, such a step is called until a call takes this share of its time in succession, so that no block takes
    what was made before. With a buffer of 16 elements of 20 ms, all calls of a launch would find theirs ready."""
    ahead_calls: int = 8
    """Calls of a block at least, if their waits go on in the turn of the other side. In a block of one call, the call
    of one side always waits and that of the other one never, so that one of them seems twenty times as fast."""
    prime_seconds: float = 4e-4
    """Untimed work before each block, which starts with cold caches. At least one iteration."""
    prime_below_seconds: float = 5e-4
    """Longer steps are not primed. They refill the caches in 2 to 7% of their time, and priming halves the number of
    rounds and moves their blocks apart: without it, launches of steps of 1 to 10 ms differ half as much."""
    device_prime_below_seconds: float = 0.02
    """The same for devices, where this has not been measured."""
    cache_multiple: float = 2.0
    """Bytes that the calls of a cold step move between two uses of a tensor, as a multiple of the cache. Caches replace lines
    only about in the order of their use."""
    cache_sets: int = 1024
    """Most copies of its arguments that a cold step has in turn. Each takes up to 0.1 ms, and inputs of less than a
    five-hundredth of the cache gain little from it."""
    launch_seconds: float = 0.3
    """Time budget for the rounds of one launch: 300 rounds of 0.3 ms and their priming."""
    rounds_max: int = 300
    """More rounds rarely lower the deviation of a launch."""
    rounds_long: int = 20
    """Of a long step, up to this many rounds may take as long as the preparation took. More launches instead would each
    prepare anew."""
    rounds_min: int = 7
    """A median of fewer rounds is too coarse if they take less than `rounds_min_seconds`."""
    rounds_min_seconds: float = 4.0
    """Rounds of long steps scatter little, because a second averages the bursts of other programs. So `rounds_min` rounds
    may take so long, and steps above 0.3 s have fewer, at least `rounds_least`."""
    rounds_least: int = 4
    """The range of four rounds still tells the error of their median, and that of three a third too little."""
    misjudged: float = 8.0
    """If a call takes longer than this many calls of the launches so far, by what the warm-up of the first one found, later launches
    are planned by those. A warm-up that ends in slow first calls, such as compilation, finds a step of 1 ms to take 0.5 s. A busy
    machine alone lengthens its calls by less."""
    rounds_allocated: tuple[float, float] = (0.5, 2.0)
    """Fewest and most rounds of later launches, as factors of the usual number. Within them, a launch has the number that
    lowers the error most per second by what the launches so far show. More only after the first look, which decides most
    cases. On recorded rounds this gains 13% of the time, 10% on a busy machine. Three launches often misjudge the best
    number by a factor of two, and factors of 4 gain less."""
    sliced_above_seconds: float = 0.02
    """Both sides of longer steps run on one processor at once, whose scheduler alternates them every few milliseconds.
    A burst of noise then hits both. Their processor times are compared."""
    sliced_waiting: float = 0.25
    """Not if a step waits longer than this fraction of the tolerance, since processor time lacks what it waits. Threads that
    hand over to each other take up to 0.5% of a step for that, on both sides alike."""
    sliced_mean_waiting: float = 0.01
    """Nor if its calls wait longer than this fraction of their processor time on average. The limit above is for the median
    call, which does not see that few calls wait. The first launch takes turns to see that."""
    warmup_seconds: float = 0.03
    """Time that a fresh process runs the step before the check for steadiness."""
    settle_seconds: float = 0.004
    """Time that a process which was warmed up on another processor runs the step where it races, to fill the caches
    there. A longer step hides the misses of its first turn."""
    equal_calls_scatter: float = 2.0
    """If launches differ by more than this factor of what is usual and what their rounds explain, both sides make equally many
    calls before the rounds of later launches. Both then have the same batches in the same rounds, where batches differ in
    size. Not from the first launch on, because on a busy machine one side catches up with 27 ms of calls in the median."""
    equal_calls_error: float = 0.5
    """Or if the rounds of a launch leave an error of more than this share of the tolerance, as where every tenth call takes
    longer: out of step, the sides then differ in most rounds."""
    equal_calls_seconds: float = 0.3
    """Not if one side takes longer than this to catch up."""
    warmup_limit_seconds: float = 0.5
    """The race starts after this time even if the step is not steady."""
    warmup_tracing_seconds: float = 3.0
    """The same while its calls trace functions again, as those of a step with batches of many shapes do, one after the other. A step
    that always traces takes so long in each launch."""
    warmup_steady: float = 0.02
    """Largest difference between the floors of two successive intervals of a steady step."""


@dataclass(frozen=True, kw_only=True)
class MetricThresholds:
    """How the metrics other than time are sampled and judged. Fractions are of one, times are in seconds."""

    once_effects: tuple[float, float] = (0.05, 0.1)
    """Minimum effect and tolerance for a step of `bench.once`, whose noise is that of a first call."""
    first_call_effect: float = 0.15
    """Minimum effect for the first call, which is paid once and takes seconds at most."""
    first_call_tolerance: float = 0.3
    """Tolerance for the first call. A launch gives one sample of it, and hundreds of the step."""
    first_call_abs_tolerance: float = 5e-3
    """Seconds by which first calls may differ, however short they are: a few milliseconds, once, do not matter."""
    first_call_deviation: float = 0.06
    """Standard deviation between launches of the same code, as a log-ratio. The median of 50 cases was 0.044, and that of
    104 others 0.031. It is higher so that a case at 0.12, where the noisiest tenth begins, is wrongly called `unchanged` at
    the tolerance in less than 5%, also by `quick` after two launches."""
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
    probes_at_once: int = 8
    """Most probing launches at the same time, besides the limit of one per processor. Each has its own TensorFlow, which
    takes memory of the host. On a GPU, its memory limits them as well, see `gpu_process_memory`."""
    probe_calls: int = 4
    """Calls after the first ones in which retraces and leaked tensors are counted. One call shows what grows with every
    call, and four cost little compared with the start of the process."""
    leak_windows: tuple[int, int, int] = (4, 50, 2000)
    """Windows of calls in which something must grow to be a leak, since caches and pools of threads fill up in the first
    ones; most calls of each: 1 kB a call is then 50 kB, much more than allocators keep; and most calls of each with
    `@no_leak` if they are quick: 400 B a call is then 800 kB, which the resident size shows."""
    leak_seconds: tuple[float, float, float] = (0.4, 10.0, 30.0)
    """Seconds of all windows. With `@no_leak` the first is for more calls than the usual most, the second for ten calls
    in each window of steps of 0.25 s, and the third for one call in each, of steps of 7 s."""
    leak_noise: tuple[float, float, float] = (65536.0, 262144.0, 100.0)
    """Growth of a short window that is none: bytes of the allocator if it has fewer than ten calls, resident bytes of
    two windows together, and objects if it has fewer than 50 calls. Four windows of one `Model.fit` each (TensorFlow
    2.21) grow by at least 2 kB, 8 kB and 9 objects."""
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
    exact. A regression takes as many again, from other zygotes."""
    exact_across_versions: bool = False
    """Whether exact metrics gate between different environments (TensorFlow versions, settings). Otherwise they only
    explain, because another version may have other graphs on purpose."""
    parity_floor: float = 1e-4
    """Smaller errors of results are rounding: sums of float32 in another order differ by 1e-7 to 1e-5."""
    parity_later_floor: float = 1e-3
    """The same for the result of a later call, after updates through which rounding grows."""
    parity_growth: float = 2.0
    """An error against the reference variant above the floor may grow by this factor, because rounding errors depend on
    the order of a sum."""
    parity_scatter: float = 10.0
    """An error counts from this many times the largest difference between launches of one side. Random results of two equal
    sides reach twice the largest difference among three launches of either in 1% to 3%, and ten times in at most 0.1%
    (400,000 simulated pairs per distribution: normal, uniform, exponential, lognormal, Pareto)."""


@dataclass(frozen=True, kw_only=True)
class GpuThresholds:
    """Which launches on a GPU count, and what a process on a GPU is given. Times are in seconds."""

    gpu_look_seconds: float = 0.1
    """Interval of GPU readings during a launch of at least 0.3 s. A reading costs 1 ms of another processor, and a
    throttled clock stays low for longer."""
    gpu_clock_drift: float = 0.3
    """A launch counts only if its mean clock is within this of the race's other launches. A software power cap moves the clock of
    large products on an H200 between 1335 and 1980 MHz, which both sides meet alike. Another power state is farther away."""
    gpu_hot_share: float = 0.02
    """A launch counts only if heat limited the clock for less of it, by the driver's counter, which also covers the
    time between readings. A median ignores so few rounds."""
    device_bound: float = 0.5
    """A step in which the GPU works for a smaller share is host-bound, whatever its kernels do."""
    device_launches: int = 3
    """Profiled launches of each side, from which device time and energy are compared. Each takes seconds on a GPU."""
    energy_seconds: float = 2.0
    """Duration of the repetition in which such a launch reads the energy. Devices update the counter at least every tenth of a
    second, an error of 5% at most."""
    device_effect: float = 0.05
    """Minimum effect for device time and energy; the tolerance is twice as much."""
    device_deviation: float = 0.02
    """Standard deviation of both between launches of the same code to expect, as a log-ratio: that of the counter's steps."""
    device_gated: bool = False
    """Whether growth of device time or energy is `regressed`. Otherwise it is reported: where the step has become faster or is
    host-bound, users pay nothing for it."""
    disturbed_launches: int = 5
    """Launches of a race that may be discarded because the GPU was disturbed, before the race ends inconclusive."""
    gpu_process_memory: int = 32 << 30
    """Bytes of GPU memory for each process that prepares or is probed at the same time as others, see `gpus.monitor.room`.
    ResNet-50 with a batch of 128 takes 15 to 30 GB in float32, as its allocator grows."""
    gpu_case_factor: float = 3.0
    """`case_seconds` of a case on a GPU, as a multiple. Its launches start CUDA and choose kernels, which takes 5 to 10 s for a
    model, so that 40 s would be over before the looks are."""
    gpu_setup_seconds: float = 600.0
    """`setup_seconds` of a launch on a GPU. XLA compiles ResNet-50 and tries its kernels in minutes."""


@dataclass(frozen=True, kw_only=True)
class HistoryThresholds:
    """What counts as a change in the history of a case. Effects and deviations are log-ratios of runs."""

    history_effect: float = 0.01
    """Smallest change of level that a history reports: the minimum effect of a single run."""
    history_alpha: float = 3e-6
    """Level of the test of each position of a change after each run. Positions and runs are many: simulated with the
    noise of recorded races, it leads to fewer than one false change in 1,000 runs of a series."""
    history_prior: float = 10.0
    """Weight of `history_deviation`, in runs. The series' own scatter outweighs it from then on."""
    history_deviation: float = 0.005
    """Deviation between runs of the same code to expect, as a log-ratio: thirteen workloads in forty races each moved by
    0.2 to 0.6%."""
    history_clip: float = 2.0
    """A run further from the runs around it than this many deviations counts as if it were there. A race has hundreds of
    rounds and clips later, at `clip`; the newest level of a history has four runs."""
    history_window: int = 200
    """Newest runs that a new level is compared with. Older ones were measured in another environment."""
    history_before: int = 8
    """Fewest runs before a change. With fewer, their deviation is unknown."""
    history_after: int = 4
    """Fewest runs of a new level. Two outliers in succession are then no change."""
    history_lag: int = 50
    """Most runs of a new level before it is found. Steps of the minimum effect need ten."""
    history_drift: float = 0.02
    """Change since the last release that is reported although no step was: the tolerance of a single run."""


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Where a race or a process is ended. Times are in seconds."""

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
    case_seconds: float = 120.0
    """Time limit for the race of a group, for each pair of entrants, whether looks are left or not. Launches of 50 ms steps
    take 1.2 s, and where they differ by 1.4%, 43 of them find 68% of the slowdowns of 2%, and 96 find 95%."""
    case_launches: int = 6
    """The launches of long steps may take more than `case_seconds`, until there are so many: those of the third look."""


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
    DecisionThresholds, NoiseThresholds, LaunchBudgets, MetricThresholds,
    GpuThresholds, HistoryThresholds, TimeLimits,
):  # fmt: skip
    """Set the certainty and the cost of a run. Fractions are of one, times are in seconds."""

    name: str = "standard"

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

    @property
    def device(self) -> Thresholds:
        """Thresholds of device time and energy."""
        return Thresholds(self.device_effect, 2 * self.device_effect, self.device_deviation, self.zygote_deviation)

    def with_device_gate(self, effect: float) -> Policy:
        """Return the policy that gates device time and energy at this effect, or this one if it is 0."""
        return dataclasses.replace(self, device_effect=effect, device_gated=True) if effect else self

    def on_gpu(self) -> Policy:
        """Return the policy for cases on a GPU, whose launches take longer to prepare."""
        seconds = self.gpu_case_factor * self.case_seconds
        return dataclasses.replace(self, case_seconds=seconds, setup_seconds=self.gpu_setup_seconds)

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

        ``pools`` is the number of its sides, times the number of their environments.
        """
        alive = self.zygotes_alive if pools <= 2 else self.zygotes_variants
        return min(self.zygotes, max(_FEWEST_PAIRS, alive // pools))

    def warmup(self, brief: bool = False) -> tuple[float, float, float, float]:
        """Seconds, limits and steadiness of the warm-up, as messages have them; nearly none for a ``brief`` launch."""
        full = self.warmup_seconds, self.warmup_limit_seconds, self.warmup_steady, self.warmup_tracing_seconds
        return (0.0, self.warmup_seconds, 1.0, 0.0) if brief else full

    @property
    def cold(self) -> tuple[float, int]:
        """How caches are kept cold, as messages have it."""
        return self.cache_multiple, self.cache_sets

    def as_json(self) -> JSON:
        """Return every field under its own name, for the report."""
        return dataclasses.asdict(self)


# Detects 5%, where standard detects 3%, with a first look after two launches.
_QUICK = Policy(
    "quick", minimum_effect=0.02, tolerance=0.05, tail_tolerance=0.06, looks=(2, 3, 5, 8, 13, 20), zygotes=6, ancestors=2, more_zygotes_after=5,
    device_launches=2, rounds_max=150, case_seconds=40.0, case_launches=5, sampled_seconds=5.0, hopeless=4.0,
)  # fmt: skip
# Detects 1%, for three to ten times the launches. The first 32 come from eight pairs, so that those of both races fit
# among the live zygotes and serve one case after another. Any other graph counts.
_STRICT = Policy(
    "strict", minimum_effect=0.0015, tolerance=0.01, tail_effect=0.01, tail_tolerance=0.05,
    looks=(*range(4, 15), 16, 18, 20, 22, 25, 28, 32, 40, 50, 64, 100, 200),
    zygotes=16, ancestors=8, more_zygotes_after=32, most_zygotes_after=32, zygotes_alive=32,
    exact_across_versions=True, alone_launches=4, device_launches=4, case_seconds=300.0, sampled_seconds=30.0,
)  # fmt: skip
PRESETS = {policy.name: policy for policy in (_QUICK, Policy(), _STRICT)}


def preset(name: str) -> Policy:
    """Return the preset with this name. Raises `UsageError` if there is none."""
    if name not in PRESETS:
        raise UsageError(f"no policy named {name!r}; the policies are {', '.join(PRESETS)}")
    return PRESETS[name]
