"""Run the jobs of a fleet: on this machine, one after another, or as tasks of Ray."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.errors import EngineError
from tfbench.facts import interpreter_options
from tfbench.race.workers import run_terminable
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.untrusted import brief

PROGRAM = (sys.executable, *interpreter_options(), "-m", "tfbench", "fleet", "job")
"""The command that does a job. The fleet's folder and the job's number follow."""


@dataclass(frozen=True)
class Submission:
    """One job for an engine."""

    index: int
    words: Sequence[str]
    """The command that does the job."""
    log: Path
    """File for the output of the job."""


Engine = Callable[[Sequence[Submission]], Generator[int, None, None]]
"""Starts jobs as machines become free, and yields the number of each job that has ended, whatever its result.

If the generator is closed or interrupted, the jobs that have not ended are cancelled. Raises `EngineError`.
"""


def run_job(words: Sequence[str], log: str, variables: Mapping[str, str]) -> int:
    """Do a job in a child process, and return its exit code. It runs in a process of Ray on a node, or in this one."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    # Ray sets the number of OpenMP threads and hides GPUs; the job's processes decide both themselves.
    own = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    with open(log, "ab") as output:
        return run_terminable(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**own, **variables},
            start_new_session=True,
        )


def here(jobs: Sequence[Submission]) -> Generator[int, None, None]:
    """Run jobs on this machine, one after another."""
    for job in jobs:
        run_job(job.words, str(job.log), os.environ)
        yield job.index


RESOURCE = "tfbench"
"""Custom resource of the nodes that measure. A node has 1 of it, so one job runs there at a time."""
_START = f"ray start --address=HEAD:6379 --resources='{{\"{RESOURCE}\": 1}}'"
_RETRIES = 3
"""Repetitions by Ray of a task whose node went."""


def on_ray(jobs: Sequence[Submission]) -> Generator[int, None, None]:
    """Run jobs as tasks of the Ray cluster that is running here, one at a time on each node with `RESOURCE`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")  # parts of it have no types
    except ImportError:
        raise EngineError("Ray is not installed here: pip install ray") from None
    waiting: dict[Any, int] = {}
    try:
        if not ray.is_initialized():
            ray.init(address="auto", log_to_driver=False, logging_level="error", include_dashboard=None)
        if not ray.cluster_resources().get(RESOURCE):
            raise EngineError(f"no node of Ray has the resource {RESOURCE}: start nodes with {_START}")
        task = ray.remote(run_job).options(num_cpus=0, resources={RESOURCE: 1}, max_retries=_RETRIES)
        given = {HISTORY_VARIABLE: os.environ[HISTORY_VARIABLE]} if HISTORY_VARIABLE in os.environ else {}
        waiting.update({task.remote(list(job.words), str(job.log), given): job.index for job in jobs})
        while waiting:
            (ended,), _ = ray.wait(list(waiting))
            yield waiting.pop(ended)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        text = brief(error).partition(". ")[0]
        raise EngineError(f"Ray does not answer ({text}): is a cluster running? {_START}") from None
    finally:
        for reference in waiting:
            with suppress(ray.exceptions.RayError, ValueError, TypeError):
                ray.cancel(reference, force=False)


ENGINES: Mapping[str, Engine] = {"local": here, "ray": on_ray}
