"""The clock of a GPU around blocks, by a scripted CUDA driver in C."""

import ctypes

import pytest

from tests.fakes import cuda
from tfbench.worker.block import Block, PreparedBlock, PreparedStep
from tfbench.worker.profiler import ClockUnavailable, SmClock, sm_clock


@pytest.fixture
def driver(tmp_path):
    library = cuda.library(tmp_path)
    library.fake_pass.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    return library


def clock_of(driver):
    return SmClock(driver._name)


def test_the_mean_clock_of_each_block(driver):
    clock = clock_of(driver)
    for _ in range(2):
        clock.restart()
        for megahertz in (1980, 1755, 1200):
            clock.mark()
            driver.fake_pass(10_000_000, megahertz)
            clock.mark()
            driver.fake_pass(5_000_000, 345)  # between the blocks
        assert clock.megahertz() == pytest.approx((1980, 1755, 1200))
    assert clock.failure == ""
    assert driver.fake_depth() == 0


@pytest.mark.parametrize("kind", [Block, PreparedBlock])
def test_a_block_marks_what_it_times_and_not_its_priming(driver, kind):
    clock = clock_of(driver)
    speeds = iter([300, 300, 1900, 1900])

    def call():
        driver.fake_pass(1000, next(speeds))

    block = kind(PreparedStep(lambda: call) if kind is PreparedBlock else call, lambda: None)
    block.mark = clock.mark
    block(iterations=2, prime=2)
    assert clock.megahertz() == pytest.approx((1900,))


def test_a_counter_that_stands_still_gives_no_clock(driver):
    clock = clock_of(driver)
    clock.mark()
    clock.mark()
    assert (clock.megahertz(), clock.failure) == ((), "its counters stand still")


def test_a_driver_that_refuses_the_kernel_is_named_with_its_error(driver):
    driver.fake_refuse(1)
    with pytest.raises(ClockUnavailable, match="cuModuleLoadData returned the error 218"):
        clock_of(driver)
    assert driver.fake_depth() == 0


def test_a_mark_that_fails_later_ends_no_block(driver):
    clock = clock_of(driver)
    clock.mark()
    driver.fake_refuse(2)
    for _ in range(2):
        clock.mark()
    assert (clock.megahertz(), clock.failure) == ((), "cuLaunchKernel returned the error 719")
    assert driver.fake_depth() == 0


@pytest.mark.parametrize(("gpus", "reason"), [(1, "libnone.so"), (2, "more than one GPU")])
def test_without_a_driver_or_with_several_gpus_the_reason_is_told(monkeypatch, gpus, reason):
    monkeypatch.setattr("tfbench.worker.tf_runtime.gpus", lambda: ["GPU"] * gpus)
    monkeypatch.setattr(SmClock.__init__, "__defaults__", ("libnone.so.1",))
    clock, why = sm_clock()
    assert clock is None
    assert reason in why
