"""The stage that a program waits for in a pipeline, on scripted threads."""

from collections import Counter

from tfbench.profiles.tfdata import ROOT, Input
from tfbench.profiles.xplane import Event, Line, Plane, Space, nested

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
        return Input(Space([Plane("/host:CPU", lines)]))

    def critical(self):
        """Stage -> the microseconds in which the program waited for it."""
        found = Counter()
        for blame in (blame for blames in self.found().blames.values() for blame in blames):
            found[blame.stage.removeprefix(f"{ROOT}::")] += blame.weight * (blame.span[1] - blame.span[0]) / US
        return {stage: round(microseconds) for stage, microseconds in found.items() if round(microseconds)}

    def longest(self):
        critical = self.critical()
        return max(critical, key=critical.get)


def test_on_one_thread_the_innermost_call_is_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "Batch", 10, 1000)
    threads.call("main", "Batch::Map", 20, 420)
    threads.call("main", "Batch::Map::Range", 20, 30)
    threads.call("main", "Batch::Map", 430, 930)
    assert threads.critical() == {"Batch": 100, "Batch::Map": 890, "Batch::Map::Range": 10}
    assert threads.longest() == "Batch::Map"


def test_after_a_prefetch_the_stages_on_its_thread_are_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 500)
    threads.call("main", "Prefetch", 0, 500)
    threads.add("ahead", "PrefetchProduce", 0, 480)
    threads.call("ahead", "Prefetch::Map", 0, 480)
    threads.call("ahead", "Prefetch::Map::Range", 0, 40)
    assert threads.critical() == {"Prefetch": 20, "Prefetch::Map": 440, "Prefetch::Map::Range": 40}


def test_a_parallel_map_is_to_blame_while_its_functions_run():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "ParallelMapV2", 0, 1000)
    threads.add("runner", "ParallelMapProduce", 100, 160)
    threads.call("runner", "ParallelMapV2::TFRecord", 100, 150)
    threads.add("runner", "InstantiatedCapturedFunction::RunAsync", 150, 160, id=7)
    threads.run("pool", 7, 170, 900)
    data = threads.found()
    assert threads.critical() == {"ParallelMapV2": 950, "ParallelMapV2::TFRecord": 50}
    assert data.covers(next(event for event in nested([Event("x", "", 0, 1, {"id": 7})])))


def test_a_parallel_map_is_not_to_blame_for_its_input():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "ParallelMapV2", 0, 1000)
    threads.add("runner", "ParallelMapProduce", 0, 990)
    threads.call("runner", "ParallelMapV2::TFRecord", 0, 980)
    threads.add("runner", "InstantiatedCapturedFunction::RunAsync", 981, 984, id=7)
    assert threads.longest() == "ParallelMapV2::TFRecord"


def test_for_a_function_that_waits_for_a_thread_the_running_functions_are_to_blame():
    threads = Threads()
    threads.call("main", "", 0, 1000)
    threads.call("main", "Filter", 0, 1000)
    threads.add("main", "InstantiatedCapturedFunction::Run", 10, 990, id=1)
    threads.run("pool", 1, 800, 980)
    threads.call("ahead", "Filter::ParallelInterleaveV4::Map", 0, 800, "another")
    threads.add("ahead", "InstantiatedCapturedFunction::Run", 5, 795, id=2)
    threads.run("pool", 2, 5, 790)
    assert threads.longest() == "Filter::ParallelInterleaveV4::Map"
    assert threads.critical() == {"Filter": 220, "Filter::ParallelInterleaveV4::Map": 780}


def test_stages_that_run_at_once_share_the_blame():
    threads = Threads()
    threads.call("main", "", 0, 400)
    threads.call("main", "ParallelInterleaveV4", 0, 400)
    for thread in ("one", "two"):
        threads.call(thread, f"ParallelInterleaveV4[{thread == 'two':d}]::Map", 0, 400, "ParallelInterleaveV4")
    assert threads.critical() == {"ParallelInterleaveV4::Map": 400}


def test_the_body_of_a_loop_over_a_dataset_is_not_input():
    threads = Threads()
    loop = "ReduceIterator::Root"
    threads.add("main", loop, 0, 1000, id=1)
    threads.add("main", f"{loop}::Scan", 0, 1000, id=2, parent_id=1)
    threads.add("main", f"{loop}::Scan::Map", 0, 300, id=3, parent_id=2)
    threads.add("main", "InstantiatedCapturedFunction::Run", 300, 1000, id=9)
    threads.run("pool", 9, 310, 990)
    data = threads.found()
    assert threads.critical() == {"Map": 300}
    body = next(event for events in threads.lines.values() for event in events if event.stats.get("id") == 9)
    assert not data.covers(body)
