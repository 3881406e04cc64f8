"""The processors of the workers, and races of several cases at the same time, each in a lane of two processors."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Generic, TypeVar

from tfbench.errors import UsageError
from tfbench.facts import read_proc
from tfbench.model import Case

# The processors of a run


@dataclass(frozen=True)
class Processors:
    """Processors of the workers: ``one`` pinned core, or the last of ``every`` one for a workload that asks for several."""

    one: tuple[int, ...]
    every: tuple[int, ...]
    near: tuple[int, ...] = ()
    """Processors on which processes that race on ``one`` may prepare at the same time, itself included."""

    def of(self, case: Case) -> tuple[int, ...]:
        """Return the processors that the case runs on."""
        return self.one if case.cpus == 1 else self.every[-case.cpus :]


def processors(chosen: Sequence[int] | None, available: Mapping[int, None] | Sequence[int]) -> Processors:
    """Return the processors of the workers: the chosen ones, or the last one, since the first ones serve interrupts."""
    every = tuple(sorted(available))
    if chosen:
        return Processors(one=tuple(chosen), every=tuple(chosen))
    last = every[-1:]
    near = tuple(cpu for cpu in reversed(every) if _memory_of(cpu) == _memory_of(*last))
    return Processors(last, every, near if len(near) > 1 else ())


def _memory_of(cpu: int) -> list[str]:
    """Return the name of the memory (NUMA node) of a processor, as far as the kernel says."""
    return [node.name for node in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node*")]


# Divide them into lanes


_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Core:
    """A core: its logical processors, and the last-level cache that it shares with others."""

    numbers: tuple[int, ...]
    cache: str


def topology(numbers: Collection[int], system: Path = _SYSTEM) -> list[Core]:
    """Return the cores of these processors, sorted by number, as far as the kernel says."""
    cores = defaultdict[tuple[str, str], list[int]](list)
    for cpu in sorted(numbers):
        folder = system / f"cpu{cpu}"
        caches = folder.glob("cache/index[0-9]*")
        levels = {read_proc(index / "level"): read_proc(index / "shared_cpu_list") for index in caches}
        core = read_proc(folder / "topology" / "thread_siblings_list") or str(cpu)
        cores[core, levels.get(max(levels, default=""), "")].append(cpu)
    return [Core(tuple(found), cache) for (_, cache), found in cores.items()]


def places(cores: Sequence[Core]) -> list[tuple[int, ...]]:
    """Return the lanes that these cores have room for: a core with two threads each, or two cores behind one cache.

    The first core stays free for the controller. Neighbours in the result are behind different caches, if there are several.
    """
    caches = defaultdict[str, list[tuple[int, ...]]](list)
    for core in cores[1:]:
        caches[core.cache].append(core.numbers[:2])
    by_cache = [
        units
        if all(len(unit) == 2 for unit in units)
        else [(*a, *b) for a, b in zip(units[::2], units[1::2], strict=False)]
        for units in caches.values()
    ]
    return [lane for row in zip_longest(*by_cache) for lane in row if lane]


def lanes(whole: Processors, count: int, cores: Sequence[Core]) -> tuple[Processors, ...]:
    """Return the processors of so many lanes. Raises `UsageError` if there are fewer cores than lanes.

    Args:
        whole: The processors of a run of one lane.
        cores: The topology of ``whole.every``.
    """
    if count == 1:
        return (whole,)
    chosen = places(cores)[:count]
    if len(chosen) < count:
        # Forced: each lane has one core, and none is left for the controller.
        chosen = [core.numbers[:1] for core in cores][:count]
    if len(chosen) < count:
        raise UsageError(
            f"--lanes {count}: the processors of this run have {len(chosen)} cores, one for each lane at least"
        )
    return tuple(Processors(one=cpus[-1:], every=cpus, near=cpus[::-1] if len(cpus) > 1 else ()) for cpus in chosen)


def parse_lanes(text: str, whole: Processors, cpus: str | None) -> tuple[Processors, ...]:
    """Return the processors of each lane of a run.

    Raises `UsageError` if the option is invalid, or there are fewer cores than lanes.

    Args:
        text: The option ``--lanes``: how many cases may race at the same time.
        whole: The processors of a run of one lane.
        cpus: The option ``--cpus``.
    """
    if not (text.isdecimal() and len(text) < 5 and 1 <= int(text) <= 1024):
        raise UsageError(f"--lanes {text!r}: write how many cases may race at the same time, such as 4")
    if cpus and int(text) > 1:
        raise UsageError(
            f"--lanes {text} and --cpus {cpus}: each lane has processors of its own; leave one of them out"
        )
    return lanes(whole, int(text), topology(whole.every))


# Give each lane the next group of cases, and wait for a group


Group = TypeVar("Group", bound=Hashable)


class Lanes(Generic[Group]):
    """Threads that work on groups in order, each on the processors of a lane.

    Args:
        groups: In the order in which `wait_for` will ask for them.
        lanes: The processors of each lane, two at least.
        run: Works on a group, in a thread, on the processors of a lane.
        apart: Tells whether a group needs the machine for itself. No lane works on it, and `wait_for` returns when
            nothing else runs.
        ahead: How many groups after the one that `wait_for` asked for may be worked on; ``None`` for all. With ``None``, the
            first group that needs the machine for itself waits for all others.
        waiting: The context in which `wait_for` waits.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        lanes: Sequence[Processors],
        run: Callable[[Group, Processors], None],
        apart: Callable[[Group], bool],
        ahead: int | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._run, self._waiting = run, waiting
        self._position = {group: number for number, group in enumerate(groups)}
        self._todo = deque(group for group in groups if not apart(group))
        self._ahead = len(groups) if ahead is None else ahead
        self._begun: dict[Group, Future[None]] = {}
        self._free = list(lanes)
        self._threads = ThreadPoolExecutor(len(lanes))

    def _work(self, group: Group) -> None:
        lane = self._free.pop()
        try:
            self._run(group, lane)
        finally:
            self._free.append(lane)

    def wait_for(self, group: Group) -> None:
        """Wait until a lane has worked on the group, or until nothing else runs if the group needs the machine for itself.

        Raises what the work raised, and `KeyboardInterrupt` if the user pressed Ctrl-C.
        """
        while self._todo and self._position[self._todo[0]] <= self._position[group] + self._ahead:
            first = self._todo.popleft()
            self._begun[first] = self._threads.submit(self._work, first)
        with self._waiting():
            if group in self._begun:
                self._begun[group].result()
            else:
                wait(self._begun.values())

    def close(self) -> None:
        """Begin no other group, and wait for the present ones."""
        self._threads.shutdown(cancel_futures=True)
