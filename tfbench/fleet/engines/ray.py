"""Run jobs as tasks of Ray, one at a time on each node of a class. Needs the extra ``ray``."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfbench.errors import EngineAway, EngineError
from tfbench.fleet.engine import PROGRAM, State, Submission
from tfbench.storage.layout import HISTORY_VARIABLE
from tfbench.untrusted import brief

ANY_RESOURCE = "tfbench"
"""Resource of nodes whose plan names no class."""
INSTALL_RAY = "pip install 'tfbench[ray]'"
_START = "ray start --address=… --resources='{{\"{name}\": 1}}'"
RETRIES = 3
"""Repetitions by Ray of a task whose node went."""


class RayEngine:
    """Submits a task per job. The custom resource of the class, of which a node has 1, lets one run per node.

    Args:
        machine_class: Custom resource of the nodes; ``any`` for the resource ``tfbench``.
        local_nodes: Number of nodes of an own cluster on this host, 0 to use the cluster that is running.

    Raises:
        EngineError: Ray is not installed, no cluster is running, or no node has the class.
    """

    def __init__(self, machine_class: str = "any", local_nodes: int = 0, program: Sequence[str] = PROGRAM) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray: Any = importlib.import_module("ray")  # parts of it have no types
        except ImportError:
            raise EngineError(f"Ray is not installed here: {INSTALL_RAY}") from None
        self._ray, self._error, self._program = ray, ray.exceptions.RayError, program
        self._resource = ANY_RESOURCE if machine_class == "any" else machine_class
        self.cluster: Any = None
        self._references: dict[Any, int] = {}
        self._avoided: frozenset[str] = frozenset()
        self._lost: set[int] = set()
        try:
            if local_nodes:
                self.cluster = self._started(local_nodes)
            address = self.cluster.address if self.cluster else "auto"
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=None)
        except (ConnectionError, RuntimeError, OSError) as error:
            self.close()
            text = brief(error).partition(". ")[0]
            raise EngineError(f"no cluster of Ray is running ({text}): start one, or give --local-nodes 3") from None
        nodes = self._nodes()
        if not nodes:
            known = sorted({name for node in ray.nodes() for name in node["Resources"] if _is_custom(name)})
            self.close()
            start = _START.format(name=self._resource)
            raise EngineError(
                f"no node of Ray has the resource {self._resource}: the custom resources are "
                f"{', '.join(known) or 'none'}; start nodes with {start}"
            )
        self.slots = len(nodes)
        self._task = ray.remote(run_job)

    def _started(self, nodes: int) -> Any:
        one = {"num_cpus": 1, "resources": {self._resource: 1}, "object_store_memory": 100 << 20}
        head = {**one, "include_dashboard": False}
        cluster_utils: Any = importlib.import_module("ray.cluster_utils")
        cluster = cluster_utils.Cluster(initialize_head=True, connect=False, head_node_args=head)
        for _ in range(nodes - 1):
            cluster.add_node(wait=False, **one)
        cluster.wait_for_nodes()
        return cluster

    def _nodes(self) -> set[str]:
        """Return the ids of the living nodes of the class."""
        nodes = self._ray.nodes()
        return {node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get(self._resource)}

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        self._avoid(avoid)
        how: dict[str, Any] = {"num_cpus": 0, "resources": {self._resource: 1}, "max_retries": RETRIES}
        if self._avoided:
            how["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(self._avoided))})"}
        task = self._task.options(**how)
        variables = {HISTORY_VARIABLE: os.environ.get(HISTORY_VARIABLE, "")}
        for job in jobs:
            words = [*self._program, str(job.file)]
            self._references[task.remote(words, str(job.log), variables)] = job.index

    def poll(self) -> Mapping[int, State]:
        found = dict.fromkeys(self._references.values(), State.WAITING)
        try:
            ready, _ = self._ray.wait(list(self._references), num_returns=len(self._references), timeout=0)
            running = min(len(self._references) - len(ready), len(self._nodes()))
        except (self._error, ValueError, ConnectionError) as error:
            raise EngineAway(f"Ray does not answer: {brief(error)}") from None
        for reference in ready:
            found[self._references.pop(reference)] = State.ENDED
        waiting = [index for index, state in found.items() if state is State.WAITING]
        return {**found, **dict.fromkeys(waiting[:running], State.RUNNING)}

    def avoid(self, hosts: Collection[str]) -> None:
        self._avoid(hosts)
        if not self._nodes() - self._avoided:
            raise EngineError(f"every node with the resource {self._resource} was set aside: run tfbench doctor there")

    def _avoid(self, hosts: Collection[str]) -> None:
        """Remember the nodes of these hosts. Tasks that wait may still start there, where their jobs refuse them."""
        if hosts:
            named = {node["NodeID"] for node in self._ray.nodes() if node["NodeManagerHostname"] in hosts}
            self._avoided = frozenset(named)

    def cancel(self) -> None:
        for reference in list(self._references):
            with suppress(self._error, ValueError, TypeError):
                self._ray.cancel(reference, force=False)
        self._references.clear()

    def close(self) -> None:
        self._ray.shutdown()
        if self.cluster is not None:
            self.cluster.shutdown()


def _is_custom(name: str) -> bool:
    return name not in ("CPU", "GPU", "memory", "object_store_memory") and not name.startswith("node:")


def run_job(words: Sequence[str], log: str, variables: Mapping[str, str]) -> int:
    """Do a job in a child process; runs in a process of Ray on the node. Returns the exit code."""
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in variables.items() if value}
    # Ray sets the number of OpenMP threads and hides GPUs; the job's processes decide both themselves.
    own = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    with path.open("ab") as output:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**own, **given})
        try:
            return child.wait()
        except BaseException:  # Ray cancels a task by KeyboardInterrupt
            child.terminate()
            child.wait()
            raise
