"""Calls that find their tensors in the cache, or not: copies of arguments in turn."""

import ctypes
import sys
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from tests.worker.test_plain_benchmark import Launch
from tfbench.errors import BenchmarkError
from tfbench.worker import tf_runtime
from tfbench.worker.bench import in_cache
from tfbench.worker.block import PreparedStep

MEBIBYTE = 1 << 20
GPU, CPU = "/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost/replica:0/task:0/device:CPU:0"


class Tensor:
    def __init__(self, mebibytes, device=GPU):
        self.mebibytes, self.device = mebibytes, device
        self.shape = SimpleNamespace(num_elements=lambda: int(mebibytes * MEBIBYTE) // 4)
        self.dtype = SimpleNamespace(size=4)

    def numpy(self):
        return self.mebibytes


class Nest:
    @staticmethod
    def flatten(part):
        return [leaf for one in part for leaf in Nest.flatten(one)] if isinstance(part, list) else [part]

    @staticmethod
    def pack_sequence_as(part, leaves):
        return list(leaves) if isinstance(part, list) else leaves[0]


@pytest.fixture
def caches(monkeypatch):
    """Lets the caches of the GPU and of the processor have these sizes, in MiB."""
    devices = []

    @contextmanager
    def device(name):
        devices.append(name)
        yield
        devices.pop()

    tf = SimpleNamespace(
        function=None, Tensor=Tensor, nest=Nest, device=device,
        constant=lambda mebibytes: Tensor(mebibytes, devices[-1]),
    )  # fmt: skip

    def set_sizes(gpu=None, cpu=None):
        monkeypatch.setitem(sys.modules, "tensorflow", tf)
        monkeypatch.setattr(tf_runtime, "gpus", lambda: () if gpu is None else ("GPU:0",))
        monkeypatch.setattr(tf_runtime, "cache_bytes", lambda on_gpu: ((gpu if on_gpu else cpu) or 0) * MEBIBYTE)

    return set_sizes


def seen(call, count):
    """Return how many objects so many calls find, and after how many they return."""
    numbers = {}
    return [numbers.setdefault(id(call()), len(numbers)) for _ in range(count)]


def test_on_a_gpu_calls_have_copies_of_their_tensors_in_turn_that_hold_twice_the_cache(caches):
    caches(gpu=50)
    first, other = Tensor(10), Tensor(1, CPU)
    step, state = in_cache(partial(lambda one, alpha, rest: one, first, 0.5, rest=[other, "text"]), None)
    assert state == "cold"
    assert seen(step, 21) == [*range(10), *range(10), 0]
    _, state = in_cache(partial(lambda one: one, Tensor(200)), None)
    assert state == "cold"  # it evicts itself


def test_only_tensors_on_the_gpu_are_copied_there_and_with_their_place_in_a_structure(caches):
    caches(gpu=50)
    moved, stays = Tensor(25), Tensor(25, CPU)
    found = []
    step, _ = in_cache(partial(lambda *given: found.append(given), [moved, 7], stays), None)
    for _ in range(4):
        step()
    tensors = [given[0][0] for given in found]
    assert len({id(tensor) for tensor in tensors}) == 4
    assert [(tensor.mebibytes, tensor.device) for tensor in tensors] == 4 * [(25, GPU)]
    assert {(given[0][1], id(given[1])) for given in found} == {(7, id(stays))}


@pytest.mark.parametrize(
    "step",
    [lambda: 1, partial(lambda variable: 1, object()), partial(lambda one: 1, Tensor(0.01)), PreparedStep(lambda: int)],
    ids=["closure", "variable", "tiny", "prepared"],
)
def test_what_cannot_be_copied_stays_warm_and_skips_a_case_that_asks_for_a_cold_cache(caches, step):
    caches(gpu=50)
    assert in_cache(step, None) == (step, "warm")
    with pytest.raises(pytest.skip.Exception, match="needs larger arrays or tensors among the arguments"):
        in_cache(step, "cold")


@pytest.mark.parametrize("given", [partial(lambda one: 1, Tensor(10, CPU)), partial(np.sum, np.ones(MEBIBYTE))])
def test_on_the_processor_calls_are_as_before_unless_asked_for(caches, given):
    for sizes in ({"cpu": 32}, {"gpu": 50, "cpu": 32}):
        caches(**sizes)
        assert in_cache(given, None) == (given, None)
        assert in_cache(given, "warm") == (given, "warm")
        assert in_cache(given, "cold")[1] == "cold"


def test_arrays_are_copied_without_tensorflow(caches, monkeypatch):
    caches(cpu=32)
    monkeypatch.delitem(sys.modules, "tensorflow")
    array = np.ones(MEBIBYTE)
    step, state = in_cache(partial(lambda one, number: one, array, number=3), "cold")
    assert state == "cold"
    assert seen(step, 9) == [*range(8), 0]
    assert (step() == array).all()


def test_an_unknown_size_is_stated_and_skips_a_case_that_asks_for_a_cold_cache(caches):
    caches(gpu=0)
    step = partial(lambda one: 1, Tensor(10))
    assert in_cache(step, None) == (step, "unknown")
    with pytest.raises(pytest.skip.Exception, match="the system does not report"):
        in_cache(step, "cold")


def test_a_step_that_runs_once_has_no_cache_to_choose():
    with pytest.raises(BenchmarkError, match="no effect on a step that runs once"):
        Launch().once(int, cache="cold")


class TestSizes:
    def test_of_the_last_cache_of_the_processor(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tf_runtime.os, "sched_getaffinity", lambda pid: {3, 5})
        for index, size in enumerate(("32K", "1024K", "32768K")):
            folder = tmp_path / f"cpu3/cache/index{index}"
            folder.mkdir(parents=True)
            (folder / "size").write_text(f"{size}\n")
        assert tf_runtime.cache_bytes(False, tmp_path) == 32 * MEBIBYTE
        assert tf_runtime.cache_bytes(False, tmp_path / "none") == 0

    @pytest.mark.parametrize(("status", "size"), [(0, 50 * MEBIBYTE), (1, 0), (None, 0)])
    def test_of_the_gpu_by_its_driver(self, monkeypatch, status, size):
        class Cuda:
            def __init__(self, name):
                if status is None:
                    raise OSError(name)  # there is no driver

            def cuDeviceGet(self, device, ordinal):
                device._obj.value = 7 + ordinal
                return 0

            def cuDeviceGetAttribute(self, number, attribute, device):
                assert (attribute, device.value) == (38, 7)  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
                number._obj.value = 50 * MEBIBYTE
                return status

        monkeypatch.setattr(tf_runtime, "gpus", lambda: ("GPU:0",))
        monkeypatch.setattr(ctypes, "CDLL", Cuda)
        assert tf_runtime.cache_bytes(True) == size
