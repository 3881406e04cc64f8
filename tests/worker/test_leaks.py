"""Growth per call, each step in a process of its own, without TensorFlow."""

import json
import subprocess
import sys
import textwrap

import pytest

STEPS = """
    import itertools, json, os, sys, threading, time
    import numpy as np
    from tfbench.worker.tf_runtime import MetricUnavailable
    from tfbench.worker.probes import Leaks

    kept, numbers, stop = [], itertools.count(), threading.Event()

    def thread():
        threading.Thread(target=stop.wait, daemon=True).start()

    STEPS = {
        "nothing": lambda: np.ones(1000).sum(),
        "bytes": lambda: kept.append(np.ones(128)),
        "object": lambda: kept.append([[], []]),
        "large": lambda: kept.append(np.ones(12500)),
        "thread": thread,
        "file": lambda: kept.append(open(os.devnull)),
        "cache": lambda: kept.append(np.ones(10_000)) if next(numbers) < 60 else None,
        "slow": lambda: time.sleep(0.015),
        "slower": lambda: time.sleep(0.2),
    }
    found = {}
    for name, step in STEPS.items():
        if (pid := os.fork()) == 0:
            leaks = Leaks()
            leaks.repeat(step, 4, 50, 2.0 if name == "object" else 0.4)
            try:
                print(json.dumps([name, leaks.found()]), flush=True)
            except MetricUnavailable as error:
                print(json.dumps([name, str(error)]), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(STEPS)], capture_output=True, text=True, timeout=60, check=True
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("step", "kind", "low", "high"),
    [
        ("bytes", "bytes", 850, 1300),
        ("large", "resident", 80_000, 130_000),
        ("object", "objects", 2.5, 4.5),
        ("thread", "threads", 1, 1),
        ("file", "files", 1, 1),
    ],
)
def test_each_kind_of_growth_is_found(found, step, kind, low, high):
    assert low <= found[step][kind] <= high


def test_a_step_without_growth_and_one_that_fills_a_cache_have_none(found):
    for step in ("nothing", "cache"):
        assert found[step]["bytes"] < 100, found[step]
        assert found[step]["objects"] < 1.5
        assert found[step]["threads"] == found[step]["files"] == found[step]["traces"] == 0


def test_long_steps_have_counts_only_or_a_reason(found):
    assert set(found["slow"]) == {"threads", "files", "traces", "calls"}
    assert "too long for the 8 calls that show a leak" in found["slower"]
