"""Jobs as tasks of Ray. Its cluster is a fake, since most machines have no Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import EngineError
from tfbench.fleet.jobs import RESOURCE, on_ray, run_job


@pytest.fixture
def ray(monkeypatch):
    """A cluster whose last task ends first."""
    made = SimpleNamespace(exceptions=SimpleNamespace(RayError=KeyError), is_initialized=lambda: True, cancelled=[])
    made.cluster_resources = lambda: {RESOURCE: 1.0}
    made.remote = lambda function: SimpleNamespace(
        options=lambda **how: SimpleNamespace(remote=lambda *given: (*given[0], *how))
    )
    made.wait = lambda tasks: (tasks[-1:], tasks[:-1])
    made.cancel = lambda task, force: made.cancelled.append(task)
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_jobs_end_as_their_tasks_do_and_the_rest_is_cancelled(ray, tmp_path):
    jobs = {index: (("do", str(index)), str(tmp_path / "log")) for index in (1, 2, 3)}
    assert list(on_ray(jobs)) == [3, 2, 1]
    engine = on_ray(jobs)
    assert [next(engine), next(engine)] == [3, 2]
    engine.close()
    assert ray.cancelled == [("do", "1", "num_cpus", "resources", "max_retries")]


def test_a_task_runs_the_command_of_its_job_and_keeps_its_output(tmp_path):
    assert run_job([sys.executable, "-c", "print('done'); exit(3)"], str(tmp_path / "a/log"), {}) == 3
    assert Path(tmp_path / "a/log").read_text() == "done\n"


def test_without_a_cluster_the_command_that_starts_one_is_named(ray):
    for resources, said in (
        ({}.copy, "no node of Ray has the resource tfbench"),
        (lambda: {}["CPU"], "Ray does not answer"),
    ):
        ray.cluster_resources = resources
        with pytest.raises(EngineError, match=rf"{said}.* ray start --address=HEAD:6379"):
            list(on_ray({}))
