"""Every threshold and budget, one immutable value, each with its reason."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tfbench.errors import UsageError
from tfbench.model import JSON


@dataclass(frozen=True, slots=True)
class Policy:
    """How sure, at what cost. Fractions are of one, times are seconds."""

    name: str = "standard"

    # What is decided
    minimum_effect: float = 0.01
    """A slowdown is `regressed` when the whole interval lies above 1 + this: smaller ones nobody acts on."""
    tolerance: float = 0.02
    """`unchanged` claims that the whole interval lies within 1 ± this; twice the minimum effect,
    so that there is room for an interval between the two."""
    alpha: float = 0.01
    """Chance that a run reports any case that is not slower by the minimum effect, shared over its
    cases: one red run in a hundred if all lay at that edge, far fewer on the same code."""
    alpha_case: float = 0.05
    """The most that both ends of one stage's interval may spend, however few cases there are:
    `unchanged` and `improved`, which nobody confirms, shall be right 97 times in 100 at the very edge."""
    looks: tuple[int, ...] = (3, 4, 6, 9, 12, 18, 30)
    """Launches at which the evidence is looked at: three tell a large change; then in steps of about
    1.4, since a look at little new evidence spends alpha for nothing. Beyond 30 it is the zygotes
    that leave a case undecided, and no number of launches helps."""
    confirm: bool = True
    """A first `regressed` is raced again in fresh launches of fresh zygotes, which share no data with the first."""

    # What is known of noise before a race, so that few launches can speak
    launch_deviation: float = 0.006
    """Deviation between launches of the same code, as a log-ratio: the middle of fourteen workloads."""
    zygote_deviation: float = 0.005
    """Deviation between pairs of zygotes of the same program: the median of six workloads."""
    shared_zygote_deviation: float = 0.001
    """The same where both entrants come from one zygote, whose luck is common to both."""
    launch_spread: float = 0.5
    """How far cases stray from `launch_deviation`: the deviation of its logarithm, so two cases in
    three lie within a factor 1.6 of it. The tails are a t distribution's: no case is ruled out."""
    zygote_spread: float = 0.8
    """The same for the deviations between pairs of zygotes, which were seen from 0 to 1.3%: a factor 2.2."""
    clip: float = 3.0
    """A launch further from the middle than this many deviations counts as if it were there: a
    process in another mode (a tenth of eager launches) must not decide alone."""

    # Times that are not raced again
    floor_launches: int = 6
    """Launches whose fastest block stands for a session: with six the floor of unchanged code moved by 0.6
    to 0.8% between sessions, while medians moved by 5 to 26%."""
    sessions: int = 5
    """Sessions of a case that must be known before a saved time is judged by their spread: from fewer a
    t interval is more than five deviations wide and decides nothing."""
    screen_tolerance: float = 0.05
    """`--replay suspects` does not race a case again whose saved times prove that it is slower by less than
    this. The spread between sessions seldom proves less, and what it leaves open is raced."""

    # Other metrics
    first_call_effect: float = 0.15
    """A first call is `regressed` when it takes longer by this at least: it is paid once, in seconds at most."""
    first_call_tolerance: float = 0.3
    """The same for `unchanged`: a launch gives one sample of it, where it gives hundreds of the step."""
    first_call_abs_tolerance: float = 5e-3
    """Seconds by which first calls may differ, however short they are: nobody waits for a few milliseconds once."""
    first_call_deviation: float = 0.06
    """Deviation between launches of the same code, as a log-ratio."""
    first_call_zygote_deviation: float = 0.02
    """The same between pairs of zygotes."""
    memory_tolerance: float = 0.01
    """Sizes that differ by less than this fraction are the same: files carry dates and names, allocators round."""
    memory_abs_tolerance: int = 1 << 20
    """Bytes by which peaks of host memory may differ whatever their size: what a zygote has left free of an arena of
    Python's, which is 1 MiB, its launches need not ask for, and zygotes of different sides leave different amounts."""
    memory_launches: int = 3
    """Launches of each side that must lie beyond those of the other before a peak of memory has moved."""
    probe_calls: int = 4
    """Calls behind the first ones in which functions may be traced again and tensors pile up: what grows by every
    call is seen in one, and four cost little beside the start of the process."""
    probe_launches: int = 3
    """Launches of a side in which a metric that differs between the sides is read before it counts: one that
    differs among them is not exact."""
    exact_across_versions: bool = False
    """Whether exact metrics gate between environments that differ (TensorFlow's version, settings). Otherwise they
    explain: another version may well have other graphs on purpose."""
    parity_floor: float = 1e-4
    """Errors of results below this are rounding: sums of float32 in another order differ by 1e-7 to 1e-5."""
    parity_growth: float = 2.0
    """An error against the reference variant that is above the floor may grow by this factor: rounding errors do,
    with the order of a sum."""

    # Profiles
    profile_steps: tuple[int, int] = (10, 60)
    """Fewest and most steps of a profile. The profiler's guide asks for about ten; short steps are worth more of
    them, as each is disturbed by the machine in a way of its own, and are still a small file."""
    profile_seconds: float = 0.04
    """Between the two, as many steps as fit into this time: a pipeline of small records notes 70,000 events a second."""
    profile_launches: int = 5
    """Launches of a side that are profiled where two are compared: single ones differ by several percent. The faster
    half of them is looked at, since what disturbs a launch makes it slower, and comes to one side only."""
    profile_zygotes: int = 2
    """Zygotes of a side that these launches come from: those that every race starts first. Their own differences, of
    about 1%, are less than what profiling itself costs."""
    profile_trim: float = 0.2
    """The slowest steps of a launch that are left out, for the same reason; no more, as a pipeline may have its program
    wait in one step of several."""
    profile_read_seconds: float = 120.0
    """xprof is given up if it has not read a profile by then."""
    profile_found: float = 0.5
    """A pair of profiles explains a slowdown if it shows at least so much of the one that was raced."""
    profile_cause: float = 0.1
    """What grew by less than this part of the slowdown is no cause of it."""
    slow_call_seconds: float = 50e-6
    """A call of a tf.data stage that takes longer than this waits for something (the profiler's own threshold)."""
    input_bound: float = 0.05
    """Waiting for input is worth a word from this part of a step on (the input pipeline analyzer's threshold)."""
    launch_bound: float = 0.3
    """The same for what is no op, no kernel and no waiting: Python and the way to the ops."""
    transposing: float = 0.1
    """The same for transposes."""
    sixteen_bit: float = 0.05
    """On a GPU with Tensor Cores, less of its time in 16 bit than this is next to none."""

    # GPUs
    gpu_look_seconds: float = 0.1
    """A GPU is read so often while a launch is timed: a reading costs a millisecond of another processor, a launch has
    at least 0.3 s, and a clock that is held down stays so for longer."""
    gpu_clock_drift: float = 0.05
    """A launch counts only if its mean clock is within this of the others' of its race: a software power cap lets clocks
    wander by two or three percent, another power state by tens. Saved times count only at their clock, alike."""
    gpu_hot_share: float = 0.02
    """A launch counts only if heat held the clock down for less of it, by the driver's own counter, which sees what lies
    between two readings as well; of so few rounds a median takes no notice."""
    device_bound: float = 0.5
    """A step in which the GPU works for less of the time than this is bound by its host, whatever its kernels do."""
    energy_seconds: float = 1.0
    """A step is repeated for so long while its joules are read: devices count them every tenth of a second or oftener."""
    disturbed_launches: int = 5
    """Launches of a race that may be discarded because the GPU was disturbed, before it is given up as inconclusive."""

    # Zygotes
    zygotes: int = 12
    """Processes of each side that launches are forked from, started when a race gets to them: an easy
    case needs three or four. Where pairs differ by 1.2% (eager ops), six leave 30% of unchanged cases
    undecided and find 68% of +3%, twelve 2% and 97%; each costs 1.3 s once a run and 180 MB."""

    # A launch
    block_seconds: float = 3e-4
    """Length of a timed block: the faster the turns, the more of a noise burst cancels."""
    device_block_seconds: float = 3e-3
    """The same where work is handed to a device: a block begins with an empty queue and ends with a synchronisation,
    which takes 12 µs even without any device; no step has either where it is used, and in a long block they weigh less."""
    prime_seconds: float = 4e-4
    """Untimed work before each block, which starts with cold caches; at least one iteration."""
    launch_seconds: float = 0.3
    """Time budget for the rounds of one launch: 300 rounds of 0.3 ms and their priming."""
    rounds_max: int = 300
    """More rounds than this no longer lower the deviation of a launch."""
    rounds_min: int = 7
    """A median of fewer rounds is too coarse, however long an iteration takes."""
    warmup_seconds: float = 0.05
    """Time that a fresh process runs the step before it is asked whether it is steady."""
    warmup_limit_seconds: float = 0.5
    """A step that is not steady after this is raced as it is."""
    warmup_steady: float = 0.02
    """Steady: the floors of two successive stretches differ by less than this."""

    bisect_retry_factor: int = 3
    """A step of a bisection that is inconclusive is raced again with so many times the launches, from twice the
    zygotes: a wrong turn there costs the answer, an open one only says that it is open."""
    zygotes_together: int = 48
    """Zygotes of all sides of `tfbench versions` at most, 9 GB of private memory: two sides at their most."""

    # Patience
    start_seconds: float = 120.0
    """A zygote that has not collected by now is broken: an uncompiled TensorFlow imports in 10 s."""
    setup_seconds: float = 120.0
    """A launch that has not called `bench` by now is hung: XLA compiles a large model in a minute."""
    answer_seconds: float = 60.0
    """A worker that does not answer within this beyond what it was asked to run is hung."""
    case_seconds: float = 60.0
    """No race of one group goes on beyond this for each pair of entrants, looks left or not."""

    def __post_init__(self) -> None:
        if not 0 < self.minimum_effect < self.tolerance < 1:
            raise UsageError("policy: 0 < minimum_effect < tolerance < 1 must hold")
        if not 0 < self.alpha < 0.5:
            raise UsageError("policy: alpha must lie between 0 and 0.5")
        if not 0 < self.alpha_case < 0.5:
            raise UsageError("policy: alpha_case must lie between 0 and 0.5")
        if not self.looks or list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 3:
            raise UsageError("policy: looks must be increasing numbers of launches, the first at least 3")
        if self.zygotes < 1:
            raise UsageError("policy: zygotes must be at least 1")
        if self.screen_tolerance < self.tolerance:
            raise UsageError("policy: screen_tolerance must not be less than tolerance")
        if not 0 < self.first_call_effect < self.first_call_tolerance < 1:
            raise UsageError("policy: 0 < first_call_effect < first_call_tolerance < 1 must hold")
        if self.probe_calls < 1 or self.probe_launches < 1 or self.memory_launches < 1:
            raise UsageError("policy: probe_calls, probe_launches and memory_launches must be at least 1")
        if self.bisect_retry_factor < 1:
            raise UsageError("policy: bisect_retry_factor must be at least 1")
        if self.sessions < 3 or self.floor_launches < 1:
            raise UsageError("policy: a spread needs three sessions at least, and a floor one launch")

    def patient(self) -> Policy:
        """The same for what was inconclusive: more launches, as `bisect_retry_factor` says."""
        last = self.looks[-1]
        more = tuple(round(last * (1 + (self.bisect_retry_factor - 1) * share)) for share in (0.25, 0.5, 1))
        return dataclasses.replace(
            self,
            looks=(*self.looks, *sorted({look for look in more if look > last})),
            zygotes=2 * self.zygotes,
            case_seconds=self.bisect_retry_factor * self.case_seconds,
        )

    @property
    def warmup(self) -> tuple[float, float, float]:
        """Seconds, limit in seconds and steadiness of the warm-up, as a launched process is told them."""
        return self.warmup_seconds, self.warmup_limit_seconds, self.warmup_steady

    def as_json(self) -> JSON:
        """Every field, as the report keeps it."""
        return dataclasses.asdict(self)


RENAMED_FIELDS = {
    "first_call_slack": "first_call_abs_tolerance",
    "memory_slack": "memory_abs_tolerance",
    "patience": "bisect_retry_factor",
}
"""Name of a field in reports of earlier versions -> its name now."""

PRESETS = {
    # Finds 5% where standard finds 3%, in three launches of half the length, each from a pair of its own.
    "quick": Policy(
        name="quick",
        minimum_effect=0.02,
        tolerance=0.05,
        looks=(3, 4, 6, 9),
        zygotes=6,
        floor_launches=3,
        launch_seconds=0.15,
        rounds_max=150,
        case_seconds=20.0,
    ),
    "standard": Policy(),
    # Finds 2% between sides and 1% between variants, for two to four times the launches; any other graph counts.
    "strict": Policy(
        name="strict",
        minimum_effect=0.005,
        tolerance=0.01,
        looks=(4, 6, 8, 12, 16, 24, 32, 48),
        zygotes=16,
        exact_across_versions=True,
        case_seconds=180.0,
    ),
}


def preset(name: str) -> Policy:
    """The preset of this name.

    Raises:
        UsageError: there is none of this name.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"no policy named {name!r}; there are {', '.join(PRESETS)}") from None
