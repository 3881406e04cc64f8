"""Each fault of a machine is graded and has a fix, and a missing reading is unknown."""

from dataclasses import replace

import pytest

from tfbench.doctor.checks import CHECKS, Counters, Finding, Gpus, Limits, Machine, State, examine, worst_first
from tfbench.gpus.nvml import GpuReading, Identity

GIB = 1 << 30
GPU = Identity(0, "GPU-1", "H200", "580.1", "13.0", persistence=True, compute_mode="default", clock_limit=1980.0)
READING = GpuReading(sm_clock=1980.0, processes=frozenset(), computing=frozenset())
FINE = Machine(
    cpus=(0, 1), worker=1, online=2, others=0.0, share=0.99, spin=Counters(0.5, 0.0, 0.0, 0),
    governor="performance", siblings=(1,), limits=Limits(), counters=Counters(1000.0, 0.0, 0.0, 0),
    memory=20 * GIB, gpus=Gpus(((GPU, READING),)),
)  # fmt: skip


def gpus(reading=None, **changes):
    return {"gpus": Gpus(((replace(GPU, **changes), replace(READING, **(reading or {}))),))}


def found(name, **changes):
    findings = {finding.name: finding for finding in examine(replace(FINE, **changes))}
    return findings[name]


def test_a_quiet_machine_has_no_findings_but_ok():
    findings = examine(FINE)
    assert [finding for finding in findings if finding.state is not State.OK] == []
    assert len({finding.name for finding in findings}) == len(CHECKS)


def test_a_missing_reading_is_unknown_and_never_bad():
    states = [finding.state for finding in examine(Machine((0, 1), 1))]
    assert State.BAD not in states
    assert states.count(State.UNKNOWN) == 8


BAD, WARN, UNKNOWN = State.BAD, State.WARN, State.UNKNOWN
FAULTS = [
    ("processors", BAD, {"cpus": (0,)}, "at least two processors"),
    ("load", WARN, {"others": 0.6}, "end other programs"),
    ("load", BAD, {"others": 1.9}, "end other programs"),
    ("worker's processor", WARN, {"share": 0.9}, "--cpus"),
    ("worker's processor", BAD, {"share": 0.5}, "isolcpus"),
    ("steal", WARN, {"spin": Counters(0.5, 0.025)}, "burstable"),
    ("steal", BAD, {"spin": Counters(0.5, 0.1)}, "burstable"),
    ("governor", WARN, {"governor": "powersave"}, "cpupower frequency-set -g performance"),
    ("SMT siblings", WARN, {"siblings": (0, 1)}, "smt/control"),
    ("heat", BAD, {"spin": Counters(0.5, 0.0, 0.0, 3)}, "cooling"),
    ("heat", WARN, {"counters": Counters(heat=7)}, "cap the clock"),
    ("processor quota", WARN, {"limits": Limits(quota=1.5)}, "raise the limit"),
    ("processor quota", BAD, {"limits": Limits(quota=0.5)}, "raise the limit"),
    ("processor quota", BAD, {"spin": Counters(0.5, 0.0, 0.1)}, "raise the limit"),
    ("memory", WARN, {"memory": 3 * GIB}, "--policy quick"),
    ("memory", BAD, {"limits": Limits(memory_left=GIB // 2)}, "raise the container's limit"),
    ("GPU", BAD, gpus({"reasons": 0x40}), "nvidia-smi -lgc"),
    ("GPU", WARN, gpus(persistence=False), "nvidia-smi -pm 1"),
    ("GPU", UNKNOWN, {"gpus": Gpus(error="NVML does not answer")}, ""),
    ("GPU", State.OK, gpus({"reasons": 0x04}), ""),  # a cap of power by software
    ("GPU", State.OK, {"gpus": None}, ""),
    ("GPU sharing", WARN, gpus({"processes": frozenset({7})}), "CUDA_VISIBLE_DEVICES"),
    ("GPU sharing", BAD, gpus({"computing": frozenset({7})}), "one job per runner"),
    ("GPU sharing", BAD, gpus(compute_mode="exclusive process"), "nvidia-smi -i 0 -c DEFAULT"),
]


@pytest.mark.parametrize(("name", "state", "changes", "fix"), FAULTS)
def test_every_fault_is_graded_and_has_a_fix(name, state, changes, fix):
    finding = found(name, **changes)
    assert finding.state is state
    assert fix in finding.fix


def test_every_check_has_a_fault_in_this_file():
    assert {finding.name for finding in examine(FINE)} == {name for name, *_ in FAULTS}


def test_the_window_of_the_race_replaces_the_spin_window():
    findings = examine(FINE, Counters(30.0, 9.0))
    assert next(one for one in findings if one.name == "steal").state is State.BAD


def test_findings_are_sorted_worst_first():
    made = [Finding(str(state), state, "") for state in (State.OK, State.WARN, State.BAD, State.UNKNOWN)]
    assert [one.state for one in worst_first(made)] == [State.BAD, State.WARN, State.UNKNOWN, State.OK]
