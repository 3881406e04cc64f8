"""A real Slurm with several nodes on this host: jobs end once, whatever goes, and bad nodes are set aside."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.fleet_job import PROGRAM, intervals, plan
from tests.fleet.clusters import WITHOUT_SLURM, postgres, slurm
from tests.fleet.once import check_once
from tests.length import WHOLE
from tests.storage.test_database import WITHOUT
from tfbench.errors import EngineError
from tfbench.fleet.controller import Fleet, merge
from tfbench.fleet.engines import SlurmEngine
from tfbench.fleet.jobs import FleetFolder
from tfbench.storage.history import opened

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WITHOUT_SLURM), reason=WITHOUT_SLURM)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=6 if WHOLE else 3) as found:
        yield found


@pytest.fixture
def folder(cluster, tmp_path, monkeypatch):
    """Yield the folder of a fleet, with Slurm's commands for this cluster."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setattr("tfbench.fleet.controller.POLL", 0.2)
    return FleetFolder(tmp_path / "fleet")


@pytest.fixture
def stack():
    with ExitStack() as found:
        yield found


def test_jobs_run_on_all_nodes_and_never_at_once(folder):
    plan(folder.path, 6)
    status = Fleet(folder, SlurmEngine(folder, "a100", ["--nice=10"], PROGRAM)).run()
    assert (status.done, status.lost) == (6, {})
    report = merge(folder, status.lost)
    check_once(folder, report, 6)
    assert {machine["host"] for machine in report.machines} <= {"n1", "n2", "n3"}


def test_a_node_whose_canary_fails_is_set_aside(folder, monkeypatch):
    monkeypatch.setenv("FAKE_CANARY", "n2")
    plan(folder.path, 6)
    status = Fleet(folder, SlurmEngine(folder, program=PROGRAM)).run()
    assert (status.done, status.lost) == (6, {})
    assert status.aside == {"n2": "its canary failed: unchanged code is regressed"}
    assert "n2" not in {machine["host"] for machine in merge(folder, {}).machines}


def test_a_class_that_no_node_has(folder):
    with pytest.raises(EngineError, match="no node of Slurm has the feature h100: the features are a100, bench"):
        SlurmEngine(folder, "h100")


@pytest.mark.chaos
@pytest.mark.skipif(not WHOLE, reason="takes a minute or more: set TFBENCH_CHAOS=whole")
def test_nodes_the_controller_and_the_database_are_killed(cluster, folder, monkeypatch, stack):
    jobs = 200 if WHOLE else 12
    monkeypatch.setenv("FAKE_SECONDS", "1" if WHOLE else "0.2")
    plan(folder.path, jobs)
    database = stack.enter_context(postgres()) if WHOLE and not WITHOUT else None
    if database:
        monkeypatch.setenv("TFBENCH_HISTORY", database.url)
    rng = random.Random(os.urandom(4))

    def kill():
        for name in ("n1", "n3"):
            time.sleep(rng.uniform(2, 20 if WHOLE else 3))
            cluster.kill_node(name)
        time.sleep(1)
        cluster.kill_controller()
        if database:
            database.stop()
        time.sleep(2)
        cluster.start_controller()
        if database:
            database.start()
        for name in ("n1", "n3"):
            cluster.start_node(name)

    killer = threading.Thread(target=kill)
    engine = SlurmEngine(folder, program=PROGRAM)
    killer.start()
    try:
        began = time.monotonic()
        status = Fleet(folder, engine).run()
        wall = time.monotonic() - began
    finally:
        killer.join()
    assert (status.done, status.lost) == (jobs, {})
    check_once(folder, merge(folder, {}), jobs)
    if database:
        assert len(opened(database.url).content().once()) == jobs
    measured = sum(end - begin for begin, end, _ in intervals(folder))
    print(f"{jobs} jobs in {wall:.1f} s, of which {measured:.1f} s measured")
