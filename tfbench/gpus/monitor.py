"""Watching GPUs while a launch is timed: a thread reads them now and then, and a rule says whether the launch counts."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tfbench.errors import GpuError
from tfbench.gpus.disturbance import disturbance
from tfbench.gpus.driver import Driver
from tfbench.gpus.readings import Identity, Moment, Stretch
from tfbench.model import JSON
from tfbench.policy import Policy


class Watch:
    """One launch that is being watched."""

    def __init__(self) -> None:
        self.cause = ""
        """Why the launch does not count, once it is over; empty if it does."""
        self.energy: float | None = None
        """Joules that its GPUs took, ``None`` where they do not count them."""
        self.sm_clock: float | None = None
        """MHz, of several GPUs the slowest's, ``None`` where they do not tell or nothing ran."""


class Guard:
    """Watches the GPUs of a run, launch by launch.

    Args:
        family: Every process of this run by now: those it has started, and theirs.
        wait: Waits so many seconds, less if it is told to stop; for tests without time passing.

    Raises:
        GpuError: One of them does not answer.
    """

    def __init__(
        self,
        gpus: Sequence[Identity],
        driver: Driver,
        policy: Policy,
        family: Callable[[], Iterable[int]],
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.gpus = list(gpus)
        self._driver = driver
        self._policy = policy
        self._family = family
        self._wait = wait
        self.discarded: Counter[str] = Counter()
        """Why launches did not count -> how many."""
        self._counted: dict[Identity, list[Stretch]] = {gpu: [] for gpu in gpus}
        """Launches that counted, in time order."""
        self._earlier: dict[tuple[Identity, Hashable], list[Stretch]] = defaultdict(list)
        """Those of one race: how fast the clock may run depends on what is computed."""
        self._last: dict[tuple[Identity, Hashable], Stretch] = {}
        self._ours: set[int] = set()
        """Every process that this run has had: the driver may still list one that has just ended."""
        self._before = {gpu: driver.moment(gpu).processes or frozenset() for gpu in gpus}
        """Processes that were there before any of this run was."""
        driver.listen(gpus)

    def as_json(self) -> list[JSON]:
        """Each GPU with what was read of it in each launch that counted."""
        return [
            {**gpu.as_json(), "launches": [stretch.as_json() for stretch in self._counted[gpu]]} for gpu in self.gpus
        ]

    @contextmanager
    def watching(self, race: Hashable) -> Iterator[Watch]:
        """Around what is timed; whether it counts is known behind it.

        Args:
            race: Equal for launches in which the same is computed.
        """
        watch, over = Watch(), threading.Event()
        seen: dict[Identity, list[Moment]] = {gpu: [] for gpu in self.gpus}
        lost: dict[Identity, str] = {}
        self._ours.update(self._family())
        self._driver.xids()  # what came before is not this launch's
        self._look(seen, lost)
        thread = threading.Thread(target=self._keep_looking, args=(over, seen, lost), daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            over.set()
            thread.join()
        self._look(seen, lost)
        self._ours.update(self._family())
        xids = tuple(self._driver.xids())
        stretches = {gpu: Stretch(tuple(moments), xids, lost.get(gpu, "")) for gpu, moments in seen.items()}
        watch.cause = next(filter(None, (self._cause(gpu, race, stretch) for gpu, stretch in stretches.items())), "")
        self._last |= {(gpu, race): stretch for gpu, stretch in stretches.items()}
        watch.sm_clock = min((stretch.sm_clock for stretch in stretches.values() if stretch.sm_clock), default=None)
        energies = [stretch.energy for stretch in stretches.values()]
        known = [energy for energy in energies if energy is not None]
        watch.energy = sum(known) if known and len(known) == len(energies) else None
        if watch.cause:
            self.discarded[watch.cause] += 1
        else:
            for gpu, stretch in stretches.items():
                self._counted[gpu].append(stretch)
                self._earlier[gpu, race].append(stretch)

    def _cause(self, gpu: Identity, race: Hashable, stretch: Stretch) -> str:
        earlier, last = self._earlier[gpu, race], self._last.get((gpu, race))
        return disturbance(stretch, frozenset(self._ours), self._before[gpu], earlier, self._policy, last)

    def _keep_looking(
        self, over: threading.Event, seen: dict[Identity, list[Moment]], lost: dict[Identity, str]
    ) -> None:
        while not self._wait(over, self._policy.gpu_look_seconds):
            self._look(seen, lost)

    def _look(self, seen: dict[Identity, list[Moment]], lost: dict[Identity, str]) -> None:
        for gpu, moments in seen.items():
            if gpu in lost:
                continue
            try:
                moments.append(self._driver.moment(gpu))
            except GpuError as error:
                lost[gpu] = str(error)
