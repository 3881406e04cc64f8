"""A process that saves baselines is killed: the store holds the old or the new baseline, whole, and nothing half-made.

A tenth of the kills run here, and all of them by ``make chaos``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.project import LIMIT
from tests.faults.processes import Run, left
from tests.length import WHOLE
from tfbench.sides.source_tree import KEPT
from tfbench.storage.baselines import Baselines, Layout

SAVES = 270 if WHOLE else 9

SAVER = """
import os, sys
from pathlib import Path

from tfbench import fs
from tfbench.model import Case, EnvironmentInfo, Run, Sample
from tfbench.race import workers
from tfbench.race.lanes import Processors
from tfbench.race.workers import Suite
from tfbench.session.record import RunMeasurements, RunRecorder
from tfbench.session.request import CaseResult, RunRequest

root = Path(sys.argv[1])
environment = EnvironmentInfo("3", "python", {}, "", False, {}, (0,), 1, {})


def save(number):
    (root / "benchmarks/test_mine.py").write_text(f"NUMBER = {number}\\n")
    request = RunRequest(
        root=root, suite=Suite((), "", "importlib", "", ()), processors=Processors((0,), (0,)), executable="python",
        folder=root / ".tfbench", save_baseline="main",
    )
    cases = [Case(f"benchmarks/test_mine.py::test_{one}", "w", "") for one in range(50)]
    results = [CaseResult(case, sample=Sample(case, (Run((number * 1e-3,) * 200, 1),))) for case in cases]
    RunRecorder(request).save(RunMeasurements(results, environment))
    print("saved", number, flush=True)


# A process for each kill, which has the imports already.
for line in sys.stdin:
    first, count = map(int, line.split())
    if (pid := os.fork()) == 0:
        fs.scratch_dir.cache_clear()
        workers._remove_abandoned.cache_clear()
        workers.made_scratch()  # as a run does before it measures
        for number in range(first, first + count):
            save(number)
        sys.exit()
    print("started", pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", pid, flush=True)
"""


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


class Savers:
    """Processes that save baselines in a project, one at a time."""

    def __init__(self, project: Run) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(project.root)],
            cwd=project.root, env=project.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = 0

    def start(self, first: int, count: int = 1 << 30) -> None:
        """Start to save baselines with these numbers, and wait until the first one is saved."""
        self._server.stdin.write(f"{first} {count}\n")
        self._server.stdin.flush()
        words = [self._server.stdout.readline().split() for _ in range(2)]
        self.pid = next(int(word) for kind, word in words if kind == "started")
        assert ["saved", str(first)] in words

    def ended(self) -> int:
        """Wait until it has ended; return the last number that it has saved, 0 if there are no further ones."""
        last = 0
        while (words := self._server.stdout.readline().split())[0] == "saved":
            last = int(words[1])
        assert words == ["ended", str(self.pid)]
        return last

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(timeout=LIMIT)
        self._server.stdout.close()

    def wait_for_children(self, project: Run) -> None:
        """Wait until what a killed process has started, such as git, has ended as well."""
        end = time.monotonic() + 20
        while found := [one for one in left(str(project.root)) if one.partition(":")[0] != str(self._server.pid)]:
            assert time.monotonic() < end, found
            time.sleep(0.01)


def files(project: Run) -> list[str]:
    """Return the names of all files that the store consists of."""
    return sorted(os.listdir(project.root / ".tfbench/baselines"))


@pytest.mark.chaos
def test_a_process_that_saves_and_is_killed_leaves_the_old_or_the_new_baseline(project, record_property):
    rng = random.Random(21)
    number, during, halves = 0, 0, 0
    savers = Savers(project)
    for kill in range(SAVES):
        savers.start(number + 1)  # so that there is an old one
        wait_while_writing(project, rng) if kill % 2 else time.sleep(rng.uniform(0, 0.3))
        os.kill(savers.pid, signal.SIGKILL)
        saved = max(number + 1, savers.ended())
        savers.wait_for_children(project)
        number = whole_number(project)
        assert number in (saved, saved + 1)
        during += number == saved + 1
        halves += len(files(project)) > 1
    savers.start(number + 1, count=1)  # removes what the last one has left
    savers.ended()
    savers.close()
    assert whole_number(project) == number + 1
    assert files(project) == ["main.json"]
    text = f"0 lost, {halves} half-written files, which the next save removed"
    record_property("figure", f"{SAVES} kills of a process that saves baselines: {text}")
    project.check_clean()
