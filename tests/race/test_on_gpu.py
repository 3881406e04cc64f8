"""Launches on a GPU: its driver follows a script, and so do the processes."""

import pytest

from tests.fakes import worker
from tests.fakes.nvml import Device, h200, library
from tests.fakes.suites import one_file
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.nvml import Nvml
from tfbench.model import Case
from tfbench.policy import GPU_CASE_FACTOR, GPU_SETUP_SECONDS, preset
from tfbench.protocol import ProbeCase
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.sides.spec import Side

POLICY = preset("quick")
FOUR = Processors((3,), (0, 1, 2, 3), near=(3, 2, 1, 0))
NAME = "t.py::test_fine"


@pytest.fixture
def launcher(tmp_path):
    """Returns a launcher on a GPU, by default with the readings of an H200, and the entrants of a case."""
    opened = []

    def start(gigabytes=None, variant=(), where=FOUR, **variables):
        nvml = Nvml(library(Device(memory=gigabytes << 30) if gigabytes else h200()))
        gpu_monitor = GpuMonitor(nvml.identities(), nvml, POLICY, set)
        executable = worker.install(tmp_path, cases={NAME: {}})
        opened.append(ProcessLauncher(one_file(tmp_path), POLICY, where, gpu_monitor))
        case = Case(NAME, "test_fine", NAME, variant)
        return opened[-1], [Entrant(case, Side(name, executable, tmp_path, env=variables)) for name in ("old", "new")]

    yield start
    for one in opened:
        one.close()


def opened(launcher, entrants):
    launch = launcher.open(entrants, 0)
    launch.kill()
    return launch


def test_both_sides_prepare_at_once_where_the_memory_of_the_gpu_has_room(launcher):
    launch = opened(*launcher(80))
    assert (launch.cpus, launch.places) == ((3,), [(3,), (2,)])
    assert opened(*launcher()).places == [(3,), (2,), (1,), (0,)]
    launch = opened(*launcher(24))
    assert (launch.cpus, launch.places) == ((3,), [(3,)])


def test_first_calls_have_all_processors(launcher):
    """XLA compiles on them and tries its kernels, which takes 10 s on one of an H200's machine."""
    started, entrants = launcher()
    assert opened(started, entrants).compiling == FOUR.near
    start, requests = started.start, []

    def noted(entrant, pair, request, *others):
        requests.append(request)
        return start(entrant, pair, request, *others)

    launch = started.open(entrants, 0)
    launch.start = noted
    launch.prepare((0, 1))
    launch.kill()
    assert [(request.cpus, request.meeting, request.compiling) for request in requests] == [
        ((3,), (3,), FOUR.near),
        ((2,), (3,), FOUR.near),
    ]


@pytest.mark.parametrize(
    "how", [{"variant": (("device", "cpu"),)}, {"CUDA_VISIBLE_DEVICES": "-1"}, {"CUDA_VISIBLE_DEVICES": ""}]
)
def test_a_case_on_the_cpu_of_a_machine_with_a_gpu_is_as_on_any_other(launcher, how):
    started, entrants = launcher(24, **how)
    launch = opened(started, entrants)
    assert (launch.cpus, launch.places) == ((3,), [(3,), (2,), (1,), (0,)])
    assert (launch.gpu_monitor, launch.policy) == (None, POLICY)
    assert started.policy_of(POLICY, entrants).case_seconds == POLICY.case_seconds


def test_launches_on_a_gpu_have_more_time(launcher):
    started, entrants = launcher(80)
    assert opened(started, entrants).policy.setup_seconds == GPU_SETUP_SECONDS > POLICY.setup_seconds
    assert started.policy_of(POLICY, entrants).case_seconds == GPU_CASE_FACTOR * POLICY.case_seconds


@pytest.mark.parametrize(("gigabytes", "places"), [(24, {(0, 1, 2, 3)}), (80, {(0, 1), (2, 3)})])
def test_no_more_probes_run_at_once_than_the_memory_of_the_gpu_has_room_for(launcher, monkeypatch, gigabytes, places):
    started, entrants = launcher(gigabytes)
    start, used = started.start, []

    def noted(entrant, pair, request, **keywords):
        assert isinstance(request, ProbeCase)
        used.append(request.cpus)
        return start(entrant, pair, request, **keywords)

    monkeypatch.setattr(started, "start", noted)
    assert len(list(Prober(started, POLICY).probe(entrants * 3))) == 6
    assert set(used) == places
