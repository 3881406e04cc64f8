"""Race one step on two interpreters in turns, without tfbench.

`tfbench repro` writes this text into a file, followed by the step. Everything here therefore needs TensorFlow, NumPy
and the standard library alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Settings of the race

ENVIRONMENT: dict[str, str] = {}  # of both sides
OTHER_ENVIRONMENT: dict[str, str] = {}  # of the other side
OWN_ENVIRONMENT: dict[str, str] = {}  # of this side
PROCESSORS = 1  # of a side, as many as its threads; 0 for all
LAUNCHES = 5  # fresh processes of each side
SECONDS = 1.0  # of turns in a launch
BLOCK, PRIME = 3e-4, 4e-4  # seconds of a timed block, and of the untimed calls before it
SHOWN = 0.02  # a smaller difference shows nothing
CHILD = "--child"
INTRA, INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", INTRA, INTER)


class SideProcess:
    """A fresh process with the step, which runs timed blocks on request."""

    def __init__(self, python: str, file: str, settings: dict[str, str]) -> None:
        env = {name: value for name, value in os.environ.items() if name not in THREADS}
        env |= {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", **ENVIRONMENT, **settings}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([python, file, CHILD], stdin=pipe, stdout=pipe, env=env, text=True)

    def answer(self) -> Any:
        """Return the next answer of the process."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            sys.exit(f"a process of {self.process.args!r} ended with {self.process.wait()}; its error is above")
        return json.loads(line)

    def ask(self, *request: Any) -> Any:
        """Send a request and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def launch(file: str, other: str, seconds: float) -> tuple[float, list[dict[str, Any]]]:
    """Race two fresh processes; return time of this side / time of the other, and what each side is."""
    sides = [SideProcess(other, file, OTHER_ENVIRONMENT), SideProcess(sys.executable, file, OWN_ENVIRONMENT)]
    try:
        about = [side.answer() for side in sides]
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        iterations = [side.ask("settle", cpus[-PROCESSORS:]) for side in sides]
        if about[1]["once"]:  # a step that only its first call shows
            return about[1]["once"] / about[0]["once"], about
        calls, primes = max(1, round(BLOCK / min(iterations))), max(1, round(PRIME / min(iterations)))
        rounds = round(seconds / (sum(iterations) * (calls + primes)))
        ratios = []
        for _ in range(min(400, max(15, rounds))):
            order = random.sample((0, 1), 2)  # noise hits both sides alike
            # A step may take inputs by turn, and equally many calls in each turn would time the same ones.
            more = random.randrange(2)
            times = {index: sides[index].ask("block", calls, primes + more) for index in order}
            ratios.append(math.log(times[1] / times[0]))
        return math.exp(statistics.median(ratios)), about
    finally:
        for side in sides:
            side.end()


def main(file: str) -> int:
    """Race, and print the ratio of each launch; 0 if all of them show the same difference."""
    parser = argparse.ArgumentParser(description="Race the step of this file on this Python and on another one.")
    parser.add_argument("--other", default=sys.executable, metavar="PYTHON", help="the interpreter to compare with")
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="fresh processes of each side")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds of turns in a launch")
    parser.add_argument("--json", metavar="FILE", help="write the ratio, and whether the difference is shown, as JSON")
    arguments = parser.parse_args()
    ratios = []
    for number in range(arguments.launches):
        ratio, (other, own) = launch(file, arguments.other, arguments.seconds)
        if not number:
            print(f"other: {other['about']}\nthis:  {own['about']}")
        ratios.append(ratio)
        print(f"launch {number + 1}: this / other = {ratio:.3f}", flush=True)
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    shown = low > 1 + SHOWN or high < 1 / (1 + SHOWN)
    word = "slower" if middle > 1 else "faster"
    text = f"the difference is shown: {word} in every launch" if shown else "no difference is shown"
    print(f"ratio {middle:.3f} (launches from {low:.3f} to {high:.3f}); {text}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"ratio": middle, "shown": shown}), encoding="utf-8")
    return 0 if shown else 1


# In the processes of the sides


class StepServer:
    """Takes the step, and serves the other process."""

    def __init__(self) -> None:
        # Only answers may come through this pipe, whatever the step prints.
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __call__(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Warm the step up, then run blocks until this process is killed."""
        call = partial(step, *arguments)
        call()
        self.serve(call, 0.0)

    def once(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Time the only call of the step."""
        began = time.perf_counter()
        step(*arguments)
        synchroniser()()
        self.serve(lambda: None, time.perf_counter() - began)

    def serve(self, call: Callable[[], Any], once: float) -> None:
        """Answer requests until the other end of the pipe closes."""
        wait = synchroniser()
        self.say({"about": versions(), "once": once})
        for line in sys.stdin:
            kind, *values = json.loads(line)
            if kind == "settle":
                pin(values[0])
                self.say(once if once else warm(call, wait))
                gc.collect()  # and freeze nothing: a step that collects garbage pays for all objects
                gc.disable()
            else:
                calls, primes = values
                block(call, primes, wait)
                self.say(block(call, calls, wait))
        os._exit(0)

    def say(self, answer: Any) -> None:
        """Send an answer."""
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


def block(call: Callable[[], Any], calls: int, wait: Callable[[], Any]) -> float:
    """Return the seconds of so many calls."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return time.perf_counter() - began


def warm(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Run the step for half a second; return the median seconds of a call."""
    times: list[float] = []
    while sum(times) < 0.5 or len(times) < 3:
        times.append(block(call, 1, wait))
    return statistics.median(times[len(times) // 2 :])


def pin(cpus: Sequence[int]) -> None:
    """Restrict every thread of this process to these processors."""
    for task in os.listdir("/proc/self/task") if cpus else ():
        os.sched_setaffinity(int(task), cpus)


def synchroniser() -> Callable[[], Any]:
    """Return a function that waits until the devices have finished."""
    import tensorflow as tf

    return tf.test.experimental.sync_devices if tf.config.list_physical_devices("GPU") else lambda: None


def versions() -> str:
    """Return the versions of this process."""
    import numpy as np
    import tensorflow as tf

    python = ".".join(map(str, sys.version_info[:3]))
    return f"TensorFlow {tf.__version__}, NumPy {np.__version__}, Python {python}"


def limit_threads() -> None:
    """Give TensorFlow one thread, before its first op, unless a variable says how many."""
    import tensorflow as tf

    if PROCESSORS == 1 and INTRA not in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if PROCESSORS == 1 and INTER not in os.environ:
        tf.config.threading.set_inter_op_parallelism_threads(1)


def folder() -> Path:
    """Return a new temporary folder."""
    return Path(tempfile.mkdtemp())


def shared(build: Callable[..., Any], *arguments: Any) -> Path:
    """Return a new folder that ``build(folder, *arguments)`` has filled."""
    made = folder()
    build(made, *arguments)
    return made


class PlainLevel:
    """One value of what the benchmark varies."""

    def __init__(self, name: str, setup: Any = None, requires: Any = None, env: Any = None, **helpers: Any) -> None:
        self.name, self.setup, self.helpers = name, setup, helpers


class PlainVariant:
    """The values that were raced."""

    def __init__(self, levels: dict[str, PlainLevel]) -> None:
        self.levels = levels

    def __getitem__(self, axis: str) -> str:
        return self.levels[axis].name

    def __getattr__(self, helper: str) -> Any:
        return next(level.helpers[helper] for level in self.levels.values() if helper in level.helpers)

    def enter(self) -> None:
        """Apply the settings of the values."""
        for level in self.levels.values():
            if level.setup is not None:
                level.setup()
