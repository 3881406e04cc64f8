"""Run jobs on this machine, one after another. It needs no engine, and tests run fleets with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from tfbench.fleet.engine import PROGRAM, State, Submission

_ENDING = 90.0
"""Seconds that a cancelled job gets to write its journal, before it is killed."""


class LocalEngine:
    """Starts a process per job, ``slots`` at once.

    The lease of the host lets one of them measure at a time, so more slots only shorten the start of the next job.
    """

    def __init__(self, program: Sequence[str] = PROGRAM, slots: int = 1) -> None:
        self.slots = slots
        self._program = program
        self._waiting: deque[Submission] = deque()
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        self._waiting += jobs

    def poll(self) -> Mapping[int, State]:
        ended = [index for index, process in self._running.items() if process.poll() is not None]
        for index in ended:
            del self._running[index]
        while self._waiting and len(self._running) < self.slots:
            job = self._waiting.popleft()
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("ab") as log:
                words = [*self._program, str(job.file)]
                self._running[job.index] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        return {
            **dict.fromkeys(ended, State.ENDED),
            **dict.fromkeys(self._running, State.RUNNING),
            **{job.index: State.WAITING for job in self._waiting},
        }

    def avoid(self, hosts: Collection[str]) -> None:
        """Do nothing: there is one machine, whose jobs refuse it."""

    def cancel(self) -> None:
        self._waiting.clear()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()

    def close(self) -> None:
        """Hold nothing."""
