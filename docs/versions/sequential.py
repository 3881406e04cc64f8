"""A pytest plugin that times the suite's steps with pytest-benchmark's fixture, in one process.

compare.py loads it in an environment that has TensorFlow, pytest and pytest-benchmark.
"""

import pytest

from tfbench.suite.axes import Variant


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    variant = getattr(item, "callspec", None) and item.callspec.params.get("variant")
    if isinstance(variant, Variant):
        if variant.env:
            pytest.skip("needs a process of its own")
        if (reason := variant.enter()) is not None:
            pytest.skip(reason)


@pytest.fixture
def bench(benchmark):
    def measure(step, *arguments, **described):
        step(*arguments)  # tracing and compiling are not compared, and pytest-benchmark would calibrate by them
        benchmark(step, *arguments)

    return measure


@pytest.fixture
def variant():
    return Variant()


@pytest.fixture
def shared():
    pytest.skip("needs shared set-up")
