"""Results whose work was not done when the step returned."""

import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import multiprocessing.pool
import subprocess
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.worker.test_plain_benchmark import Launch
from tfbench.errors import BenchmarkError
from tfbench.worker import tf_runtime
from tfbench.worker.bench import unfinished


class Dataset:
    """In place of TensorFlow's."""


class Traced:
    """In place of a tf.function."""

    def __init__(self, traces):
        self.traces = traces

    def experimental_get_tracing_count(self):
        return self.traces

    def __call__(self):
        pass


class Rows:
    """Can be iterated over, and computes each row then."""

    def __iter__(self):
        yield 1


class Batches:
    """As `Rows`, for asyncio."""

    async def __aiter__(self):
        yield 1


class Promise:
    """Has a result later."""

    def result(self):
        return 1


class Slots:
    __slots__ = ("__kept", "empty")

    def __init__(self, kept):
        self.__kept = kept


class Kept:
    def __init__(self, kept):
        self._kept = kept

    @property
    def size(self):
        raise AssertionError("a search for laziness runs no code of the project")


class Called(Kept):
    """As a model, which may keep whatever it needs."""

    def __call__(self):
        return 1


@dataclasses.dataclass
class Data:
    kept: object


class Mean:
    """As a metric of Keras."""

    def update_state(self, value):
        pass

    def result(self):
        return 1


class Computed(dict):
    """Computes its values when they are read."""

    def __getitem__(self, key):
        raise AssertionError("a search for laziness runs no code of the project")


class Closed:
    """An object whose attributes raise errors, such as a proxy of something that is gone."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name} is gone")


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    mode = SimpleNamespace(synchronous=True)
    config = SimpleNamespace(experimental=SimpleNamespace(get_synchronous_execution=lambda: mode.synchronous))
    fake = SimpleNamespace(data=SimpleNamespace(Dataset=Dataset), config=config)
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: fake)
    return mode


def numbers():
    yield 1


async def waits():
    return 1


async def later_numbers():
    yield 1


def result_of_pool():
    return object.__new__(multiprocessing.pool.ApplyResult)


def future_of_loop():
    loop = asyncio.new_event_loop()
    try:
        return loop.create_future()
    finally:
        loop.close()


LAZY = {
    "a generator": (numbers, "consume it in the step, such as by list(…)"),
    "a map": (lambda: map(abs, [1]), "consume it in the step"),
    "a zip": (lambda: zip([1], strict=True), "consume it in the step"),
    "an islice": (lambda: itertools.islice([1], 1), "consume it in the step"),
    "a coroutine": (lambda: waits(), "lambda: asyncio.run(step())"),
    "an async generator": (later_numbers, "by asyncio.run"),
    "a future of a thread": (concurrent.futures.Future, "such as by .result()"),
    "a future of a pool": (result_of_pool, "such as by .get()"),
    "a future of asyncio": (future_of_loop, "asyncio.run"),
    "rows": (Rows, "consume it in the step, such as by list(…)"),
    "batches": (Batches, "by asyncio.run"),
    "a promise": (Promise, "such as by .result()"),
    "a thread": (threading.Thread, "wait for its end in the step, and return what it has computed"),
    "a process": (multiprocessing.Process, "wait for its end in the step"),
    "a program": (lambda: object.__new__(subprocess.Popen), "wait for its end in the step"),
    "a data set": (Dataset, "for batch in dataset"),
}
UNCALLED = {
    "a function": lambda: numbers,
    "a method": lambda: [1].append,
    "a partial": lambda: functools.partial(sum, [1]),
    "a tf.function without traces": lambda: Traced(0),
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("once", [False, True])
def test_a_result_whose_work_was_not_done_is_refused_with_the_fix(kind, once):
    step, fix = LAZY[kind]
    launch = Launch()
    with pytest.raises(BenchmarkError) as refused:
        (launch.once if once else launch)(step)
    assert launch.refusal  # although the benchmark might catch the error
    assert str(refused.value).startswith("the step returned a")
    assert "whose work was not done: " in str(refused.value)
    assert fix in str(refused.value)


@pytest.mark.parametrize("kind", UNCALLED)
def test_a_function_that_was_not_called_is_refused_unless_the_step_builds_it(kind):
    with pytest.raises(BenchmarkError, match=r"whose work was not done: call it in the step, or measure by bench.once"):
        Launch()(UNCALLED[kind])
    Launch().once(UNCALLED[kind])


@pytest.mark.parametrize(
    ("nest", "place"),
    [
        (lambda one: (1, {"loss": [2.0, one]}), "[1]['loss'][1]"),
        (lambda one: {one}, "[0]"),
        (lambda one: collections.deque([one]), "[0]"),
        (lambda one: collections.UserList([one]), "[0]"),
        (lambda one: np.array([one, 1], dtype=object), "[0]"),
        (lambda one: Computed(a=one), "['a']"),
        (lambda one: {"a": one}.values(), "[0]"),
        (lambda one: SimpleNamespace(rows=[one]), ".rows[0]"),
        (Data, ".kept"),
        (Kept, "._kept"),
        (lambda one: Kept(Slots((2, one))), "._kept._Slots__kept[1]"),
    ],
)
def test_the_result_is_searched_and_the_place_named(nest, place):
    text = unfinished(nest(map(abs, [1])))
    assert text.startswith(f"the step's result{place} is a map, whose work was not done: consume it in the step")


def test_the_search_ends_in_a_result_of_any_depth():
    chain = None
    for _ in range(10_000):
        chain = Kept(chain)
    assert unfinished(chain) == ""


class Fetcher:
    async def __call__(self, number):
        await asyncio.sleep(0)
        return number, asyncio.get_running_loop()


@pytest.mark.parametrize("step", [Fetcher(), Fetcher().__call__, functools.partial(Fetcher().__call__)])
def test_an_async_step_runs_to_its_end_and_all_its_calls_in_one_loop(step):
    class Calls(Launch):
        def serve(self, call):
            self.results = [call(), call()]

    launch = Calls()
    launch(step, 7)
    (first, loop), (second, again) = launch.results
    assert (first, second) == (7, 7)
    assert loop is again


def test_coroutines_inside_a_result_are_closed(recwarn):
    assert "lambda: asyncio.run(step())" in unfinished([waits()])
    assert not recwarn


def test_finished_results_are_accepted(tmp_path):
    around = []
    around.append(around)  # a list that contains itself
    with (tmp_path / "file").open("w") as file:
        results = [
            1, "text", b"text", np.ones(3), [1, 2], {"a": (1,)}, range(3), {"a": 1}.items(), around, file, object(), int, Traced(1),
            Mean(), Called(iter([1])), Data(len), Kept(numbers), Slots(1), collections.deque([1]), SimpleNamespace(result=1, done=True), Closed(), None,
        ]  # fmt: skip
        for result in results:
            assert unfinished(result) == ""


def test_ops_that_return_before_they_are_done_are_refused(tensorflow):
    Launch()(lambda: 1)
    tensorflow.synchronous = False
    with pytest.raises(
        BenchmarkError, match="leave out set_synchronous_execution\\(False\\), or let the step run them in"
    ):
        Launch()(lambda: 1)
