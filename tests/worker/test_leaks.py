"""Growth per call, each step in a process of its own, without TensorFlow."""

import json
import re

import pytest

from tests.fakes.alone import run_alone

STEPS = """
    import itertools, json, os, resource, sys, threading, time
    import numpy as np
    from tfbench.protocol import ProbeCase
    from tfbench.worker.probes import END, Probes, leaks

    PATIENT = ("object", "steady", "slow bytes", "slow nothing", "loaded", "sites", "slower still")

    def request(patient, sites):
        windows, seconds = ((4, 50, 2000), (0.4, 2.0, 3.0)) if patient else ((4, 50, 50), (0.4, 0.4, 0.4))
        return ProbeCase((), "case", "folder", 4, windows, seconds, (65536, 262144, 100), (256.0, 1.5) if sites else ())

    kept, numbers, stop = [], itertools.count(), threading.Event()

    def thread():
        threading.Thread(target=stop.wait, daemon=True).start()

    STEPS = {
        "nothing": lambda: np.ones(1000).sum(),
        "bytes": lambda: kept.append(np.ones(128)),
        "object": lambda: kept.append([[], []]),
        "large": lambda: kept.append(np.ones(12500)),
        "thread": thread,
        "process": lambda: os.spawnlp(os.P_NOWAIT, "true", "true"),
        "waited for": lambda: os.spawnlp(os.P_WAIT, "true", "true"),
        "file": lambda: kept.append(open(os.devnull)),
        "scarce": lambda: kept.append(open(os.devnull)),
        "cache": lambda: kept.append(np.ones(10_000)) if next(numbers) < 60 else None,
        "steady": lambda: kept.append(bytes(400)),
        "slow bytes": lambda: time.sleep(0.3) or kept.append(np.ones(1 << 16)),
        "slow nothing": lambda: time.sleep(0.3) or kept.append(bytes(400)),
        "loaded": lambda: time.sleep(0.03) or kept.append(np.ones(1 << 16)),
        "sites": lambda: kept.append(np.ones(1 << 16)),
        "slower": lambda: time.sleep(0.2),
        "slower still": lambda: time.sleep(0.8),
    }
    found = {}
    for name, step in STEPS.items():
        if (pid := os.fork()) == 0:
            if name == "scarce":
                resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
            probes = Probes()
            step()
            began = time.perf_counter()
            step()
            each = time.perf_counter() - began
            asked = request(name in PATIENT, name == "sites")
            probes.start("leaks", leaks(step, 10 * each if name == "loaded" else each, asked))
            probes.reach(END)
            print(json.dumps([name, (probes.found | probes.absent)["leaks"]]), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def found():
    return dict(json.loads(line) for line in run_alone(STEPS).splitlines())


@pytest.mark.parametrize(
    ("step", "kind", "low", "high"),
    [
        ("bytes", "bytes", 850, 1300),
        ("large", "resident", 80_000, 130_000),
        ("object", "objects", 2.5, 4.5),
        ("thread", "threads", 1, 1),
        ("process", "threads", 1, 1),
        ("waited for", "threads", 0, 0),
        ("file", "files", 1, 1),
        ("scarce", "files", 1, 1),
    ],
)
def test_each_kind_of_growth_is_found(found, step, kind, low, high):
    assert low <= found[step][kind] <= high


def test_a_step_without_growth_and_one_that_fills_a_cache_have_none(found):
    for step in ("nothing", "cache"):
        assert found[step]["bytes"] < 100, found[step]
        assert found[step]["objects"] < 1.5
        assert found[step]["threads"] == found[step]["files"] == found[step]["traces"] == 0


def test_the_resident_size_of_many_calls_agrees_with_the_leak(found):
    assert 300 <= found["steady"]["resident"] <= 600
    assert found["nothing"]["resident"] == 0


@pytest.mark.parametrize("step", ["slow bytes", "loaded"])
def test_a_leak_of_half_a_megabyte_is_found_in_few_calls_of_a_slow_or_disturbed_step(found, step):
    assert found[step]["calls"] < 40
    assert found[step]["bytes"] == pytest.approx(1 << 19, rel=0.2)


def test_few_calls_have_the_noise_of_a_few_bytes(found):
    assert found["slow nothing"].pop("calls") == 4
    assert set(found["slow nothing"].values()) == {0}


@pytest.mark.parametrize(("step", "sleep", "limit"), [("slower", "0.2", "0.4"), ("slower still", "0.8", "3")])
def test_a_step_that_is_too_slow_names_its_time_the_limit_and_the_way_out(found, step, sleep, limit):
    text = rf"a call takes {sleep}\d* s, and the 4 calls that show a leak may take {limit} s: use a smaller step, or @no_leak, which takes longer$"
    assert re.search(text, found[step])


def test_the_lines_that_allocate_most_are_named(found):
    (place, size), *_ = found["sites"]["sites"].items()
    assert place.startswith("<string>:")
    assert size == pytest.approx(1 << 19, rel=0.1)
