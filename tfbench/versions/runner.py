"""Race one benchmark on two interpreters in turns, without tfbench: ``python race.py --other OTHER_PYTHON``.

`tfbench explain --repro` writes this file beside the files of the benchmark, the axes of benchmarks (`race_axes.py`), and
`race.json`, which names the case and the settings of both sides. Both interpreters need TensorFlow, NumPy and pytest. Exit code 0: every launch shows the difference.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SETTINGS = HERE / "race.json"  # the case, and the settings of both sides
LAUNCHES = 5  # fresh processes of each side; by chance, five agree in their direction in 1 of 16 runs of equal sides
SECONDS = 1.0  # of turns in a launch
BLOCK, PRIME = 2e-3, 2e-3  # seconds of a timed block, and of the untimed calls before it, which refill the caches
SHOWN = 0.02  # a smaller difference is within what two processes of one program differ by
CHILD = "--child"
INTRA, INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", INTRA, INTER)
CONTRACTS = ("as_accurate", "as_fast", "at_least", "at_most", "faster", "no_leak", "smaller")
LEFT_OUT = (*THREADS, "PYTHONPATH", "PYTEST_ADDOPTS")


class SideProcess:
    """A fresh process with the step, which runs timed blocks on request."""

    def __init__(self, python: str, settings: dict[str, str]) -> None:
        env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        env.update({"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        env.update(settings)
        command, pipe = [python, str(Path(__file__).resolve()), CHILD], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, cwd=HERE, text=True)

    def ask(self, *request: Any) -> Any:
        """Send a request and return the answer. The first answer needs no request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if request:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        if not (line := self.process.stdout.readline()):
            print(f"a process of {self.process.args!r} ended with {self.process.wait()}; see above", file=sys.stderr)
            sys.exit(2)
        return json.loads(line)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def launch(settings: dict[str, Any], other: str) -> tuple[float, list[str]]:
    """Race two fresh processes; return time of this side / time of the other, and the versions of both."""
    sides = [SideProcess(other, settings["other"]), SideProcess(sys.executable, settings["this"])]
    try:
        about = [side.ask() for side in sides]
        versions = [each["versions"] for each in about]
        if about[1]["once"]:  # a step that only its first call shows
            return about[1]["once"] / about[0]["once"], versions
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        iterations = [side.ask("settle", cpus[-settings["processors"] :]) for side in sides]
        calls, primes = (max(1, round(each / min(iterations))) for each in (BLOCK, PRIME))
        rounds = round(SECONDS / (sum(iterations) * (calls + primes)))
        ratios = []
        for _ in range(min(400, max(15, rounds))):
            # A step may take inputs by turn, and equally many calls in each turn would time the same ones.
            more = random.randrange(2)
            times = {index: sides[index].ask("block", calls, primes + more) for index in random.sample((0, 1), 2)}
            ratios.append(math.log(times[1] / times[0]))
        return math.exp(statistics.median(ratios)), versions
    finally:
        for side in sides:
            side.end()


def main() -> int:
    """Race, and print the ratio of each launch; 0 if all of them show the same difference."""
    parser = argparse.ArgumentParser(description="Race a benchmark on this Python and on another one.")
    parser.add_argument("--other", default=sys.executable, metavar="PYTHON", help="the interpreter to compare with")
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="fresh processes of each side")
    arguments = parser.parse_args()
    settings, ratios = json.loads(SETTINGS.read_text(encoding="utf-8")), []
    for number in range(arguments.launches):
        ratio, (other, this) = launch(settings, arguments.other)
        if not number:
            print(f"other: {other}\nthis:  {this}")
        ratios.append(ratio)
        print(f"launch {number + 1}: this / other = {ratio:.3f}", flush=True)
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    shown = low > 1 + SHOWN or high < 1 / (1 + SHOWN)
    text = f"this side is {'slower' if middle > 1 else 'faster'} in every launch" if shown else "no difference is shown"
    print(f"ratio {middle:.3f} (launches from {low:.3f} to {high:.3f}): {text}")
    return 0 if shown else 1


