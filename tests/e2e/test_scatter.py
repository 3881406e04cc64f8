"""Thirty random projects that draw numbers where projects do: equal sides never regress, and wrong results are found."""

import random
import textwrap

import pytest

from tests.e2e.test_other_metrics import QUICKLY

HELPERS = """
    import itertools, os, random, threading, time, uuid

    import numpy as np

    GENERATOR = np.random.default_rng()

    def order_of_threads():
        done = []
        threads = [threading.Thread(target=done.append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return done[0]

    DRAWS = {
        "generator": lambda: GENERATOR.normal(),
        "fresh": lambda: np.random.default_rng().random(3),
        "python": lambda: random.random(),
        "numpy": lambda: np.random.rand(2),
        "urandom": lambda: int.from_bytes(os.urandom(4), "big"),
        "uuid": lambda: uuid.uuid4().int % 1000,
        "time": time.time,
        "pid": os.getpid,
        "hash": lambda: hash("word") % 100,
        "set": lambda: np.array([len(word) for word in {"a", "bb", "ccc", "dddd"}]),
        "two": lambda: float(list({"x", "y"})[0] == "x"),
        "coin": lambda: os.urandom(1)[0] % 2,
        "threads": order_of_threads,
        "length": lambda: np.ones(1 + os.urandom(1)[0] % 3),
        "eager": lambda: __import__("tensorflow").random.uniform((3,)),
    }
"""
KINDS = (
    "generator",
    "fresh",
    "python",
    "numpy",
    "urandom",
    "uuid",
    "time",
    "pid",
    "hash",
    "set",
    "two",
    "coin",
    "threads",
    "length",
)
PLACES = ("import", "collection", "parameter", "session", "module", "class", "function", "body", "step")
BENCHMARK = """
    import os
    import numpy as np
    import pytest
    import helpers_{number} as helpers

    AT_COLLECTION = helpers.DRAWS["{collection}"]()

    {fixtures}

    class Test{number}:
        @pytest.mark.parametrize("given", [helpers.DRAWS["{parameter}"]()], ids=["given"])
        def test_{number}(self, bench, given, of_session, of_module, of_class, of_function):
            places = {{
                "import": helpers.AT_IMPORT, "collection": AT_COLLECTION, "parameter": given, "session": of_session,
                "module": of_module, "class": of_class, "function": of_function, "body": helpers.DRAWS["{body}"](),
            }}
            wrong = {number} % 3 == 0 and os.environ.get("FAULT") == "1"

            def step():
                drawn = places["{place}"] if "{place}" in places else helpers.DRAWS["{step}"]()
                exact = np.arange(8.0) * (1.5 if wrong else 1.0)
                return {result}

            bench(step)
"""
FIXTURE = """
@pytest.fixture(scope="{scope}")
def of_{scope}():
    return helpers.DRAWS["{kind}"]()
"""


def generate(project, count):
    """Write so many projects of one file each, with a module of its own; returns test -> place, and whether its result is one array."""
    made = {}
    for number in range(count):
        rng = random.Random(number)
        place, joined = PLACES[number % len(PLACES)], rng.random() < 0.3
        kinds = {
            name: rng.choice((*KINDS, "eager") if name in ("function", "body", "step") else KINDS) for name in PLACES
        }
        fixtures = "".join(
            FIXTURE.format(scope=scope, kind=kinds[scope]) for scope in ("session", "module", "class", "function")
        )
        result = (
            "np.concatenate([exact, np.ravel(drawn)])" if joined else '{"exact": exact, "drawn": np.asarray(drawn)}'
        )
        text = textwrap.dedent(BENCHMARK).format(number=number, fixtures=fixtures, place=place, result=result, **kinds)
        project.write(
            textwrap.dedent(HELPERS) + f"\nAT_IMPORT = DRAWS['{kinds['import']}']()\n", f"helpers_{number}.py"
        )
        project.write(text, f"benchmarks/test_{number}.py")
        made[f"test_{number}"] = (place, kinds[place], joined)
    return made


@pytest.mark.slow
@pytest.mark.tensorflow
def test_projects_that_draw_do_not_regress_against_themselves_and_their_wrong_results_are_found(project, monkeypatch):
    project.write(QUICKLY, "conftest.py")
    made = generate(project, 30)
    same = project.run("--against", "self")
    assert same.sound, same.output
    rows = {test: same.metrics(f"{test}[given]") for test in made}
    assert {outcome for one in rows.values() for outcome in one.values()} <= {"unchanged", "inconclusive"}, rows
    monkeypatch.setenv("FAULT", "1")
    other = project.run("--against", "env:FAULT=0")
    for test, (place, kind, joined) in made.items():
        parity = other.metrics(f"{test}[given]")["parity"]
        wrong = int(test.removeprefix("test_")) % 3 == 0
        expected = (
            {"regressed"}
            if wrong and not joined
            else {"regressed", "inconclusive"}
            if wrong
            else {"unchanged", "inconclusive"}
        )
        assert parity in expected, (test, place, kind, joined, other.output)
