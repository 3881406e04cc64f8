"""Read machines from files in the formats of kernels, and this machine as it is."""

import os

import pytest

from tests.fakes.nvml import Device, library
from tfbench.doctor import checks as machine
from tfbench.doctor.checks import Counters
from tfbench.errors import GpuError
from tfbench.gpus.nvml import Nvml


@pytest.fixture
def root(tmp_path):
    """A machine's /proc and /sys."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_this_machine_is_read():
    found = machine.read(sorted(os.sched_getaffinity(0)), max(os.sched_getaffinity(0)), seconds=0.1)
    assert found.memory > 0
    assert 0 < found.share <= 1
    assert 0 <= found.others <= found.online
    assert found.spin.seconds > 0


def test_missing_files_give_none(root):
    found = machine.read((0,), 0, root=root({}), seconds=0)
    assert (found.governor, found.limits, found.siblings) == (None,) * 3


def test_constant_properties_are_read_from_their_files(root):
    files = {
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1,3-4\n",
        "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "2\n",
        "sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count": "5\n",
    }
    found = machine.read((1, 3), 1, root=root(files), seconds=0)
    assert found.governor == "powersave"
    assert found.siblings == (1, 3, 4)
    assert found.counters.heat == 5


def test_the_growth_of_counters_is_unknown_where_one_reading_is():
    before, after = Counters(10.0, 1.0, None, 2), Counters(12.0, 1.5, 3.0, 2)
    assert after.since(before) == Counters(2.0, 0.5, None, 0)


def test_the_tightest_limit_of_all_control_groups_holds(root):
    two = root(
        {
            "proc/self/cgroup": "1:name=systemd:/\n0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/b/memory.max": "1000000\n",
            "sys/fs/cgroup/a/b/memory.current": "700000\n",
            "sys/fs/cgroup/a/b/memory.stat": "inactive_file 200000\n",
            "sys/fs/cgroup/a/cpu.stat": "throttled_usec 500000\n",
        }
    )
    limits = machine.read_limits(two)
    assert (limits.quota, limits.memory_left) == (1.5, 500000)
    assert machine.counters(two, 0).throttled == 0.5


def test_gpus_are_read(monkeypatch):
    monkeypatch.setattr(machine, "Nvml", lambda: Nvml(library(Device(reasons=[4]))))
    ((gpu, reading),) = machine.read_gpus().devices
    assert (gpu.persistence, gpu.compute_mode, reading.sm_clock, reading.reasons) == (True, "default", 1980, 4)


def test_a_driver_without_its_library_is_an_error_of_the_reading(monkeypatch):
    def missing():
        raise GpuError("nvidia-ml-py is not installed")

    monkeypatch.setattr(machine, "Nvml", missing)
    assert machine.read_gpus().error == "nvidia-ml-py is not installed"
