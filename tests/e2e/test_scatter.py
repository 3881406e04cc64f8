"""Benchmarks that draw numbers where projects do: equal sides never regress, and wrong results are found."""

import pytest

from tests.e2e.test_other_metrics import QUICKLY

HELPERS = """
import os, threading, time

import numpy as np

GENERATOR = np.random.default_rng()


def order_of_threads():
    done = []
    threads = [threading.Thread(target=done.append, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    return done[0]


DRAWS = {
    "generator": lambda: GENERATOR.normal(size=2), "time": time.time, "pid": os.getpid, "hash": lambda: hash("word") % 100,
    "set": lambda: np.array([len(word) for word in {"a", "bb", "ccc", "dddd"}]), "coin": lambda: os.urandom(1)[0] % 2,
    "threads": order_of_threads, "length": lambda: np.ones(1 + os.urandom(1)[0] % 3),
}
AT_IMPORT = {name: draw() for name, draw in DRAWS.items()}
"""
BENCHMARKS = """
import os

import numpy as np
import pytest
from helpers import AT_IMPORT, DRAWS

AT_COLLECTION = {name: draw() for name, draw in DRAWS.items()}

PLACES = ["import", "collection", "module", "function", "body", "step"]

@pytest.fixture(scope="module")
def of_module():
    return {name: draw() for name, draw in DRAWS.items()}

@pytest.fixture
def of_function():
    return {name: draw() for name, draw in DRAWS.items()}

@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name, place", [(name, PLACES[number % 6]) for number, name in enumerate(DRAWS)])
def test_x(bench, of_module, of_function, name, place, wrong):
    places = {"import": AT_IMPORT, "collection": AT_COLLECTION, "module": of_module, "function": of_function}
    drawn = places.get(place, {name: DRAWS[name]()})[name]
    factor = 1.5 if wrong and os.environ.get("FAULT") == "1" else 1.0

    def step():
        given = DRAWS[name]() if place == "step" else drawn
        if place in ("module", "step"):
            return np.concatenate([np.arange(8.0) * factor, np.ravel(given)])
        return {"exact": np.arange(8.0) * factor, "drawn": np.asarray(given)}

    bench(step)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_projects_that_draw_do_not_regress_against_themselves_and_their_wrong_results_are_found(project, monkeypatch):
    project.write(QUICKLY, "conftest.py")
    project.write(HELPERS, "helpers.py")
    project.write(BENCHMARKS)
    same = project.run("--against", "self")
    assert same.sound, same.output
    outcomes = {case: same.metrics(case)["parity"] for case in same.outcomes()}
    assert set(outcomes.values()) == {"unchanged", "inconclusive"}, outcomes
    monkeypatch.setenv("FAULT", "1")
    other = project.run("--against", "env:FAULT=0")
    for case in outcomes:
        exact = {"regressed"} if "True" in case else {"unchanged", "inconclusive"}
        joined = {"inconclusive"} if "True" in case and ("module" in case or "step" in case) else set()
        assert other.metrics(case)["parity"] in exact | joined, (case, other.output)
