"""Benchmarks that draw numbers where projects do: equal sides never regress, and wrong results are found.

`tests/session/test_scatter.py` has the kinds of numbers. Here their places are real.
"""

import pytest

from tests.e2e.test_other_metrics import QUICKLY

BENCHMARKS = """
import os

import numpy as np
import pytest

GENERATOR = np.random.default_rng()
AT_IMPORT = GENERATOR.normal(size=2)
PLACES = {"import": lambda: AT_IMPORT, "hash": lambda: hash("word") % 100, "length": lambda: np.ones(1 + os.getpid() % 3)}

@pytest.fixture(scope="module")
def of_module():
    return GENERATOR.normal(size=2)

@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("place", [*PLACES, "module", "step"])
def test_x(bench, of_module, place, wrong):
    drawn = of_module if place == "module" else PLACES.get(place, lambda: None)()
    factor = 1.5 if wrong and os.environ.get("FAULT") == "1" else 1.0

    def step():
        given = GENERATOR.normal(size=2) if place == "step" else drawn
        if place in ("module", "step"):
            return np.concatenate([np.arange(8.0) * factor, given])
        return {"exact": np.arange(8.0) * factor, "drawn": np.asarray(given)}

    bench(step)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_projects_that_draw_do_not_regress_against_themselves_and_their_wrong_results_are_found(project, monkeypatch):
    project.write(QUICKLY, "conftest.py")
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
