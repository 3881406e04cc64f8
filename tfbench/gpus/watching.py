"""Watching GPUs while a launch is timed: a thread reads them now and then, and a rule says whether the launch counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tfbench.errors import GpuError
from tfbench.gpus.guard import disturbance
from tfbench.gpus.model import Identity, Moment, Stretch
from tfbench.model import JSON
from tfbench.policy import Policy


class Reads(Protocol):
    """What can be asked about GPUs; `nvml.Nvml` is one."""

    def moment(self, index: int) -> Moment:
        """What a GPU does now.

        Raises:
            GpuError: It has vanished.
        """

    def listen(self, indices: Sequence[int]) -> None:
        """Keep the errors of these GPUs from now on."""

    def xids(self) -> list[int]:
        """Those that were reported since the last call."""


class Watch:
    """One launch that is being watched."""

    def __init__(self) -> None:
        self.cause = ""
        """Why the launch does not count, once it is over; empty if it does."""
        self.energy: float | None = None
        """Joules that its GPUs took, ``None`` where they do not count them."""


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
        reads: Reads,
        policy: Policy,
        family: Callable[[], Iterable[int]],
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.gpus = list(gpus)
        self._reads = reads
        self._policy = policy
        self._family = family
        self._wait = wait
        self._earlier: dict[int, list[Stretch]] = {gpu.index: [] for gpu in gpus}
        self._before: dict[int, frozenset[int]] = {
            gpu.index: reads.moment(gpu.index).processes or frozenset() for gpu in gpus
        }
        """Processes that were there before any of this run was."""
        reads.listen([gpu.index for gpu in gpus])

    def as_json(self) -> list[JSON]:
        """Each GPU with what was read of it in each launch that counted."""
        return [
            {**gpu.as_json(), "launches": [stretch.as_json() for stretch in self._earlier[gpu.index]]}
            for gpu in self.gpus
        ]

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Around what is timed; whether it counts is known behind it."""
        watch, over = Watch(), threading.Event()
        seen: dict[int, list[Moment]] = {gpu.index: [] for gpu in self.gpus}
        lost: dict[int, str] = {}
        ours = set(self._family())
        self._reads.xids()  # what came before is not this launch's
        self._look(seen, lost)
        thread = threading.Thread(target=self._keep_looking, args=(over, seen, lost), daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            over.set()
            thread.join()
        self._look(seen, lost)
        ours.update(self._family())
        xids = tuple(self._reads.xids())
        stretches = {index: Stretch(tuple(moments), xids, lost.get(index, "")) for index, moments in seen.items()}
        causes = {
            index: disturbance(stretch, frozenset(ours), self._before[index], self._earlier[index], self._policy)
            for index, stretch in stretches.items()
        }
        watch.cause = next(filter(None, causes.values()), "")
        energies = [stretch.energy for stretch in stretches.values()]
        known = [energy for energy in energies if energy is not None]
        watch.energy = sum(known) if known and len(known) == len(energies) else None
        if not watch.cause:
            for index, stretch in stretches.items():
                self._earlier[index].append(stretch)

    def _keep_looking(self, over: threading.Event, seen: dict[int, list[Moment]], lost: dict[int, str]) -> None:
        while not self._wait(over, self._policy.gpu_look_seconds):
            self._look(seen, lost)

    def _look(self, seen: dict[int, list[Moment]], lost: dict[int, str]) -> None:
        for index, moments in seen.items():
            if index in lost:
                continue
            try:
                moments.append(self._reads.moment(index))
            except GpuError as error:
                lost[index] = str(error)
