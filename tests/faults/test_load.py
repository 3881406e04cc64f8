"""Load: memory with several environments, and many launches."""

from __future__ import annotations

import gc
import random
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.faults.processes import Run, private_bytes, processes
from tests.length import WHOLE
from tfbench.model import Case
from tfbench.plugin.options import available_cpus
from tfbench.policy import preset
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant, make_plan, orders
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.sides.spec import Side

LAUNCHES = 500 if WHOLE else 50
ENVIRONMENTS = 6 if WHOLE else 3
MATMUL = f"""
    import tensorflow as tf
    from tfbench import Axis, Level, across

    START = Axis("start", Level("0"), *(Level(str(i), env={{"START": str(i)}}) for i in range(1, {ENVIRONMENTS})))

    @across(START)
    def test_matmul(bench, variant):
        a = tf.random.normal([256, 256])
        bench(tf.matmul, a, a)
"""
UNDECIDED = """
    import dataclasses

    from tfbench import policy

    # Each environment has two pairs of zygotes, and every pair has a launch before the only look.
    policy.PRESETS["standard"] = dataclasses.replace(policy.PRESETS["standard"], looks=(2,), case_seconds=600.0)
"""


@pytest.mark.tensorflow
@pytest.mark.chaos
def test_environments_at_once_stay_under_0_7_gb_of_private_memory_each(tmp_path, record_property):
    run = Run(tmp_path, full=True)
    run.write(MATMUL)
    run.write(UNDECIDED, "undecided.py")
    (tmp_path / "conftest.py").unlink()
    process = run.start("-p", "undecided", "--policy", "standard")
    most, count = 0, 0
    while process.poll() is None:
        sizes = [private_bytes(one) for one in processes(str(tmp_path))]
        most, count = max(most, sum(sizes)), max(count, len(sizes))
        time.sleep(1.0)  # reading the sizes of so many processes takes processor time itself
    done = run.ended(process)
    assert done.code == 0, done.output
    assert len(done.outcomes()) == ENVIRONMENTS
    record_property(
        "figure", f"{ENVIRONMENTS} environments: at most {most / 1e9:.2f} GB of private memory, {count} processes"
    )
    assert count >= 2 * ENVIRONMENTS
    assert most < 0.7e9 * ENVIRONMENTS
    run.check_clean()


# Launches


@pytest.mark.chaos
def test_hundreds_of_launches_leave_descriptors_memory_and_children_as_they_were(tmp_path, record_property):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/test_mine.py").write_text("def test_one(bench):\n    bench(sum, range(500))\n")
    policy = replace(preset("quick"), launch_seconds=0.01, warmup_seconds=0.005, warmup_limit_seconds=0.01)
    suite = Suite(("benchmarks/test_mine.py",), "", "importlib", str(tmp_path / "made"), available_cpus())
    name = "benchmarks/test_mine.py::test_one"
    sides = [Side(side, sys.executable, tmp_path) for side in ("baseline", "contender")]
    entrants = [Entrant(Case(name, name, name), side) for side in sides]
    cpus = available_cpus()
    launcher = ProcessLauncher(suite, policy, Processors(cpus[-1:], cpus))
    rows = []
    try:
        for count in range(LAUNCHES + 1):
            if count % (LAUNCHES // 5) == 0:
                gc.collect()
                rows.append({name: usage(process) for name, process in watched(launcher)})
            launched(launcher, entrants, policy)
    finally:
        launcher.close()
    early, late = rows[1], rows[-1]
    assert set(early) == set(late) == {"controller", "baseline", "contender"}
    for name, before in early.items():
        after = late[name]
        assert (after["descriptors"], after["children"]) == (before["descriptors"], before["children"]), name
        # What every launch keeps shows in most windows, and a heap that happens to be extended in one of them.
        grown = median(then[name]["bytes"] - now[name]["bytes"] for now, then in pairwise(rows[1:]))
        assert grown < 1000 * LAUNCHES / 5, name
        text = f"{after['descriptors']} descriptors, {after['children']} children"
        kilobytes = (after["bytes"] - before["bytes"]) / 1e3
        record_property(
            "figure", f"{LAUNCHES} launches, {name}: {text}, {kilobytes:+.0f} kB since launch {LAUNCHES // 5}"
        )


def watched(launcher):
    """Yield the names and folders in /proc of the controller and of the zygotes."""
    yield "controller", Path("/proc/self")
    for (side, *_), zygote in launcher._zygotes.items():
        yield side, Path(f"/proc/{zygote.pid}")


def usage(process):
    children = process / "task" / str(process.resolve().name) / "children"
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "children": len(children.read_text().split()),
        "bytes": private_bytes(process),
    }


def launched(launcher, entrants, policy):
    """Open a launch, run its rounds and end it."""
    launch = launcher.open(entrants, 0)
    try:
        iterations = {index: one.iteration for index, one in launch.prepare((0, 1)).items()}
        plan = make_plan(entrants, iterations, policy, False)
        launch.rounds(plan, orders([0, 1], plan.rounds, random.Random(1)))
    finally:
        launch.kill()
