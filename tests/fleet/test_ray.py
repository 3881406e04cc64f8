"""A real cluster of Ray with three nodes on this host: jobs end once, whatever goes."""

from __future__ import annotations

import importlib.util
import os
import random
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.fleet_job import PROGRAM, intervals, plan
from tests.fleet.once import check_once
from tests.length import WHOLE
from tfbench.errors import EngineError
from tfbench.fleet.controller import Fleet, merge
from tfbench.fleet.engines import RayEngine
from tfbench.fleet.jobs import FleetFolder

WITHOUT_RAY = "" if importlib.util.find_spec("ray") else "Ray is missing; install it: pip install 'pytest-tfbench[ray]'"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(WITHOUT_RAY), reason=WITHOUT_RAY),
    pytest.mark.filterwarnings("ignore"),  # of Ray and of what it imports
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setattr("tfbench.fleet.controller.POLL", 0.1)
    return FleetFolder(tmp_path / "fleet")


@pytest.mark.chaos
def test_two_nodes_are_killed(folder, monkeypatch):
    jobs = 200 if WHOLE else 12
    monkeypatch.setenv("FAKE_SECONDS", "1" if WHOLE else "0.2")
    plan(folder.path, jobs)
    engine = RayEngine(local_nodes=3, program=PROGRAM)
    try:
        rng = random.Random(os.urandom(4))

        def kill():
            for node in [node for node in engine.cluster.list_all_nodes() if node is not engine.cluster.head_node][:2]:
                time.sleep(rng.uniform(1, 20 if WHOLE else 2))
                engine.cluster.remove_node(node, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        began = time.monotonic()
        status = Fleet(folder, engine).run()
        wall = time.monotonic() - began
        killer.join()
        assert (status.done, status.lost) == (jobs, {})
        check_once(folder, merge(folder, {}), jobs)
        measured = sum(end - begin for begin, end, _ in intervals(folder))
        print(f"{jobs} jobs in {wall:.1f} s, of which {measured:.1f} s measured")
    finally:
        engine.close()


def test_a_class_that_no_node_has(folder):
    with pytest.raises(EngineError, match="no cluster of Ray is running"):
        RayEngine()
