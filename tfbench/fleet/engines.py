"""Start nodes: as local processes, by Slurm, or by Ray."""

from __future__ import annotations

import enum
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tfbench.errors import EngineAway, EngineError, ReportError
from tfbench.fleet.jobs import FleetFolder, node_name
from tfbench.fs import read_text, write_whole
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.untrusted import brief

# Define what a fleet needs of an engine. Each engine is one module of `tfbench.fleet.engines`


class State(str, enum.Enum):
    """The state of a submitted job, as its engine sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """The engine has finished with it. Only its report shows whether it succeeded."""


@dataclass(frozen=True)
class Submission:
    """One job for an engine."""

    index: int
    file: Path
    log: Path
    """File for the output of the job."""


class Engine(Protocol):
    """Runs jobs on machines. Every method may raise `EngineError`, and `EngineAway` if the engine does not answer."""

    @property
    def slots(self) -> int:
        """Number of jobs that run at once as far as known, at least 1; for the time left."""

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        """Start jobs as machines become free, on other machines than those to avoid."""

    def poll(self) -> Mapping[int, State]:
        """Return the state of every job that was submitted and has not been reported as ended."""

    def avoid(self, hosts: Collection[str]) -> None:
        """Keep jobs that still wait off these machines, as far as the engine can."""

    def cancel(self) -> None:
        """End all submitted jobs."""

    def close(self) -> None:
        """Release what this process holds of the engine. Submitted jobs go on."""


PROGRAM = (sys.executable, "-m", "tfbench", "job", "run")
"""The command that does a job; the path of the job follows."""


# Run jobs on this machine, one after another. It needs no engine, and tests run fleets with it


_ENDING = 90.0
"""Seconds that a cancelled job gets to write its journal, before it is killed."""


class LocalEngine:
    """Starts a process per job, ``slots`` at once.

    The lease of the host lets one of them measure at a time, so more slots only shorten the start of the next job.
    """

    def __init__(self, program: Sequence[str] = PROGRAM, slots: int = 1) -> None:
        self.slots = slots
        self._program = program
        self._waiting: deque[Submission] = deque()
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        self._waiting += jobs

    def poll(self) -> Mapping[int, State]:
        ended = [index for index, process in self._running.items() if process.poll() is not None]
        for index in ended:
            del self._running[index]
        while self._waiting and len(self._running) < self.slots:
            job = self._waiting.popleft()
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("ab") as log:
                words = [*self._program, str(job.file)]
                self._running[job.index] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        return {
            **dict.fromkeys(ended, State.ENDED),
            **dict.fromkeys(self._running, State.RUNNING),
            **{job.index: State.WAITING for job in self._waiting},
        }

    def avoid(self, hosts: Collection[str]) -> None:
        if node_name() in hosts:
            raise EngineError("this machine was set aside, and is the only one: run tfbench doctor here")

    def cancel(self) -> None:
        self._waiting.clear()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(_ENDING)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):  # too slow, or interrupted once more
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()

    def close(self) -> None:
        """Hold nothing."""


# Run jobs as job arrays of Slurm, on exclusive nodes. It needs Slurm's commands and no library


ANY = "any"
"""The class of all nodes."""
INSTALL_SLURM = "apt-get install slurm-client, or run this on a login node"
_SCRIPT = """#!/bin/sh
# tfbench: $1 is a folder with a link per task of the array, and the other words are a command that takes one.
links=$1
shift
exec srun --quiet --ntasks=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}" --cpu-bind=cores --mem-bind=local \\
  "$@" "$links/$SLURM_ARRAY_TASK_ID.json"
