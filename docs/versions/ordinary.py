"""The ordinary way, as a pytest plugin: the suite's own steps, handed to pytest-benchmark's fixture, in one process.

Loaded by compare.py in an environment that has TensorFlow, pytest and pytest-benchmark.
"""

import pytest

from tfbench.axes import Variant


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    variant = getattr(item, "callspec", None) and item.callspec.params.get("variant")
    if isinstance(variant, Variant):
        if variant.env:
            pytest.skip("takes a process of its own")
        if (reason := variant.enter()) is not None:
            pytest.skip(reason)


@pytest.fixture
def bench(benchmark):
    def measure(step, *arguments, **described):
        step(*arguments)  # what traces and compiles is nobody's question, and pytest-benchmark would plan by it
        benchmark(step, *arguments)

    return measure


@pytest.fixture
def variant():
    return Variant()


@pytest.fixture
def shared():
    pytest.skip("takes what launches share")
