"""Runs that save a baseline and are killed: the store holds the old or the new baseline, whole, and nothing half-made.

A tenth of the kills run here, and all of them by ``make chaos``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.project import LIMIT
from tests.faults.processes import Run, left
from tests.length import WHOLE
from tfbench.sides.source_tree import KEPT
from tfbench.storage.baselines import Baselines, Layout

SAVES, RUNS = (270, 30) if WHOLE else (9, 2)
"""Kills of a process that saves ready measurements again and again, and of whole runs."""

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
BENCHMARKS = """
    def test_first(bench):
        bench(sum, range(500))

    def test_second(bench):
        bench(sum, range(500))
"""
Moment = Callable[[Path, Callable[[], bool]], None]
"""Waits until a process that saves below this folder is to be killed, while the function says that it runs."""


def some_time(seconds: float, rng: random.Random) -> Moment:
    """Return the end of a random time."""
    return lambda folder, runs: time.sleep(rng.uniform(0, seconds))


def while_writing(rng: random.Random) -> Moment:
    """Return a random time after the file of a baseline has appeared under its temporary name.

    On a busy machine, a process that saves once may do so unseen.
    """

    def wait(folder: Path, runs: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        place = Layout(folder).baselines
        while runs() and not (place.is_dir() and any(name.startswith(".half-") for name in os.listdir(place))):
            assert time.monotonic() < end
        time.sleep(rng.choice([0, 0, 0.0005, 0.002, 0.005]))

    return wait


@pytest.fixture
def project(tmp_path):
    made = Run(tmp_path)
    made.write(BENCHMARKS)
    (tmp_path / ".gitignore").write_text("/temporary/\n/.tfbench/\n/.cache/\n*.json\n*.py[co]\n/killed\n")
    made.commit("first")
    return made


def wait_for_its_processes(project: Run, but: str = "") -> None:
    """Wait until what a killed process has started, such as git, has ended as well."""
    end = time.monotonic() + 20
    while found := [one for one in left(str(project.root)) if one.partition(":")[0] != but]:
        assert time.monotonic() < end, found
        time.sleep(0.01)


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
        wait_for_its_processes(project, str(self._server.pid))


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
        moment = while_writing(rng) if kill % 2 else some_time(0.3, rng)
        moment(project.root / ".tfbench", lambda: True)
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


@pytest.mark.chaos
def test_a_run_that_saves_and_is_killed_leaves_the_old_or_the_new_baseline(project, record_property):
    rng = random.Random(22)
    began = time.monotonic()
    options = ("--save-baseline", "main", "-p", "no:cacheprovider")
    done = project.run(*options)
    assert done.code == 0, done.output
    seconds = time.monotonic() - began
    store = Baselines(Layout(project.root / ".tfbench").baselines)
    new = 0
    for kill in range(RUNS):
        project.write(textwrap.dedent(BENCHMARKS) + f"\nNUMBER = {kill}\n")
        before = store.fetch("main")
        (project.root / "report.json").unlink(missing_ok=True)
        process = project.start(*options)
        moment = while_writing(rng) if kill % 3 == 1 else some_time(1.1 * seconds, rng)
        moment(project.root / ".tfbench", lambda process=process: process.poll() is None)
        process.kill()
        process.communicate(timeout=LIMIT)
        wait_for_its_processes(project)
        after = store.fetch("main")
        assert {sample.case.name.rpartition("::")[2] for sample in after.samples.values()} == {
            "test_first",
            "test_second",
        }
        assert after.tree in kept(project)
        new += after.context.session != before.context.session
        if after.context.session == before.context.session:
            assert after == before
        report = (
            json.loads((project.root / "report.json").read_text()) if (project.root / "report.json").exists() else {}
        )
        assert not report.get("complete") or after.context.session != before.context.session
    done = project.run(*options)
    assert done.code == 0, done.output
    assert store.fetch("main").context.session != after.context.session
    assert files(project) == ["main.json"]
    record_property("figure", f"{RUNS} kills of whole runs that save a baseline: 0 lost, {new} saved before the kill")
    project.check_clean()
