"""The pool of zygotes: its limit, its failures, and zygotes that answer late or twice."""

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from tests.fakes import worker
from tests.fakes.suites import one_file
from tfbench.errors import SideError
from tfbench.model import Case
from tfbench.policy import preset
from tfbench.protocol import TRACED_WORKERS
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import pairs_of
from tfbench.race.workers import tail, worker_environment
from tfbench.race.zygote import Zygote
from tfbench.sides.spec import Side

POLICY = replace(preset("quick"), zygotes_alive=3)
GOOD, BAD = (), (("BAD", "1"),)


@pytest.fixture
def pool(tmp_path):
    """Returns a pool whose workers follow a script, and a side."""
    opened = []

    def start(policy=POLICY, **script):
        executable = worker.install(tmp_path, cases={}, **script)
        opened.append(ProcessLauncher(one_file(tmp_path), policy, Processors((), (0, 1))))
        return opened[-1], Side("contender", executable, tmp_path)

    yield start
    for one in opened:
        one.close()


def pids(pool):
    return {key[2]: zygote.pid for key, zygote in pool._zygotes.items()}


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_beyond_the_limit_the_least_recently_used_zygotes_end(pool):
    opened, side = pool()
    opened.ready([(side, GOOD)], range(3))
    first = pids(opened)
    opened.zygote(Entrant(Case("", "", ""), side), 0)
    opened.ready([(side, GOOD)], [3])
    now = pids(opened)
    assert set(now) == {0, 2, 3}
    assert now[0] == first[0]
    assert not alive(first[1])


def test_zygotes_that_one_request_names_are_started_even_beyond_the_limit(pool):
    opened, side = pool()
    opened.ready([(side, GOOD)], range(4))
    assert set(pids(opened)) == {0, 1, 2, 3}


def test_no_side_is_always_the_first_that_an_ancestor_forks(pool):
    opened, side = pool(replace(POLICY, zygotes_alive=6))
    opened.ready([(replace(side, name="baseline"), GOOD), (side, GOOD)], range(3))
    one, other = "baseline", "contender"
    forked = [(one, 0), (other, 0), (other, 1), (one, 1), (one, 2), (other, 2)]
    assert [(name, pair) for name, _, pair, _ in opened._zygotes] == forked


def test_released_zygotes_leave_what_they_said_about_their_side(pool):
    opened, side = pool()
    opened.ready([(side, GOOD)], range(2))
    opened.release(side)
    assert pids(opened) == {}
    assert opened.environment(side)["python"] == "3"


def test_zygotes_of_finished_environments_end_and_start_again_on_demand(pool):
    opened, side = pool()
    opened.ready([(side, GOOD), (side, BAD)], [0])
    before = {key[1]: zygote.pid for key, zygote in opened._zygotes.items()}
    opened.leave(GOOD)
    assert set(opened._zygotes) == {("contender", BAD, 0, "")}
    assert not alive(before[GOOD])
    opened.zygote(Entrant(Case("", "", ""), side), 0)
    assert len(opened._zygotes) == 2


def test_one_failed_start_ends_its_batch_and_is_remembered_for_its_environment_only(pool):
    opened, side = pool(at="start", does="die", env="BAD")
    opened.ready([(side, GOOD)], [0])
    with pytest.raises(SideError, match="did not start"):
        opened.ready([(side, GOOD), (side, BAD)], [0, 1])
    assert set(opened._zygotes) == {("contender", GOOD, 0, "")}
    began = time.monotonic()
    with pytest.raises(SideError, match=r"\(with BAD=1\); it was not tried again$"):
        opened.ready([(side, BAD)], [0])
    assert time.monotonic() - began < 0.1
    opened.ready([(side, GOOD)], [1])
    opened.release(side)
    with pytest.raises(SideError, match="last words"):
        opened.ready([(side, BAD)], [0])


def test_a_zygote_that_died_is_started_again(pool):
    opened, side = pool()
    opened.ready([(side, GOOD)], [0])
    (pid,) = pids(opened).values()
    os.kill(pid, 9)
    while not opened._zygotes["contender", GOOD, 0, ""].channel.ended:
        time.sleep(0.01)
    opened.ready([(side, GOOD)], [0])
    assert pids(opened) != {0: pid}


