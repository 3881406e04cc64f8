"""The budgets of launches, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LaunchBudgets:
    """Zygotes, launches, rounds and blocks of a race. Times are in seconds."""

    zygotes: int = 12
    """Zygotes per side, started when a race needs them. Easy cases need three or four. Where pairs differ by 1.2%
    (eager ops), six leave 30% of unchanged cases undecided and detect 68% of 3% slowdowns. Twelve leave 2% undecided
    and detect 97%. Each takes 66 MB, or 230 MB and 3 s if it imports TensorFlow itself."""
    first_zygotes: int = 16
    """Of them, those that the first launches of a race take turns with."""
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
    repro_launches: int = 5
    """Fresh processes of each side in a file of `tfbench repro`, all of which must show the difference: by chance, five
    agree about its direction in one of 16 files. Each imports TensorFlow."""
    block_seconds: float = 3e-4
    """Length of a timed block. Faster turns cancel more of a noise burst."""
    device_block_seconds: float = 3e-3
    """The same for devices, whose blocks start with an empty queue and end with a synchronization of at least 12 µs."""
    ahead_block_seconds: float = 0.02
    """The same for steps whose threads work ahead, such as prefetching pipelines. A shorter block takes what is ready."""
    ahead_launch_seconds: float = 0.6
    """Rounds of a launch of such steps take about this long, because blocks differ by the elements that happen to be ready.
    Seven rounds, as many as ``launch_seconds`` has room for, leave 1.6 to 6 times the error of 25."""
    prime_seconds: float = 4e-4
    """Untimed work before each block, which starts with cold caches. At least one iteration."""
    prime_below_seconds: float = 5e-4
    """Longer steps are not primed. They refill the caches in 2 to 7% of their time, and priming halves the number of
    rounds and moves their blocks apart: without it, launches of steps of 1 to 10 ms differ half as much."""
    device_prime_below_seconds: float = 0.02
    """The same for devices, where this has not been measured."""
    launch_seconds: float = 0.3
    """Time budget for the rounds of one launch: 300 rounds of 0.3 ms and their priming."""
    rounds_max: int = 300
    """More rounds rarely lower the deviation of a launch."""
    rounds_long: int = 20
    """Of a long step, up to this many rounds may take as long as the preparation took. More launches instead would each
    prepare anew."""
    rounds_min: int = 7
    """A median of fewer rounds is too coarse, however long an iteration takes."""
    rounds_allocated: tuple[float, float] = (0.5, 2.0)
    """Fewest and most rounds of later launches, as factors of the usual number. Within them, a launch has the number that
    lowers the error most per second by what the launches so far show. More only after the first look, which decides most
    cases. On recorded rounds this gains 13% of the time, 10% on a busy machine. Three launches often misjudge the best
    number by a factor of two, and factors of 4 gain less."""
    sliced_above_seconds: float = 0.02
    """Both sides of longer steps run on one processor at once, whose scheduler alternates them every few milliseconds.
    A burst of noise then hits both. Their processor times are compared."""
    sliced_waiting: float = 0.125
    """Not if a step waits longer than this fraction of the tolerance, since processor time lacks what it waits."""
    sliced_mean_waiting: float = 0.01
    """Nor if its calls wait longer than this fraction of their processor time on average. The limit above is for the median
    call, which does not see that few calls wait. The first launch takes turns to see that."""
    warmup_seconds: float = 0.03
    """Time that a fresh process runs the step before the check for steadiness."""
    settle_seconds: float = 0.004
    """Time that a process which was warmed up on another processor runs the step where it races, to fill the caches
    there. A longer step hides the misses of its first turn."""
    warmup_limit_seconds: float = 0.5
    """The race starts after this time even if the step is not steady."""
    warmup_steady: float = 0.02
    """Largest difference between the floors of two successive intervals of a steady step."""
