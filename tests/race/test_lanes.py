"""Lanes: processors of their own, by the machine's topology, and threads that work on groups in order."""

import threading
import time

import pytest

from tfbench.errors import UsageError
from tfbench.race.lanes import Core, Lanes, Processors, lanes, parse_lanes, places, topology


def machine(cores, threads=1, caches=1):
    """Returns the cores of a machine: thread t of core c is processor t * cores + c, as Linux numbers them."""
    return [
        Core(tuple(thread * cores + core for thread in range(threads)), str(core * caches // cores))
        for core in range(cores)
    ]


def test_a_lane_has_two_cores_and_the_first_core_stays_free():
    assert places(machine(2)) == []
    assert places(machine(4)) == [(1, 2)]
    assert places(machine(16)) == [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14)]


def test_two_threads_of_a_core_are_one_lane_and_never_in_two():
    assert places(machine(4, threads=2)) == [(1, 5), (2, 6), (3, 7)]
    found = [number % 8 for place in places(machine(8, threads=2)) for number in {n % 8 for n in place}]
    assert len(found) == len(set(found)) == 7


def test_lanes_are_apart_by_cache_and_do_not_cross_one():
    found = places(machine(16, caches=2))
    assert found == [(1, 2), (8, 9), (3, 4), (10, 11), (5, 6), (12, 13), (14, 15)]
    assert [place[0] // 8 for place in found[:4]] == [0, 1, 0, 1]


def whole(cores):
    numbers = tuple(sorted(number for core in cores for number in core.numbers))
    return Processors(numbers[-1:], numbers, numbers[::-1])


def test_rounds_run_on_one_processor_of_a_lane_and_sides_prepare_on_both():
    six = machine(6)
    assert lanes(whole(six), 2, six) == (Processors((2,), (1, 2), (2, 1)), Processors((4,), (3, 4), (4, 3)))


def test_forced_lanes_have_one_core_each_and_no_more_than_there_are():
    two = machine(2)
    assert lanes(whole(two), 2, two) == (Processors((0,), (0,)), Processors((1,), (1,)))
    with pytest.raises(UsageError, match="--lanes 3: the processors of this run have 2 cores"):
        lanes(whole(two), 3, two)
    with pytest.raises(UsageError, match="have 2 cores"):
        lanes(whole(machine(2, threads=2)), 3, machine(2, threads=2))


def test_the_topology_is_the_kernels(tmp_path):
    for number in range(4):
        folder = tmp_path / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / "thread_siblings_list").write_text(f"{number % 2},{number % 2 + 2}\n")
        for index, (level, shared) in enumerate([("1", f"{number}"), ("1", f"{number}"), ("3", "0-3")]):
            (folder / f"cache/index{index}").mkdir(parents=True)
            (folder / f"cache/index{index}/level").write_text(level)
            (folder / f"cache/index{index}/shared_cpu_list").write_text(shared)
    assert topology([3, 0], tmp_path) == [Core((0,), "0-3"), Core((3,), "0-3")]
    assert topology(range(4), tmp_path) == [Core((0, 2), "0-3"), Core((1, 3), "0-3")]
    assert topology([9], tmp_path) == [Core((9,), "")]  # a kernel that says nothing


LANE = [Processors((0,), (0,)), Processors((1,), (1,))]


class Work:
    """Groups that take some time, and what ran beside what."""

    def __init__(self, seconds=lambda group: 0.01):
        self.seconds = seconds
        self.order = []
        self.beside = {}
        self.running = set()
        self.lock = threading.Lock()

    def __call__(self, group, lane):
        with self.lock:
            self.order.append(group)
            self.running.add(group)
            for other in self.running:
                self.beside.setdefault(other, set()).update(self.running)
        time.sleep(self.seconds(group))
        with self.lock:
            self.running.discard(group)
        if group == "bad":
            raise ValueError(group)


def test_each_group_runs_once_in_order_and_two_at_a_time():
    work = Work()
    opened = Lanes(range(8), LANE, work, lambda group: False)
    for group in range(8):
        opened.wait_for(group)
    opened.close()
    assert sorted(work.order) == list(range(8))
    assert all(abs(place - group) <= 1 for place, group in enumerate(work.order))
    assert {len(beside) for beside in work.beside.values()} >= {2}


def test_a_group_apart_waits_for_all_others_and_no_lane_runs_it():
    work = Work()
    opened = Lanes(range(6), LANE, work, lambda group: group == 1)
    opened.wait_for(0)
    opened.wait_for(1)
    assert not work.running
    assert sorted(work.order) == [0, 2, 3, 4, 5]
    opened.close()


def test_with_a_limit_lanes_do_not_run_far_ahead_and_a_group_apart_only_waits_for_those():
    work = Work()
    opened = Lanes(range(9), LANE, work, lambda group: group == 3, ahead=2)
    for group in range(3):
        opened.wait_for(group)
    opened.wait_for(3)
    assert not work.running
    assert max(work.order) <= 5
    time.sleep(0.05)
    assert max(work.order) <= 5
    for group in range(4, 9):
        opened.wait_for(group)
    opened.close()
    assert sorted(work.order) == [0, 1, 2, 4, 5, 6, 7, 8]


def test_an_error_of_a_group_reaches_who_waits_for_it_and_no_other():
    opened = Lanes(["a", "bad", "b"], LANE, Work(), lambda group: False)
    opened.wait_for("a")
    with pytest.raises(ValueError, match="bad"):
        opened.wait_for("bad")
    opened.wait_for("b")
    opened.close()


# Which number of lanes a run has


def test_a_run_has_as_many_lanes_as_the_option_says(monkeypatch):
    monkeypatch.setattr("tfbench.race.lanes.topology", lambda numbers: machine(16))
    assert parse_lanes("1", whole(machine(16)), "3") == (whole(machine(16)),)
    assert len(parse_lanes("4", whole(machine(16)), None)) == 4


@pytest.mark.parametrize("text", ["auto", "0", "-1", "two", "1.5", "", "9" * 5000])
def test_a_wrong_number_of_lanes_is_refused(text):
    with pytest.raises(UsageError, match="write how many cases may race at the same time, such as 4"):
        parse_lanes(text, whole(machine(16)), None)


def test_lanes_have_processors_of_their_own():
    with pytest.raises(UsageError, match="--lanes 2 and --cpus 3: each lane has processors of its own"):
        parse_lanes("2", whole(machine(16)), "3")
