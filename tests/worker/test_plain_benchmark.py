"""The fixture ``benchmark`` in a measuring process: which step it hands over, and which uses it refuses."""

import asyncio
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tfbench.errors import BenchmarkError
from tfbench.model import PLAIN
from tfbench.worker.adopted import PlainBenchmark, StatsUnavailable
from tfbench.worker.bench import Bench
from tfbench.worker.block import Block, PreparedBlock, PreparedStep
from tfbench.worker.own_files import OwnFiles


class Launch(Bench):
    """Runs the step three times."""

    def __init__(self, seconds=()):
        super().__init__(channel=None, request=None, pipes=(), function=None, own_files=OwnFiles(""))
        self.times = list(seconds)

    def serve(self, call):
        self.step = call
        for first in (True, False, False):
            result = call()
            if first:
                self.check_result(result)
        self.seconds = self.times


def fixture(seconds=(), group=None):
    mark = SimpleNamespace(kwargs={"group": group}) if group else None
    node = SimpleNamespace(name="test_x", nodeid="t.py::test_x", get_closest_marker=lambda name: mark)
    return PlainBenchmark(Launch(seconds), node)


def test_the_step_is_the_function_with_its_arguments_and_its_result_is_returned():
    benchmark = fixture()
    assert benchmark(int, "12", base=8) == 10
    step = benchmark._launch.step
    assert (step.func, step.args, step.keywords) == (int, ("12",), {"base": 8})  # no wrapper costs time in a block


def test_pedantic_is_a_call_without_setup_and_keeps_its_arguments_if_setup_has_none():
    benchmark, log = fixture(), []
    assert benchmark.pedantic(sorted, args=([2, 1],), kwargs={"reverse": True}, rounds=3, iterations=7) == [2, 1]
    assert not isinstance(benchmark._launch.step, PreparedStep)
    assert fixture().pedantic(sum, args=([1, 2],), setup=lambda: log.append(1)) == 3
    assert len(log) == 4


def test_setup_and_teardown_surround_each_iteration():
    log = []

    def setup():
        log.append("setup")
        return ([3, 1, 2],), {"reverse": True}

    assert fixture().pedantic(list.sort, setup=setup, teardown=lambda numbers, reverse: log.append(numbers)) is None
    assert log == ["setup", [3, 2, 1]] * 4


def test_only_the_iterations_of_a_prepared_block_are_timed():
    now = SimpleNamespace(time=0)

    def takes(nanoseconds):
        now.time += nanoseconds

    step = PreparedStep(bind=lambda: takes(700) or (lambda: takes(100)), clear=lambda: takes(50))
    block = PreparedBlock(step, None, lambda: now.time)
    began, ended = block(iterations=2, prime=3, extra=1)
    assert ended - began == 300
    assert block.untimed == pytest.approx(750e-9)
    assert Block(lambda: 1, None).untimed is None


def test_stats_are_the_times_of_the_launch():
    benchmark = fixture([3e-3, 1e-3, 2e-3])
    assert benchmark.stats is None
    benchmark(sum, [1])
    assert benchmark.stats["mean"] == benchmark.stats.stats.median == pytest.approx(2e-3)
    assert (benchmark.stats["min"], benchmark.stats.stats.max, benchmark.stats["rounds"]) == (1e-3, 3e-3, 3)
    with pytest.raises(KeyError, match="no 'variance' in a race"):
        benchmark.stats["variance"]


def test_a_launch_without_times_ends_at_stats():
    benchmark = fixture()
    benchmark(sum, [1])
    with pytest.raises(StatsUnavailable):
        assert benchmark.stats
    assert benchmark._launch.ends_early


def test_notes_are_kept_as_json():
    benchmark = fixture([1e-3], group="mine")
    benchmark.extra_info.update(size=3, odd={1}, bad=float("nan"))
    benchmark(sum, [1])
    assert benchmark.stats["ops"] == pytest.approx(1000)
    benchmark.close()
    kept = benchmark._launch.late_facts[PLAIN]
    assert kept == {"group": "mine", "extra_info": {"size": 3, "odd": "{1}", "bad": "nan"}, "reads_stats": True}
    json.dumps(kept, allow_nan=False)


def test_what_a_test_sets_on_its_statistics_is_kept_beside_its_notes():
    benchmark = fixture([1e-3, 2e-3])
    benchmark(sum, [1])
    benchmark.stats.stats.bandwidth, benchmark.stats.stats.max = 7.5, 9e-3
    assert benchmark.stats["bandwidth"] == 7.5
    benchmark.close()
    kept = benchmark._launch.late_facts[PLAIN]
    assert kept["extra_info"] == {"stats": {"bandwidth": 7.5, "max": 9e-3}}


async def waits():
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda benchmark: (benchmark(sum, [1]), benchmark(sum, [1])), "called twice"),
        (lambda benchmark: benchmark(np.eye(3)), r"benchmark\(array.*must be a function"),
        (lambda benchmark: benchmark(waits), "returned a coroutine"),
        (lambda benchmark: benchmark(waits()), "returned a coroutine, .*: pass the async function itself"),
    ],
)
def test_a_wrong_use_is_refused_for_good(use, reason):
    benchmark = fixture()
    with pytest.raises(BenchmarkError, match=reason) as caught:
        use(benchmark)
    assert not caught.value.rest  # a headline with its fix
    assert benchmark._launch.refusal  # although the benchmark might catch the error


def test_another_thread_is_refused_although_nobody_sees_its_error(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda error: None)
    benchmark = fixture()
    thread = threading.Thread(target=benchmark, args=(sum, [1]), name="mine")
    thread.start()
    thread.join()
    assert benchmark._launch.refusal == "benchmark was called in the thread mine: call it in the main thread"
    assert not benchmark._launch.called
