"""The environment of the measuring processes: what a side or a variant sets has an effect, or is refused."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import worker
from tests.fakes.suites import one_file
from tfbench.errors import BenchmarkError, SideError, UsageError
from tfbench.model import Case
from tfbench.policy import preset
from tfbench.race import zygote
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import TEMPORARY, THREADS, check_threads, worker_environment
from tfbench.sides.spec import Side
from tfbench.worker import tf_runtime

SIDE = Side("baseline", "python", Path("/root"))
USERS = {"PATH": "/bin", "OMP_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "8", "TF_NUM_INTRAOP_THREADS": "8"}
SET = sorted({name for name, value in worker_environment(USERS, SIDE, {}).items() if USERS.get(name) != value})
"""Every variable that tfbench sets."""


@pytest.fixture(autouse=True)
def driver(monkeypatch):
    monkeypatch.setattr("tfbench.race.workers.has_driver", lambda: True)


@pytest.mark.parametrize("name", sorted({*SET, *THREADS, "TF_FORCE_GPU_ALLOW_GROWTH", TEMPORARY}))
@pytest.mark.parametrize("by", ["side", "variant"])
def test_every_variable_that_tfbench_sets_is_a_sides_or_a_variants_own_or_refused(name, by):
    given = {name: "/given"}
    side, extra = (replace(SIDE, env=given, named=(name,)), {}) if by == "side" else (SIDE, given)
    try:
        value, refusal = worker_environment(USERS, side, extra)[name], ""
    except SideError as error:
        value, refusal = "", str(error)
    # PYTHONPATH begins with tfbench itself.
    refused = refusal == f"baseline: {name}=/given has no effect, because tfbench sets it itself; leave it out"
    assert refused or "/given" in value.split(os.pathsep)


def test_the_process_gets_no_other_variable_than_these(tmp_path, monkeypatch):
    started, start = [], zygote.start_process
    monkeypatch.setattr(zygote, "start_process", lambda *given: started.append(given[3]) or start(*given))
    executable = worker.install(tmp_path, cases={})
    suite = replace(one_file(tmp_path), variables={**USERS, "PATH": os.environ["PATH"]})
    launcher = ProcessLauncher(suite, preset("quick"), Processors((), ()))
    side = replace(SIDE, executable=executable, root=tmp_path)
    try:
        launcher.ready([(side, ())], [0])
    finally:
        launcher.close()
    expected = worker_environment(suite.variables, side, {})
    assert {name for name in started[0] if started[0][name] != expected.get(name)} == {TEMPORARY}


def test_the_variables_of_a_hook_of_git_reach_no_side():
    assert worker_environment({**USERS, "GIT_DIR": "/x/.git", "GIT_PREFIX": "sub/"}, SIDE, {}) == worker_environment(
        USERS, SIDE, {}
    )


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "4"}, "4")])
def test_other_libraries_follow_a_sides_number_of_openmp_threads_which_is_one_without_settings(given, threads):
    env = worker_environment(USERS, replace(SIDE, env=given), {})
    assert {name: env[name] for name in THREADS if name in env} == {"OMP_NUM_THREADS": threads}


def test_a_variant_that_replaces_a_variable_of_the_specification_is_refused():
    side = replace(SIDE, env={"X": "0", "Y": "1"}, named=("X",))
    assert worker_environment({}, side, {"X": "0", "Y": "2"})["Y"] == "2"
    text = "^baseline: X=0 has no effect on variants that set X=1 themselves; leave them out with -k, or the variable$"
    with pytest.raises(SideError, match=text):
        worker_environment({}, side, {"X": "1"})


@pytest.mark.parametrize("name", THREADS)
def test_more_threads_than_processors_are_refused_with_the_fix(name):
    four = replace(SIDE, env={name: "4"})
    check_threads(four, {}, (2, 3, 4, 5))
    check_threads(SIDE, {name: "1"}, (3,))
    with pytest.raises(BenchmarkError) as refused:
        check_threads(four, {}, (5,))
    text = f"baseline: {name}=4 asks for 4 threads on 1 processor, where they would wait for each other"
    assert str(refused.value) == f"{text}; add --cpus with as many processors"
    for wrong in ("", "0", "-1", "x", "1.5"):
        with pytest.raises(
            BenchmarkError, match=f"{name}={wrong} is no number of threads; write a whole number from 1"
        ):
            check_threads(SIDE, {name: wrong}, (0, 1))


def test_nested_parallel_regions_multiply_their_threads():
    check_threads(SIDE, {"OMP_NUM_THREADS": "2,2"}, (0, 1, 2, 3))
    with pytest.raises(BenchmarkError, match="asks for 6 threads on 4 processors"):
        check_threads(SIDE, {"OMP_NUM_THREADS": "2,3"}, (0, 1, 2, 3))


def test_no_process_of_a_case_starts_with_too_many_threads(tmp_path):
    suite = replace(one_file(tmp_path), cpus=(0, 1))
    launcher = ProcessLauncher(suite, preset("quick"), Processors((1,), (0, 1)))
    case = Case("a", "a", "a", env=(("OMP_NUM_THREADS", "2"),))
    with pytest.raises(BenchmarkError, match=r"add --cpus with as many processors$"):
        launcher.start(Entrant(case, SIDE), 0, None)
    side = replace(SIDE, env={"OMP_NUM_THREADS": "2"}, named=("OMP_NUM_THREADS",))
    launcher.check(side, [replace(case, cpus=0)])
    for wrong in (side, replace(SIDE, env={TEMPORARY: "/x"})):
        with pytest.raises(UsageError, match=r"^baseline: "):
            launcher.check(wrong, [replace(case, cpus=0), case])


class _Threading:
    def __init__(self):
        self.calls = {}

    def __getattr__(self, name):
        return lambda threads: self.calls.update({name: threads})


@pytest.mark.parametrize("given", [(), ("INTRA",), ("INTER",), ("INTRA", "INTER")])
def test_tensorflow_keeps_the_numbers_of_threads_that_variables_set(monkeypatch, given):
    threading = _Threading()
    config = type(sys)("config")
    config.threading = threading
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: type("tf", (), {"config": config}))
    for kind in given:
        monkeypatch.setenv(f"TF_NUM_{kind}OP_THREADS", "2")
    tf_runtime.set_threads(1)
    kinds = {"INTRA", "INTER"}.difference(given)
    assert threading.calls == {f"set_{kind.lower()}_op_parallelism_threads": 1 for kind in kinds}
