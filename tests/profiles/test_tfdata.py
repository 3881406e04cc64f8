"""The stage that a program waits for in a pipeline, on scripted threads."""

import pytest

from tfbench.profiles.tfdata import Input, TfDataStage, bottlenecks, fix
from tfbench.profiles.xplane import Event, Line, Plane, Space, nested

SLOW = 50e-6
US = 1_000_000


class Threads:
    """Events by thread. A call of a stage has the ids of its iterator and of the caller's."""

    def __init__(self):
        self.lines = {}

    def add(self, thread, name, start, end, **stats):
        self.lines.setdefault(thread, []).append(Event(name, "", start * US, end * US, stats))

    def call(self, thread, path, start, end, caller=None):
        name = f"Iterator::Root{'::' if path else ''}{path}"
        stats = {"id": path} if path else {"id": ""}
        if path:
            stats["parent_id"] = path.rpartition("::")[0] if caller is None else caller
        self.add(thread, name, start, end, **stats)

    def run(self, thread, number, start, end, asked=None):
        """Add an execution of a function."""
        self.add(thread, "ExecutorState::Process", start, end, id=number)
        self.add(thread, "PyFunc:PyFunc", start, end)

    def found(self):
        lines = [Line(name, nested(events)) for name, events in self.lines.items()]
        data = Input(Space([Plane("/host:CPU", lines)]), SLOW)
        return data, data.pipelines([(0, 10_000 * US)])


def critical(pipeline):
    return {stage.path: round(stage.critical * 1e6) for stage in pipeline.stages if round(stage.critical * 1e6)}


def test_on_one_thread_the_innermost_call_is_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "Batch", 10, 1000)
    threads.call("main", "Batch::Map", 20, 420)
    threads.call("main", "Batch::Map::Range", 20, 30)
    threads.call("main", "Batch::Map", 430, 930)
    _, (pipeline,) = threads.found()
    assert critical(pipeline) == {"Batch": 100, "Batch::Map": 890, "Batch::Map::Range": 10}
    assert pipeline.bottleneck.path == "Batch::Map"
    assert [stage.path for stage in pipeline.path] == ["Batch", "Batch::Map"]
    stage = pipeline.bottleneck
    assert (stage.calls, stage.slow) == (2, 2)
    assert (stage.total, stage.own) == (pytest.approx(900e-6), pytest.approx(890e-6))


def test_after_a_prefetch_the_stages_on_its_thread_are_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 500)
    threads.call("main", "Prefetch", 0, 500)
    threads.add("ahead", "PrefetchProduce", 0, 480)
    threads.call("ahead", "Prefetch::Map", 0, 480)
    threads.call("ahead", "Prefetch::Map::Range", 0, 40)
    _, (pipeline,) = threads.found()
    assert critical(pipeline) == {"Prefetch": 20, "Prefetch::Map": 440, "Prefetch::Map::Range": 40}


def test_a_parallel_map_is_to_blame_while_its_functions_run():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "ParallelMapV2", 0, 1000)
    threads.add("runner", "ParallelMapProduce", 100, 160)
    threads.call("runner", "ParallelMapV2::TFRecord", 100, 150)
    threads.add("runner", "InstantiatedCapturedFunction::RunAsync", 150, 160, id=7)
    threads.run("pool", 7, 170, 900)
    data, (pipeline,) = threads.found()
    assert critical(pipeline) == {"ParallelMapV2": 950, "ParallelMapV2::TFRecord": 50}
    assert pipeline.bottleneck.ops == {"PyFunc": pytest.approx(730e-6)}
    assert data.covers(next(event for event in nested([Event("x", "", 0, 1, {"id": 7})])))


def test_a_parallel_map_is_not_to_blame_for_its_input():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "ParallelMapV2", 0, 1000)
    threads.add("runner", "ParallelMapProduce", 0, 990)
    threads.call("runner", "ParallelMapV2::TFRecord", 0, 980)
    threads.add("runner", "InstantiatedCapturedFunction::RunAsync", 981, 984, id=7)
    _, (pipeline,) = threads.found()
    assert pipeline.bottleneck.path == "ParallelMapV2::TFRecord"


