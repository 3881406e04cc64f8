"""Trace every benchmark at its GPU shapes on a machine without a GPU.

``python -m tests.benchmarks.gpu_shapes [--first] [PART OF A NAME ...]`` prints a JSON object per case, or only for the
first case of each workload with ``--first``. ``TFBENCH_SCALE=huge`` traces the huge shapes. TensorFlow is given a
fictitious GPU, and soft placement uses the CPU instead. Tracing a step builds its graph with all shapes, so shapes that do
not fit are an error. Steps that are no functions of tensors (Keras' own loops) run instead. Files with the same shapes on
every device are left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tfbench.model import JSON
from tfbench.protocol import StartZygote
from tfbench.worker import tf_runtime
from tfbench.worker.bench import Bench
from tfbench.worker.own_files import OwnFiles
from tfbench.worker.zygote import Zygote

ROOT = Path(__file__).resolve().parents[2]


class Tracing(Bench[Any]):
    """Traces a step, or runs it if it is no function of tensors."""

    def __init__(self) -> None:
        super().__init__(channel=None, request=None, pipes=(), function=None, own_files=None)  # type: ignore[arg-type]
        self.reported: JSON = {}

    def serve(self, call: partial[Any]) -> None:
        """Trace the call."""
        import tensorflow as tf

        step, arguments = call.func, call.args
        self.reported = {
            "work": {name: self.facts.get(name, 0) for name in ("flops", "bytes")},
            "largest": max((_elements(argument) for argument in tf.nest.flatten(arguments)), default=0),
            "bytes": sum(map(_size, tf.nest.flatten(arguments))),
        }
        function = step if hasattr(step, "get_concrete_function") else tf.function(step, autograph=False)
        try:
            ops = function.get_concrete_function(*arguments).graph.get_operations()
            self.reported |= {"ops": len(ops), "cudnn": any(op.type.startswith("Cudnn") for op in ops)}
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            step(*arguments)
            self.reported["ran"] = True


def _elements(argument: Any) -> int:
    try:
        return int(argument.shape.num_elements())
    except (AttributeError, TypeError):
        return 0


def _size(argument: Any) -> int:
    elements = _elements(argument)
    return elements * int(argument.dtype.size) if elements else 0


class Shapes(Zygote):
    """A zygote that traces each case in a process of its own, instead of serving races."""

    def __init__(self, chosen: list[str], first: bool) -> None:
        start = StartZygote(str(ROOT), (), "", "importlib", "", "", None)
        own_files = OwnFiles(str(ROOT), "")
        super().__init__(None, start, str(ROOT), None, own_files, tf_runtime.Seeds())  # type: ignore[arg-type]
        self._chosen = chosen
        self._first = first
        self._done: set[str] = set()

    def _serve(self) -> NoReturn:
        self.served = True
        tf_runtime.keras()
        for item in self._items.values():
            workload = item.nodeid.partition("[")[0]
            if self._chosen and not any(one in item.nodeid for one in self._chosen):
                continue
            if self._first and workload in self._done:
                continue
            self._done.add(workload)
            if (pid := os.fork()) == 0:
                try:
                    self._trace(item)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            os.waitpid(pid, 0)
        raise pytest.exit.Exception("every case was traced", 0)

    def _trace(self, item: pytest.Item) -> None:
        import tensorflow as tf

        list_devices = tf.config.list_physical_devices
        gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        tf.config.list_physical_devices = lambda kind=None: [
            *list_devices(kind), *([gpu] if kind in (None, "GPU") else [])
        ]  # fmt: skip
        logical, list_logical = tf.config.LogicalDevice("/device:GPU:0", "GPU"), tf.config.list_logical_devices
        tf.config.list_logical_devices = lambda kind=None: [
            *list_logical(kind), *([logical] if kind in (None, "GPU") else [])
        ]  # fmt: skip
        # Only shapes matter, and a gigabyte of numbers takes seconds. Nothing writes into these.
        tf.random.stateless_normal = lambda shape, *_, dtype=tf.float32, **__: tf.raw_ops.Empty(
            shape=shape, dtype=dtype
        )
        self._launch = tracing = Tracing()
        began = time.perf_counter()
        reports = runtestprotocol(item, log=False, nextitem=None)
        reported: JSON = {"case": item.nodeid, "seconds": round(time.perf_counter() - began, 2), **tracing.reported}
        for report in reports:
            if report.failed:
                reported["failed"] = str(report.longreprtext)[-1500:]
            elif report.skipped:
                reported["skipped"] = str(report.longrepr)
        print(json.dumps(reported), flush=True)


def main(chosen: list[str]) -> None:
    """Print the result of each case whose name contains one of ``chosen``, or of all cases."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest-randomly would shuffle the cases
    first = "--first" in chosen
    chosen = [part for part in chosen if part != "--first"]
    files = [str(file) for file in sorted((ROOT / "benchmarks").glob("test_*.py")) if "by_scale(" in file.read_text()]
    arguments = [*files, f"--rootdir={ROOT}", "--capture=no", "-q", "--override-ini=addopts="]
    arguments += ["-p", "no:cacheprovider", "-p", "no:tfbench.plugin", "-p", "no:warnings"]
    pytest.main(arguments, plugins=[Shapes(chosen, first)])


if __name__ == "__main__":
    main(sys.argv[1:])