"""
_ARRAY = 1000
"""Tasks of an array. Slurm's default limit of an array's indices is 1,000."""
_LIMIT = 60
"""Seconds that a command of Slurm may take."""
_WAITING = {"PENDING", "REQUEUED", "CONFIGURING", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"}


class SlurmEngine:
    """Submits arrays, and follows them with squeue. A fleet that goes on first cancels what it submitted before.

    Args:
        machine_class: A feature of the nodes, or `ANY`.
        options: Further options of sbatch, such as ``--gres=gpu:1`` or ``--partition=night``.

    Raises:
        EngineError: Slurm is not installed, or no node has the class.
        EngineAway: Slurm's controller does not answer.
    """

    def __init__(
        self,
        folder: FleetFolder,
        machine_class: str = ANY,
        options: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._folder, self._class, self._options, self._program = folder.path / "slurm", machine_class, options, program
        if missing := next((name for name in ("sbatch", "squeue", "sinfo") if shutil.which(name) is None), ""):
            raise EngineError(f"Slurm is not installed here, {missing} is missing: {INSTALL_SLURM}")
        if wrong := next((option for option in options if not option.startswith("--")), ""):
            raise EngineError(f"--engine-option {brief(wrong)}: write options of sbatch as in --gres=gpu:1")
        self._nodes = self._of_class()
        self.slots = len(self._nodes)
        self._tasks: dict[tuple[str, str], int] = {}
        """Array and task -> job that has not ended."""
        self._arrays: set[str] = set()
        if earlier := self._earlier():
            with suppress(EngineError):  # none of them is left
                _run("scancel", *earlier)
            (self._folder / "arrays.txt").unlink()  # in time, Slurm gives their numbers to other jobs

    def _of_class(self) -> set[str]:
        rows = [line.split("|") for line in _run("sinfo", "-h", "-N", "-o", "%N|%f").splitlines() if "|" in line]
        features = {feature for _, words in rows for feature in words.split(",") if feature != "(null)"}
        nodes = {node for node, words in rows if self._class == ANY or self._class in words.split(",")}
        if not nodes:
            known = ", ".join(sorted(features)) or "none"
            raise EngineError(f"no node of Slurm has the feature {self._class}: the features are {known}")
        return nodes

    def _earlier(self) -> list[str]:
        with suppress(ReportError):
            return [line for line in read_text(self._folder / "arrays.txt").split() if re.fullmatch(r"\d+", line)]
        return []

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        for first in range(0, len(jobs), _ARRAY):
            self._submit(jobs[first : first + _ARRAY], avoid)

    def _submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        number = sum(1 for _ in self._folder.glob("*/run.sh")) + 1
        links = self._folder / f"{number:05}"
        write_whole(links / "run.sh", _SCRIPT)
        for task, job in enumerate(jobs):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(job.file, links / f"{task}.json")
            os.symlink(job.log, links / f"{task}.txt")
        words = [
            "sbatch", "--parsable", f"--array=0-{len(jobs) - 1}", "--job-name=tfbench", "--nodes=1", "--ntasks=1",
            "--exclusive", "--requeue", "--open-mode=append", f"--output={links}/%a.txt",
            *([] if self._class == ANY else [f"--constraint={self._class}"]),
            *([f"--exclude={','.join(sorted(avoid))}"] if avoid else []),
            *self._options, str(links / "run.sh"), str(links), *self._program,
        ]  # fmt: skip
        array = _run(*words).strip().partition(";")[0]
        if not re.fullmatch(r"\d+", array):
            raise EngineError(f"sbatch returned {brief(repr(array))} instead of the number of a job")
        self._arrays.add(array)
        self._tasks.update({(array, str(task)): job.index for task, job in enumerate(jobs)})
        write_whole(self._folder / "arrays.txt", "".join(f"{array}\n" for array in sorted(self._arrays)))

    def poll(self) -> Mapping[int, State]:
        states: dict[int, State] = dict.fromkeys(self._tasks.values(), State.ENDED)
        arrays = sorted({array for array, _ in self._tasks})
        for line in self._queue(arrays).splitlines() if arrays else ():
            fields = line.split("|", 3)
            if len(fields) < 4 or (fields[0], fields[1]) not in self._tasks:
                continue
            array, task, word, reason = fields
            state = State.WAITING if word in _WAITING else State.RUNNING if word in _RUNNING else State.ENDED
            if state is State.WAITING and "held" in reason.lower():  # it would wait for an administrator
                with suppress(EngineError):
                    _run("scancel", f"{array}_{task}")
                state = State.ENDED
            if state is State.WAITING and reason == "BeginTime":  # Slurm delays a lost node's jobs by two minutes
                with suppress(EngineError):
                    _run("scontrol", "update", f"JobId={array}_{task}", "StartTime=now")
            states[self._tasks[array, task]] = state
        self._tasks = {key: job for key, job in self._tasks.items() if states[job] is not State.ENDED}
        return states

    def _queue(self, arrays: Sequence[str]) -> str:
        try:
            return _run("squeue", "-h", "-r", f"--jobs={','.join(arrays)}", "--states=all", "-o", "%F|%K|%T|%r")
        except EngineAway:
            raise
        except EngineError as error:
            if "Invalid job id" in str(error):  # Slurm has forgotten all of them, minutes after their end
                return ""
            raise EngineAway(str(error)) from None

    def avoid(self, hosts: Collection[str]) -> None:
        if not self._nodes - set(hosts):
            raise EngineError(f"every node of the class {self._class} was set aside: run tfbench doctor on them")
        for array in sorted({array for array, _ in self._tasks}):
            with suppress(EngineError):  # the array has ended meanwhile, and jobs refuse such a machine by themselves
                _run("scontrol", "update", f"JobId={array}", f"ExcNodeList={','.join(sorted(hosts))}")

    def cancel(self) -> None:
        if arrays := sorted({array for array, _ in self._tasks}):
            _run("scancel", *arrays)
        self._tasks.clear()

    def close(self) -> None:
        """Hold nothing."""


def _run(*words: str) -> str:
    """Run a command of Slurm and return its output.

    Raises `EngineAway` if Slurm's controller or its authentication does not answer, and `EngineError` if it fails.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except FileNotFoundError:
        raise EngineError(f"Slurm is not installed here, {words[0]} is missing: {INSTALL_SLURM}") from None
    except subprocess.TimeoutExpired:
        raise EngineAway(f"{words[0]} did not answer within {_LIMIT} s") from None
    if done.returncode:
        said = brief(done.stderr.strip() or f"exit code {done.returncode}")
        away = re.search(r"Unable to contact|Connection (?:refused|timed out)|Socket timed out|timed out|Munge", said)
        raise (EngineAway if away else EngineError)(f"{words[0]}: {said}")
    return done.stdout