def test_for_a_function_that_waits_for_a_thread_the_running_functions_are_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "Filter", 0, 1000)
    threads.add("main", "InstantiatedCapturedFunction::Run", 10, 990, id=1)
    threads.run("pool", 1, 800, 980)
    threads.call("ahead", "Filter::ParallelInterleaveV4::Map", 0, 800, "another")
    threads.add("ahead", "InstantiatedCapturedFunction::Run", 5, 795, id=2)
    threads.run("pool", 2, 5, 790)
    _, (pipeline,) = threads.found()
    assert pipeline.bottleneck.path == "Filter::ParallelInterleaveV4::Map"
    assert critical(pipeline) == {"Filter": 220, "Filter::ParallelInterleaveV4::Map": 780}


def test_stages_that_run_at_once_share_the_blame():
    threads = Threads()
    threads.call("main", "", 0, 400)
    threads.call("main", "ParallelInterleaveV4", 0, 400)
    for thread in ("one", "two"):
        threads.call(thread, f"ParallelInterleaveV4[{thread == 'two':d}]::Map", 0, 400, "ParallelInterleaveV4")
    _, (pipeline,) = threads.found()
    assert critical(pipeline) == {"ParallelInterleaveV4::Map": 400}


def test_two_pipelines_are_separated_and_the_longer_wait_comes_first():
    threads = Threads()
    threads.call("main", "", 0, 100)
    threads.call("main", "Batch", 0, 100)
    threads.call("main", "", 200, 600)
    threads.call("main", "Shuffle", 200, 600)
    _, pipelines = threads.found()
    assert [pipeline.stages[0].path for pipeline in pipelines] == ["Shuffle", "Batch"]
    assert [pipeline.waited for pipeline in pipelines] == [pytest.approx(400e-6), pytest.approx(100e-6)]


def test_a_pipeline_that_keeps_up_has_no_bottleneck():
    threads = Threads()
    for start in range(0, 1000, 100):
        threads.call("main", "", start, start + 20)
        threads.call("main", "Prefetch", start, start + 20)
    data, (pipeline,) = threads.found()
    assert pipeline.bottleneck is None
    assert pipeline.path == []
    notes = bottlenecks(data, [(0, 1000 * US)]).notes
    assert notes == (
        "20.0% of step time is spent in calls for input",
        "Prefetch keeps up: 0 of 10 calls took longer than 50 µs; mean: 20.0 µs",
    )


def test_the_body_of_a_loop_over_a_dataset_is_not_input():
    threads = Threads()
    loop = "ReduceIterator::Root"
    threads.add("main", loop, 0, 1000, id=1)
    threads.add("main", f"{loop}::Scan", 0, 1000, id=2, parent_id=1)
    threads.add("main", f"{loop}::Scan::Map", 0, 300, id=3, parent_id=2)
    threads.add("main", "InstantiatedCapturedFunction::Run", 300, 1000, id=9)
    threads.run("pool", 9, 310, 990)
    data, (pipeline,) = threads.found()
    assert critical(pipeline) == {"Map": 300}
    assert pipeline.waited == pytest.approx(300e-6)
    body = next(event for events in threads.lines.values() for event in events if event.stats.get("id") == 9)
    assert not data.covers(body)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Map", "num_parallel_calls"),
        ("ParallelMapV2", "vectorise"),
        ("ParallelInterleaveV4", "cycle_length"),
        ("InterleaveV2", "in parallel"),
        ("ShuffleV3", "buffer_size"),
        ("FromGenerator", "prefetch"),
        ("Generator", "avoid Python"),
        ("BatchV2", "batch("),
        ("Something", "do less in it"),
    ],
)
def test_each_bottleneck_has_a_fix(kind, words):
    assert words in fix(TfDataStage(f"Iterator::Root::{kind}"), SLOW)


def test_the_fix_for_many_short_calls_is_fewer_calls():
    stage = TfDataStage("Iterator::Root::Map", calls=2000, own=40e-3)
    assert fix(stage, SLOW).endswith("handles many elements: 2,000 calls take 20 µs each")
