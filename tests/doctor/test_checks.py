"""Each fault of a machine is graded and has a fix, and a missing reading is unknown."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tfbench.doctor.checks import CHECKS, GpuCheck, examine, is_fit, worst_first
from tfbench.doctor.machine import (
    Bytecode,
    Finding,
    Gpu,
    Gpus,
    Limits,
    Machine,
    Memory,
    ObservationWindow,
    State,
)
from tfbench.facts import Cgroup
from tfbench.model import Run
from tfbench.policy import preset

GIB = 1 << 30
GPU = Gpu(0, "H200", True, 0.0, 1980.0, 1980.0, 0, False)
EXCLUSIVE = replace(GPU, compute_mode="Exclusive_Process")
FINE = Machine(
    cpus=(0, 1),
    worker=1,
    online=2,
    others=0.0,
    share=0.99,
    spin=ObservationWindow(0.5, 0.0, 0.0, 0),
    load_average=0.1,
    governor="performance",
    turbo=False,
    siblings=(1,),
    cgroup=Cgroup(),
    thermal_events=0,
    hypervisor="",
    memory=Memory(20 * GIB, 0, 0.0),
    hugepages="madvise",
    aslr=2,
    clock_source="tsc",
    clock_step=3e-8,
    tensorflow=Bytecode("/tf", 300, 300),
    gpus=Gpus((GPU,), ()),
    gpu_driver=True,
)


def found(name, **changes):
    findings = {finding.name: finding for finding in examine(replace(FINE, **changes), Limits())}
    return findings[name]


def test_a_quiet_machine_has_no_findings_but_ok():
    findings = examine(FINE, Limits())
    assert [finding for finding in findings if finding.state is not State.OK] == []
    assert is_fit(findings)
    assert len({finding.name for finding in findings}) == len(CHECKS)


def test_a_missing_reading_is_unknown_and_never_bad():
    bare = examine(Machine("Darwin", (0, 1), 1), Limits())
    assert is_fit(bare)
    assert sum(finding.state is State.UNKNOWN for finding in bare) > 8


BAD, WARN, UNKNOWN = State.BAD, State.WARN, State.UNKNOWN
FAULTS = [
    ("processors", BAD, {"cpus": (0,)}, "at least two processors"),
    ("load", WARN, {"others": 1.0}, "end other programs"),
    ("load", BAD, {"others": 2.5}, "end other programs"),
    ("worker's processor", WARN, {"share": 0.9}, "--cpus"),
    ("worker's processor", BAD, {"share": 0.5}, "isolcpus"),
    ("steal", WARN, {"spin": ObservationWindow(0.5, 0.05)}, "burstable"),
    ("steal", BAD, {"spin": ObservationWindow(0.5, 0.2)}, "burstable"),
    ("virtualisation", WARN, {"hypervisor": "KVM"}, "gate by live races"),
    ("governor", WARN, {"governor": "powersave"}, "cpupower frequency-set -g performance"),
    ("turbo", WARN, {"turbo": True, "turbo_switch": "echo 1 | sudo tee /x"}, "echo 1"),
    ("SMT siblings", WARN, {"siblings": (0, 1)}, "smt/control"),
    ("heat", BAD, {"spin": ObservationWindow(0.5, 0.0, 0.0, 3)}, "cooling"),
    ("heat", WARN, {"thermal_events": 7}, "cap the clock"),
    ("processor quota", WARN, {"cgroup": Cgroup(quota=1.5)}, "raise the limit"),
    ("processor quota", BAD, {"cgroup": Cgroup(quota=0.5)}, "raise the limit"),
    ("processor quota", BAD, {"spin": ObservationWindow(0.5, 0.0, 0.1)}, "raise the limit"),
    ("memory", WARN, {"memory": Memory(3 * GIB, 0, 0.0)}, "--policy quick"),
    ("memory", BAD, {"cgroup": Cgroup(memory_left=GIB // 2)}, "raise the container's limit"),
    ("swap", WARN, {"memory": Memory(20 * GIB, GIB, 0.0)}, "swapoff"),
    ("swap", BAD, {"memory": Memory(20 * GIB, 0, 30.0)}, "end the programs that fill memory"),
    ("transparent huge pages", WARN, {"hugepages": "always"}, "madvise"),
    ("address layout", WARN, {"aslr": 0}, "randomize_va_space=2"),
    ("clock", WARN, {"clock_source": "hpet", "clock_step": 1e-7}, "clocksource=tsc"),
    ("clock", BAD, {"clock_source": "acpi_pm", "clock_step": 4e-6}, "clocksource=tsc"),
    ("TensorFlow", WARN, {"tensorflow": None}, "pip install tensorflow"),
    ("TensorFlow", WARN, {"tensorflow": Bytecode("/tf", 300, 10)}, "compileall -q -j 0 /tf"),
    ("bytecode", WARN, {"writes_bytecode": False}, "unset PYTHONDONTWRITEBYTECODE"),
    ("GPU", BAD, {"gpus": Gpus((replace(GPU, throttled=0x40),), ())}, "nvidia-smi -lgc"),
    ("GPU", WARN, {"gpus": Gpus((replace(GPU, persistence=False),), ())}, "nvidia-smi -pm 1"),
    ("GPU", UNKNOWN, {"gpus": None}, "NVIDIA_DRIVER_CAPABILITIES"),
    ("GPU processes", WARN, {"gpus": Gpus((GPU,), ("python (pid 7, 400 MiB)",))}, "CUDA_VISIBLE_DEVICES"),
    ("GPU processes", BAD, {"gpus": Gpus((replace(GPU, utilization=90.0),), ())}, "one job per runner"),
    ("GPU sharing", BAD, {"gpus": Gpus((EXCLUSIVE,), ())}, "nvidia-smi -i 0 -c DEFAULT"),
]


@pytest.mark.parametrize(("name", "state", "changes", "fix"), FAULTS)
def test_every_fault_is_graded_and_has_a_fix(name, state, changes, fix):
    finding = found(name, **changes)
    assert finding.state is state
    assert fix in finding.fix


def test_every_check_has_a_fault_in_this_file():
    assert {finding.name for finding in examine(FINE, Limits())} == {name for name, *_ in FAULTS}


def test_a_software_power_cap_is_ok():
    assert found("GPU", gpus=Gpus((replace(GPU, throttled=0x04),), ())).state is State.OK


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (Gpus((GPU,), ()), "without MPS: the GPU switches between the processes of a race at each turn"),
        (Gpus((GPU,), (), has_mps=True), "nvidia-cuda-mps-control -d starts it, echo quit | nvidia-cuda-mps-control"),
        (Gpus((EXCLUSIVE,), (), mps="/tmp/nvidia-mps"), "by MPS, whose pipes are in /tmp/nvidia-mps"),
    ],
)
def test_sharing_a_gpu_is_ok_with_mps_and_without(gpus, words):
    finding = found("GPU sharing", gpus=gpus)
    assert (finding.state, finding.fix) == (State.OK, "")
    assert words in finding.what


@pytest.mark.parametrize(
    ("beside", "state", "words"),
    [
        ((1980, 1975, 1979), State.OK, "1980 and 1979 MHz in blocks of 10 ms"),
        ((1800, 1900, 1980), State.WARN, "lowers the clock of the other side. Clock of a light step beside itself and"),
        ((None, None, None), State.UNKNOWN, "no clock was read"),
    ],
)
def test_power_that_one_side_carries_into_the_turns_of_the_other(monkeypatch, beside, state, words):
    clocks = iter([clock for one in beside for clock in (1980, one)])

    def light(self, other, seconds):
        return Run((1e-3,), 1, clocks=() if None in beside else (next(clocks),))

    monkeypatch.setattr(GpuCheck, "_light", light)
    monkeypatch.setattr(GpuCheck, "__init__", lambda self: None)
    check = GpuCheck()
    check._policy, check._launcher = preset("standard"), SimpleNamespace(notes=[])
    finding = check._power(lambda text: None)
    assert finding.state is state
    assert words in finding.what
    assert ("-lgc" in finding.fix) == (state is State.WARN)


def test_a_machine_without_a_gpu_is_ok():
    assert found("GPU", gpus=None, gpu_driver=False).state is State.OK


def test_the_reason_names_the_hypervisor_that_hides_a_reading():
    assert "the hypervisor hides it" in found("governor", governor=None, hypervisor="KVM").what


def test_the_window_of_the_race_replaces_the_spin_window():
    findings = examine(FINE, Limits(), ObservationWindow(30.0, 0.3))
    assert next(one for one in findings if one.name == "steal").state is State.BAD


def test_findings_are_sorted_worst_first():
    made = [Finding(str(state), state, "") for state in (State.OK, State.WARN, State.BAD, State.UNKNOWN)]
    assert [one.state for one in worst_first(made)] == [State.BAD, State.WARN, State.UNKNOWN, State.OK]