# Run jobs as tasks of Ray, one at a time on each node of a class. Needs the extra ``ray``


ANY_RESOURCE = "tfbench"
"""Resource of nodes whose plan names no class."""
INSTALL_RAY = "pip install 'pytest-tfbench[ray]'"
_START = "ray start --address=… --resources='{{\"{name}\": 1}}'"
RETRIES = 3
"""Repetitions by Ray of a task whose node went."""


class RayEngine:
    """Submits a task per job. The custom resource of the class, of which a node has 1, lets one run per node.

    Raises `EngineError` if Ray is not installed, no cluster is running, or no node has the class.

    Args:
        machine_class: Custom resource of the nodes; ``any`` for the resource ``tfbench``.
        local_nodes: Number of nodes of an own cluster on this host, 0 to use the cluster that is running.
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
        resources = {"num_cpus": 1, "resources": {self._resource: 1}, "object_store_memory": 100 << 20}
        head = {**resources, "include_dashboard": False}
        cluster_utils: Any = importlib.import_module("ray.cluster_utils")
        cluster = cluster_utils.Cluster(initialize_head=True, connect=False, head_node_args=head)
        for _ in range(nodes - 1):
            cluster.add_node(wait=False, **resources)
        cluster.wait_for_nodes()
        return cluster

    def _nodes(self) -> set[str]:
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
        states = dict.fromkeys(self._references.values(), State.WAITING)
        try:
            ready, _ = self._ray.wait(list(self._references), num_returns=len(self._references), timeout=0)
            running = min(len(self._references) - len(ready), len(self._nodes()))
        except (self._error, ValueError, ConnectionError) as error:
            raise EngineAway(f"Ray does not answer: {brief(error)}") from None
        for reference in ready:
            states[self._references.pop(reference)] = State.ENDED
        waiting = [index for index, state in states.items() if state is State.WAITING]
        return {**states, **dict.fromkeys(waiting[:running], State.RUNNING)}

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
