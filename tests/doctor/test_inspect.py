"""Read machines from files in the formats of kernels, and this machine as it is."""

import importlib.util
import os
import py_compile
import sys

import pytest

from tfbench import facts
from tfbench.doctor import machine
from tfbench.doctor.machine import Counters, processors
from tfbench.race.lanes import available_memory

STAT = "cpu  1 0 1 90 0 0 0 8 0 0\ncpu1 100 0 10 800 5 0 0 {steal} 0 0\nprocs_running {running}\n"


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
    assert found.memory.available > 0
    assert 0 < found.clock_step < 1e-3
    assert 0 < found.share <= 1


def test_missing_files_give_none(root):
    found = machine.read((0,), 0, root=root({}), seconds=0, run=lambda command: None)
    assert (found.governor, found.turbo, found.cgroup, found.memory, found.gpus) == (None,) * 5
    assert found.hypervisor is None


def test_constant_properties_are_read_from_their_files(root):
    files = {
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1,3\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "proc/sys/kernel/randomize_va_space": "2\n",
        "proc/loadavg": "1.50 1.00 0.50 1/200 4242\n",
        "proc/meminfo": "MemAvailable: 2048 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n",
        "proc/pressure/memory": "some avg10=2.50 avg60=0.00 avg300=0.00 total=0\n",
        "proc/cpuinfo": "processor: 0\nflags\t\t: fpu hypervisor sse\n",
        "sys/class/dmi/id/sys_vendor": "QEMU\n",
    }
    found = machine.read((1, 3), 1, root=root(files), seconds=0, run=lambda command: None)
    assert found.online == 4
    assert found.governor == "powersave"
    assert found.siblings == (1, 3)
    assert found.turbo is True
    assert found.turbo_switch == "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
    assert found.hugepages == "always"
    assert (found.memory.available, found.memory.swap_used, found.memory.pressure) == (2 << 20, 60 << 10, 2.5)
    assert found.hypervisor == "QEMU"
    assert found.load_average == 1.5


def test_steal_is_a_share_of_the_passed_time(root):
    before = machine.counters(root({"proc/stat": STAT.format(steal=0, running=3)}), 1)
    root({"proc/stat": STAT.format(steal=25, running=3).replace("800", "875")})
    after = machine.counters(root({}), 1)
    found = machine.observation_window(before, after, 1.0)
    assert found.steal == 0.25
    assert machine.observation_window(Counters(None, None, None), after, 1.0).steal is None


@pytest.mark.parametrize(("text", "found"), [("0,2-3", (0, 2, 3)), ("", ()), ("x", ()), ("1-x", ())])
def test_lists_of_processors_are_parsed(text, found):
    assert processors(text) == found


def test_the_tightest_limit_of_cgroups_version_two_holds(root):
    two = root(
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/b/memory.max": "1000000\n",
            "sys/fs/cgroup/a/b/memory.current": "700000\n",
            "sys/fs/cgroup/a/b/memory.stat": "inactive_file 200000\n",
            "sys/fs/cgroup/a/cpu.stat": "throttled_usec 500000\n",
        }
    )
    limits = facts.read_limits(two)
    assert (limits.quota, limits.memory_left) == (1.5, 500000)
    assert facts.throttled_seconds(two) == 0.5
    root({"proc/meminfo": "MemAvailable: 64000000 kB\n"})
    assert available_memory(two) == 500000
    root({"proc/meminfo": "MemAvailable: 100 kB\n"})
    assert available_memory(two) == 102400


def test_limits_of_cgroups_version_one_are_read(root):
    one = root(
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "throttled_time 2000000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    limits = facts.read_limits(one)
    assert (limits.quota, limits.memory_left) == (0.5, None)
    assert facts.throttled_seconds(one) == 2.0


def test_bytecode_counts_only_if_python_would_use_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path.parent)
    for name in ("__init__", "b", "c"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
        py_compile.compile(str(tmp_path / f"{name}.py"))
    (tmp_path / "b.py").write_text("x = 22\n")
    cached = importlib.util.cache_from_source(str(tmp_path / "c.py"))
    with open(cached, "r+b") as file:
        file.write(b"????")
    found = machine.look_at(tmp_path.name)
    assert (found.seen, found.compiled) == (3, 1)
    assert machine.look_at("no_such_package_anywhere") is None


ROW = "0, NVIDIA H200, Enabled, 3, 345, 1980, Disabled, Exclusive_Process, 0x0000000000000004\n"


def test_old_drivers_are_asked_by_the_old_name_of_the_reasons():
    def old_driver(command):
        if "clocks_event_reasons" in command[1]:
            return None
        return "77, python, 512\n" if "compute-apps" in command[1] else ROW

    found = machine.read_gpus(old_driver)
    (gpu,) = found.devices
    assert (gpu.name, gpu.persistence, gpu.clock, gpu.throttled, gpu.mig) == ("NVIDIA H200", True, 345.0, 4, False)
    assert found.processes == ("python (pid 77, 512 MiB)",)
    assert gpu.compute_mode == "Exclusive_Process"


@pytest.mark.parametrize("there", [True, False])
def test_a_daemon_of_mps_is_found_by_its_pipe(tmp_path, monkeypatch, there):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "nvidia-cuda-mps-control"
    program.touch(mode=0o755)
    if there:
        (tmp_path / "control").touch()
    found = machine.read_gpus(lambda command: ROW)
    assert (found.mps, found.has_mps) == (str(tmp_path) if there else "", True)


def test_a_reading_that_a_device_does_not_report_is_none():
    found = machine.read_gpus(lambda command: ROW.replace("345", "[N/A]").replace("0x0000000000000004", "[N/A]"))
    assert (found.devices[0].clock, found.devices[0].throttled) == (None, None)


def test_a_machine_without_nvidia_smi_gives_none():
    assert machine.read_gpus(lambda command: None) is None
    assert machine.run(["/nonexistent/nvidia-smi"]) is None
    assert machine.run([sys.executable, "-c", "print(7)"]) == "7\n"
