"""A real cluster of Ray with three nodes on this host: jobs end once, whatever goes."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.fleet_job import PROGRAM, plan
from tfbench.errors import EngineError
from tfbench.fleet.controller import merge, run
from tfbench.fleet.engines import RESOURCE, on_ray
from tfbench.fleet.jobs import FleetFolder

WITHOUT_RAY = "" if importlib.util.find_spec("ray") else "Ray is missing; install it: pip install ray"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(WITHOUT_RAY), reason=WITHOUT_RAY),
    pytest.mark.filterwarnings("ignore"),  # of Ray and of what it imports
]


@pytest.mark.chaos
def test_two_nodes_are_killed(tmp_path, monkeypatch):
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setenv("FAKE_SECONDS", "0.2")
    folder = FleetFolder(tmp_path / "fleet")
    plan(folder.path, 12)
    resources = {"num_cpus": 1, "resources": {RESOURCE: 1}, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    try:
        others = [cluster.add_node(wait=True, **resources) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False)

        def kill():
            for node in others:
                time.sleep(1)
                cluster.remove_node(node, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        assert run(folder, on_ray, lambda text: None, PROGRAM) == {}
        killer.join()
        names = [row.case.name for row in merge(folder, {}).verdicts]
        assert len(names) == len(set(names)) == 12
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_without_a_cluster_the_command_that_starts_one_is_named():
    with pytest.raises(EngineError, match=r"Ray does not answer .* ray start --address=HEAD:6379"):
        list(on_ray([]))
