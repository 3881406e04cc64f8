"""A process that saves baselines is killed: the store holds the old or the new baseline, whole, and nothing half-made.

A tenth of the kills run here, and all of them by ``make chaos``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.fakes.suites import request_of
from tests.faults.processes import Run, left
from tests.length import WHOLE
from tfbench import fs
from tfbench.model import Case, EnvironmentInfo, Sample
from tfbench.model import Run as Launch
from tfbench.race import workers
from tfbench.session.record import RunMeasurements, RunRecorder
from tfbench.session.request import CaseResult
from tfbench.sides.source_tree import KEPT
from tfbench.storage.baselines import Baselines, Layout

SAVES = 270 if WHOLE else 9


def save(root: Path, number: int) -> None:
    """Save a baseline that has this number in all of its parts."""
    (root / "benchmarks/test_mine.py").write_text(f"NUMBER = {number}\n")
    cases = [Case(f"benchmarks/test_mine.py::test_{one}", "w", "") for one in range(50)]
    results = [CaseResult(case, sample=Sample(case, (Launch((number * 1e-3,) * 200, 1),))) for case in cases]
    environment = EnvironmentInfo("3", "python", {}, "", False, {}, (0,), 1, {})
    request = request_of(root, folder=root / ".tfbench", save_baseline="main")
    RunRecorder(request).save(RunMeasurements(results, environment))


class Saver:
    """A fork of this process that saves baselines with these numbers. It has saved the first one."""

    def __init__(self, project: Run, first: int, count: int = 1 << 30) -> None:
        self.first = first
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                os.environ.update(project.environment())
                tempfile.tempdir = None
                fs.scratch_dir.cache_clear()
                workers._remove_abandoned.cache_clear()
                workers.made_scratch()  # as a run does before it measures
                for number in range(first, first + count):
                    save(project.root, number)
                    os.write(writing, b"%d\n" % number)
                shutil.rmtree(fs.scratch_dir())
            finally:
                os._exit(0)
        os.close(writing)
        self.pid, self._numbers = pid, os.fdopen(reading)
        assert self._numbers.readline() == f"{first}\n"

    def ended(self) -> int:
        """Wait until it has ended; return the last number that it has saved."""
        with self._numbers:
            last = [self.first, *map(int, self._numbers)][-1]
        os.waitpid(self.pid, 0)
        return last


def wait_while_writing(project: Run, rng: random.Random) -> None:
    """Wait for a random time after the file of a baseline has appeared under its temporary name."""
    end = time.monotonic() + 60
    while not any(name.startswith(".half-") for name in files(project)):
        assert time.monotonic() < end
    time.sleep(rng.choice([0, 0, 0.0005, 0.002, 0.005]))


@pytest.fixture
def project(tmp_path):
    made = Run(tmp_path)
    made.write("")
    (tmp_path / ".gitignore").write_text("/temporary/\n/.tfbench/\n/.cache/\n*.json\n*.py[co]\n/killed\n")
    made.commit("first")
    return made


def kept(project: Run) -> set[str]:
    """Return the trees that git keeps for the baseline."""
    command = ["git", "log", "--format=%T", f"{KEPT}main"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def whole_number(project: Run) -> int:
    """Return the number of the saved baseline. Every part of it has the same one, and git keeps its tree."""
    baseline = Baselines(Layout(project.root / ".tfbench").baselines).fetch("main")
    numbers = {round(second * 1e3) for sample in baseline.samples.values() for second in sample.seconds}
    assert len(numbers) == 1
    assert {len(sample.seconds) for sample in baseline.samples.values()} == {200}
    assert len(baseline.samples) == 50
    assert baseline.tree in kept(project)
    command = ["git", "show", f"{baseline.tree}:benchmarks/test_mine.py"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=True)
    assert done.stdout == f"NUMBER = {max(numbers)}\n"
    return max(numbers)


def files(project: Run) -> list[str]:
    """Return the names of all files that the store consists of."""
    return sorted(os.listdir(project.root / ".tfbench/baselines"))


@pytest.mark.chaos
def test_a_process_that_saves_and_is_killed_leaves_the_old_or_the_new_baseline(project, record_property):
    rng = random.Random(21)
    number, halves = 0, 0
    for kill in range(SAVES):
        saver = Saver(project, number + 1)  # so that there is an old one
        wait_while_writing(project, rng) if kill % 2 else time.sleep(rng.uniform(0, 0.3))
        os.kill(saver.pid, signal.SIGKILL)
        saved = saver.ended()
        end = time.monotonic() + 20
        while found := left(str(project.root)):  # such as git, which it has started
            assert time.monotonic() < end, found
            time.sleep(0.01)
        number = whole_number(project)
        assert number in (saved, saved + 1)
        halves += len(files(project)) > 1
    Saver(project, number + 1, count=1).ended()  # removes what the last one has left
    assert whole_number(project) == number + 1
    assert files(project) == ["main.json"]
    text = f"0 lost, {halves} half-written files, which the next save removed"
    record_property("figure", f"{SAVES} kills of a process that saves baselines: {text}")
    project.check_clean()
