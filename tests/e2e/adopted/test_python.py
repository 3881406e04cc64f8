"""Plain Python, measured as projects do with pytest-benchmark: functions, decorators, ``pedantic``, groups."""

import json
import random
import re

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


def test_function_without_result(benchmark):
    numbers = list(range(5000))
    benchmark(numbers.reverse)


def test_decorated(benchmark):
    @benchmark
    def result():
        return fibonacci(300)

    assert result == fibonacci(300)


@pytest.mark.benchmark(group="search", min_rounds=3, disable_gc=True, warmup=False)
def test_search(benchmark):
    pattern, text = re.compile(r"(\w+)@(\w+)\.org"), "word " * 400 + "someone@example.org"
    assert benchmark(pattern.search, text) is not None


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


def test_pedantic(benchmark):
    assert benchmark.pedantic(fibonacci, args=(250,), rounds=20, iterations=5, warmup_rounds=2) == fibonacci(250)


def test_pedantic_setup_returns_arguments(benchmark):
    generator = random.Random(1)

    def setup():
        return ([generator.random() for _ in range(2000)],), {"reverse": True}

    benchmark.pedantic(list.sort, setup=setup, rounds=20)


def test_pedantic_setup_and_teardown(benchmark):
    queue, freed = [], []

    def drain():
        total = 0
        while queue:
            total += queue.pop()
        return total

    assert benchmark.pedantic(drain, setup=lambda: queue.extend(range(3000)), teardown=freed.clear) == sum(range(3000))


def test_reads_stats(benchmark):
    benchmark(fibonacci, 200)
    assert benchmark.stats["mean"] < 1
    assert benchmark.stats.stats.min <= benchmark.stats.stats.median
