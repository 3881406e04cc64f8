"""Watching GPUs while a launch is timed: a thread reads them now and then, and a rule says whether the launch counts."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tfbench.errors import GpuError
from tfbench.gpus.disturbance import disturbance
from tfbench.gpus.driver import Driver
from tfbench.gpus.readings import GpuObservationWindow, GpuReading, Identity
from tfbench.model import JSON
from tfbench.policy import Policy


class LaunchMonitor:
    """One launch that is being watched."""

    def __init__(self) -> None:
        self.cause = ""
        """Why the launch does not count, once it is over; empty if it does."""
        self.energy: float | None = None
        """Joules that its GPUs took, ``None`` where they do not count them."""
        self.sm_clock: float | None = None
        """MHz, of several GPUs the slowest's, ``None`` where they do not tell or nothing ran."""


class GpuMonitor:
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
        self._counted: dict[Identity, list[GpuObservationWindow]] = {gpu: [] for gpu in gpus}
        """Launches that counted, in time order."""
        self._earlier: dict[tuple[Identity, Hashable], list[GpuObservationWindow]] = defaultdict(list)
        """Those of one race: how fast the clock may run depends on what is computed."""
        self._last: dict[tuple[Identity, Hashable], GpuObservationWindow] = {}
        self._ours: set[int] = set()
        """Every process that this run has had: the driver may still list one that has just ended."""
        self._before = {gpu: driver.reading(gpu).processes or frozenset() for gpu in gpus}
        """Processes that were there before any of this run was."""
        driver.listen(gpus)

    def as_json(self) -> list[JSON]:
        """Each GPU with what was read of it in each launch that counted."""
        return [{**gpu.as_json(), "launches": [window.as_json() for window in self._counted[gpu]]} for gpu in self.gpus]

    @contextmanager
    def watching(self, race: Hashable) -> Iterator[LaunchMonitor]:
        """Around what is timed; whether it counts is known behind it.

        Args:
            race: Equal for launches in which the same is computed.
        """
        launch_monitor, over = LaunchMonitor(), threading.Event()
        seen: dict[Identity, list[GpuReading]] = {gpu: [] for gpu in self.gpus}
        lost: dict[Identity, str] = {}
        self._ours.update(self._family())
        self._driver.xids()  # what came before is not this launch's
        self._look(seen, lost)
        thread = threading.Thread(target=self._keep_looking, args=(over, seen, lost), daemon=True)
        thread.start()
        try:
            yield launch_monitor
        finally:
            over.set()
            thread.join()
        self._look(seen, lost)
        self._ours.update(self._family())
        xids = tuple(self._driver.xids())
        windows = {
            gpu: GpuObservationWindow(tuple(readings), xids, lost.get(gpu, "")) for gpu, readings in seen.items()
        }
        launch_monitor.cause = next(
            filter(None, (self._cause(gpu, race, window) for gpu, window in windows.items())), ""
        )
        self._last |= {(gpu, race): window for gpu, window in windows.items()}
        launch_monitor.sm_clock = min((window.sm_clock for window in windows.values() if window.sm_clock), default=None)
        energies = [window.energy for window in windows.values()]
        known = [energy for energy in energies if energy is not None]
        launch_monitor.energy = sum(known) if known and len(known) == len(energies) else None
        if launch_monitor.cause:
            self.discarded[launch_monitor.cause] += 1
        else:
            for gpu, window in windows.items():
                self._counted[gpu].append(window)
                self._earlier[gpu, race].append(window)

    def _cause(self, gpu: Identity, race: Hashable, window: GpuObservationWindow) -> str:
        earlier, last = self._earlier[gpu, race], self._last.get((gpu, race))
        return disturbance(window, frozenset(self._ours), self._before[gpu], earlier, self._policy, last)

    def _keep_looking(
        self, over: threading.Event, seen: dict[Identity, list[GpuReading]], lost: dict[Identity, str]
    ) -> None:
        while not self._wait(over, self._policy.gpu_look_seconds):
            self._look(seen, lost)

    def _look(self, seen: dict[Identity, list[GpuReading]], lost: dict[Identity, str]) -> None:
        for gpu, readings in seen.items():
            if gpu in lost:
                continue
            try:
                readings.append(self._driver.reading(gpu))
            except GpuError as error:
                lost[gpu] = str(error)
