"""NumPy, with notes in ``extra_info`` and woven functions."""

import numpy as np
import pytest


def smooth(signal):
    return np.convolve(signal, np.ones(5) / 5, mode="valid")


@pytest.fixture(scope="session")
def signal():
    return np.random.default_rng(1).normal(size=4000)


def test_product(benchmark):
    a = np.ones((96, 96), np.float32)
    benchmark.extra_info["shape"] = a.shape
    assert benchmark(np.dot, a, a)[0, 0] == 96


def test_smooth(benchmark, signal):
    result = benchmark(smooth, signal)
    benchmark.extra_info["mean"] = float(result.mean())


def test_fourier(benchmark, signal):
    benchmark.pedantic(np.fft.rfft, args=(signal,), kwargs={"n": 4096}, iterations=10, rounds=10)