def test_a_zygote_that_dies_right_after_its_start_is_an_error_and_no_endless_loop(pool, monkeypatch):
    opened, side = pool()
    monkeypatch.setattr(Zygote, "alive", False)
    with pytest.raises(SideError, match=r"^contender: the measuring process ended right after its start$"):
        opened.ready([(side, GOOD)], [0])
    with pytest.raises(SideError, match=r"it was not tried again$"):
        opened.ready([(side, GOOD)], [0])


@pytest.mark.parametrize(
    ("environments", "pairs"), [(1, 6), (2, 6), (3, 5), (6, 2), (20, 2)], ids=lambda number: str(number)
)
def test_variants_of_many_environments_share_the_limit(environments, pairs):
    side = Side("contender", "python", None)
    entrants = [Entrant(Case("a", "a", "a", env=(("X", str(one)),)), side) for one in range(environments)]
    assert pairs_of(entrants, preset("quick")) == range(pairs)


def test_only_the_end_of_a_long_output_is_read(tmp_path):
    with (tmp_path / "log").open("w+b") as log:
        log.write(b"x" * (1 << 17) + b"\nthe last line\n")
        log.flush()
        text = tail(log)
    assert text.endswith("\nthe last line")
    assert len(text) <= 1 << 16


def test_workers_neither_see_the_place_of_the_history_nor_are_measured_for_the_coverage_of_the_run(tmp_path):
    hidden = {"TFBENCH_HISTORY", "COV_CORE_SOURCE", "COVERAGE_PROCESS_START"}
    for tests_of_tfbench, kept in (({}, set()), ({TRACED_WORKERS: "1"}, {"COV_CORE_SOURCE", "COVERAGE_PROCESS_START"})):
        given = {**dict.fromkeys(hidden, "x"), **tests_of_tfbench}
        assert hidden & set(worker_environment(given, Side("contender", "python", tmp_path), {})) == kept


def test_a_zygote_that_collects_one_file_is_another_one_of_the_same_ancestor(pool):
    opened, side = pool()
    entrant = Entrant(Case("t.py::test_a", "", ""), side)
    every, only = opened.zygote(entrant, 0), opened.zygote(entrant, 0, apart=True)
    assert every is not only
    assert every.ancestor is only.ancestor
    assert opened.zygote(replace(entrant, case=Case("t.py::test_b", "", "")), 0, apart=True) is only
    assert opened.zygote(replace(entrant, case=Case("u.py::test_a", "", "")), 0, apart=True) is not only


def test_a_zygote_in_use_ends_after_its_processes(pool):
    opened, side = pool()
    opened.ready([(side, GOOD)], range(3))
    used = opened._zygotes[side.name, GOOD, 0, ""]
    used.use(1)
    first = pids(opened)
    opened.ready([(side, GOOD)], [3])
    assert 0 not in pids(opened)
    assert alive(first[0])
    used.use(-1)
    opened.ready([(side, GOOD)], [4])
    assert not alive(first[0])


def test_a_zygote_that_becomes_its_only_launch_is_left_to_it(pool):
    opened, side = pool(spawns=True)
    entrant = Entrant(Case("", "", ""), side)
    with opened._using(entrant, 0) as one, opened._using(entrant, 0) as other:
        assert one is not other
        assert alive(one.pid)


@pytest.mark.parametrize(
    ("spec", "refused"), [("Numpy==1.26.4", True), ("2.20.0+numpy==1.26.4+python==3.10", True), ("keras==3.9.0", False)]
)
def test_a_named_package_that_the_source_tree_hides_is_refused(pool, spec, refused):
    opened, side = pool(hidden={"numpy": str(Path(numpy.__file__).parents[1])})
    reason = "baseline: numpy would come from the source tree and not from .*, so both sides would be the same"
    with pytest.raises(SideError, match=reason) if refused else nullcontext():
        opened.ready([(replace(side, name="baseline", spec=spec), GOOD)], [0])
