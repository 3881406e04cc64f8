"""Run a scripted worker in place of the real one, and note what the controller's cases cost.

A plugin for pytest: ``pytest -p tests.fakes.measured``, with `INTERPRETER` in the environment and `NOTES` as the file
for one line of JSON per thousand cases.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.faults.processes import private_bytes

INTERPRETER, NOTES, EVERY = "TFBENCH_FAKE_INTERPRETER", "TFBENCH_NOTES", "TFBENCH_NOTES_EVERY"


class Notes:
    """Processor time, memory and descriptors of this process, after every so many cases."""

    def __init__(self, file: Path, every: int) -> None:
        self._file = file
        self._every = every
        self._cases = 0

    def note(self) -> None:
        gc.collect()
        here = Path("/proc/self")
        row = {
            "cases": self._cases,
            "seconds": time.process_time(),
            "bytes": private_bytes(here),
            "descriptors": len(os.listdir(here / "fd")),
        }
        with self._file.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)

    def pytest_runtestloop(self) -> None:
        self.note()

    def pytest_runtest_logfinish(self) -> None:
        self._cases += 1
        if self._cases % self._every == 0:
            self.note()


def pytest_configure(config: pytest.Config) -> None:
    sys.executable = os.environ[INTERPRETER]
    config.pluginmanager.register(Notes(Path(os.environ[NOTES]), int(os.environ[EVERY])))
