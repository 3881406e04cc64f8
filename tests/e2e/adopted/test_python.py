"""Plain Python, measured as projects do with pytest-benchmark: functions, decorators, ``pedantic``, groups."""

import json
import random

import pytest

RECORD = {"name": "tfbench", "numbers": list(range(60)), "nested": {"a": [1.5, None, True], "b": "text" * 8}}


def fibonacci(count):
    a, b = 0, 1
    for _ in range(count):
        a, b = b, a + b
    return a


def test_dumps(benchmark):
    text = benchmark(json.dumps, RECORD, sort_keys=True)
    assert json.loads(text) == RECORD


@pytest.fixture(scope="module", params=["list", "tuple"])
def container(request):
    return {"list": list, "tuple": tuple}[request.param]


def test_parametrized_fixture(benchmark, container):
    benchmark.group = "containers"
    assert len(benchmark(container, range(2000))) == 2000


@pytest.mark.parametrize(("words", "separator"), [(300, ", ")], ids=["300 words: joined/split"])
def test_join(benchmark, words, separator):
    parts = ["word"] * words
    assert benchmark(lambda: separator.join(parts).split(separator)) == parts


@pytest.mark.benchmark(group="pedantic", min_rounds=3, disable_gc=True, warmup=False)
def test_pedantic_setup_returns_arguments(benchmark):
    generator = random.Random(1)

    def setup():
        return ([generator.random() for _ in range(2000)],), {"reverse": True}

    benchmark.pedantic(list.sort, setup=setup, rounds=20)


def test_reads_stats(benchmark):
    benchmark(fibonacci, 200)
    assert benchmark.stats["mean"] < 1
    assert benchmark.stats.stats.min <= benchmark.stats.stats.median