# In the processes of the sides: the fixtures of a benchmark, and names that it imports from tfbench


def contract(*given: Any, **keywords: Any) -> Any:
    """Stand for a decorator that declares a contract, which changes nothing here."""
    return given[0] if given and callable(given[0]) else lambda function: function


class Bench:
    """The fixture ``bench``: it takes the step, and serves the process that races."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def __call__(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Warm the step up, then run blocks until this process is killed."""
        call = partial(step, *arguments)
        call()
        self.serve(call, 0.0)

    def once(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Time the only call of the step."""
        self.serve(lambda: None, block(partial(step, *arguments), 1, synchroniser()))

    def serve(self, call: Callable[[], Any], once: float) -> None:
        """Answer requests until the other end of the pipe closes."""
        import numpy as np
        import tensorflow as tf

        versions = f"TensorFlow {tf.__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]}"
        wait = synchroniser()
        say = partial(print, file=self.answers, flush=True)
        say(json.dumps({"versions": versions, "once": once}))
        for line in sys.stdin:
            kind, *values = json.loads(line)
            if kind == "settle":
                for task in os.listdir("/proc/self/task") if values[0] else ():
                    os.sched_setaffinity(int(task), values[0])
                say(warm(call, wait))
                gc.collect()
                gc.disable()
            else:
                calls, primes = values
                block(call, primes, wait)
                say(block(call, calls, wait))
        os._exit(0)


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


def synchroniser() -> Callable[[], Any]:
    """Return a function that waits until the devices have finished."""
    import tensorflow as tf

    return tf.test.experimental.sync_devices if tf.config.list_physical_devices("GPU") else lambda: None


def child() -> int:
    """Run the case under pytest, which ends when its step has been served."""
    import pytest
    import tensorflow as tf

    settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    # Only answers may come through this pipe, whatever pytest and the step print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if settings["processors"] == 1:  # before the first op, unless a variable says how many
        if INTRA not in os.environ:
            tf.config.threading.set_intra_op_parallelism_threads(1)
        if INTER not in os.environ:
            tf.config.threading.set_inter_op_parallelism_threads(1)
    package, other = types.ModuleType("tfbench"), types.ModuleType("other")
    vars(other).update(DeclarationError=ValueError, UsageError=ValueError)
    sys.modules.update(tfbench=package, **{f"tfbench.{name}": other for name in ("errors", "plugin")})
    axes: Any = importlib.import_module("race_axes")
    vars(package).update({**vars(axes), **dict.fromkeys(CONTRACTS, contract), "Bench": Any, "Shared": Any})
    sys.path[:0] = [str(HERE / path) for path in settings["paths"]]

    class Fixtures:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            items[:] = [item for item in items if item.nodeid == settings["case"]]

        def pytest_generate_tests(self, metafunc: Any) -> None:
            axes.add_scale(metafunc)

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(self, item: Any) -> None:
            variant = getattr(item, "callspec", None) and item.callspec.params.get("variant")
            if variant and (reason := variant.enter()):
                pytest.skip(reason)

        @pytest.fixture
        def bench(self) -> Bench:
            return Bench(answers)

        @pytest.fixture
        def benchmark(self) -> Any:
            return lambda function, *given, **named: Bench(answers)(partial(function, *given, **named))

        @pytest.fixture
        def shared(self, tmp_path: Path) -> Any:
            return lambda build, *given: (build(tmp_path, *given), tmp_path)[1]

    arguments = [settings["case"].partition("::")[0], f"--rootdir={HERE}", "-c", os.devnull, "-s", "-q", "-rs"]
    arguments += ["-p", "no:cacheprovider", f"--import-mode={settings['import_mode']}"]
    return int(pytest.main(arguments, plugins=[Fixtures()])) or 3  # the benchmark has no step, or is not there


if __name__ == "__main__":
    sys.exit(child() if CHILD in sys.argv else main())
