"""Monitor GPUs while a launch is timed: a thread reads them, and a rule decides whether the launch counts."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfbench.errors import GpuError
from tfbench.gpus.disturbance import disturbance
from tfbench.gpus.driver import Driver
from tfbench.gpus.readings import GpuObservationWindow, GpuReading, Identity
from tfbench.model import JSON
from tfbench.policy import Policy


@dataclass
class LaunchMonitor:
    """The monitoring results of one launch, set at its end."""

    cause: str = ""
    """Why the launch does not count, ``""`` if it does."""
    energy: float | None = None
    """Joules of all its GPUs, ``None`` if one does not count energy."""
    sm_clock: float | None = None
    """Mean MHz of the slowest GPU, ``None`` if unknown or if nothing ran."""


class GpuMonitor:
    """Monitor of the GPUs of a run, launch by launch.

    Args:
        family: Returns the ids of all processes of this run.
        wait: Waits for an event or a timeout in seconds. Tests replace it, so that no time passes.

    Raises:
        GpuError: A GPU does not answer.
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
        """Cause -> number of launches that do not count because of it."""
        self._counted: dict[Identity, list[GpuObservationWindow]] = {gpu: [] for gpu in gpus}
        """Windows of the launches that counted, in time order."""
        self._earlier: dict[tuple[Identity, Hashable], list[GpuObservationWindow]] = defaultdict(list)
        """The same per race, since the clock depends on the computation."""
        self._last: dict[tuple[Identity, Hashable], GpuObservationWindow] = {}
        self._ours: set[int] = set()
        """All processes that this run has had. The driver may still list one that has just ended."""
        self._before = {gpu: driver.reading(gpu).processes or frozenset() for gpu in gpus}
        """Processes on each GPU before this run."""
        driver.listen(gpus)

    def as_json(self) -> list[JSON]:
        """Return each GPU with the readings of each launch that counted."""
        return [{**gpu.as_json(), "launches": [window.as_json() for window in self._counted[gpu]]} for gpu in self.gpus]

    @contextmanager
    def watching(self, race: Hashable) -> Iterator[LaunchMonitor]:
        """Monitor a launch. The yielded object has the results after the block.

        Args:
            race: Equal for launches of the same computation.
        """
        launch_monitor, over = LaunchMonitor(), threading.Event()
        seen: dict[Identity, list[GpuReading]] = {gpu: [] for gpu in self.gpus}
        lost: dict[Identity, str] = {}
        self._ours.update(self._family())
        self._driver.xids()  # discard errors from before the launch
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
        windows = {gpu: GpuObservationWindow(tuple(found), xids, lost.get(gpu, "")) for gpu, found in seen.items()}
        causes = [self._cause(gpu, race, window) for gpu, window in windows.items()]
        launch_monitor.cause = next(filter(None, causes), "")
        launch_monitor.sm_clock = min((window.sm_clock for window in windows.values() if window.sm_clock), default=None)
        energies = [window.energy for window in windows.values() if window.energy is not None]
        launch_monitor.energy = sum(energies) if energies and len(energies) == len(windows) else None
        if launch_monitor.cause:
            self.discarded[launch_monitor.cause] += 1
        for gpu, window in windows.items():
            self._last[gpu, race] = window
            if not launch_monitor.cause:
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
