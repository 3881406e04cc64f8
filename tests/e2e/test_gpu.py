"""The GPU path on a machine without a GPU: missing devices, and processes that cannot be forked."""

import argparse
import json
import os
from pathlib import Path

import pytest

from tests.e2e.project import Project
from tests.fakes.nvml import Device, Replay, library
from tfbench.commands import doctor
from tfbench.doctor.checks import GpuCheck, State
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Nvml
from tfbench.gpus.selection import has_driver
from tfbench.plugin.options import available_cpus
from tfbench.policy import preset
from tfbench.race.lanes import processors


@pytest.mark.skipif(has_driver(), reason="there is a GPU here")
def test_the_check_reports_a_machine_without_a_gpu(project: Project):
    done = project.tfbench("doctor", "--gpu")
    assert done.returncode == 3
    assert "no GPU here: no NVIDIA driver was found" in done.stdout


OPENED = Path("/dev/nvidia-tfbench-test")
"""Stand-in for a file of the driver, which is open as soon as CUDA is initialized."""


@pytest.mark.skipif(not os.access("/dev", os.W_OK), reason="only root may put a file there")
def test_with_cuda_initialized_launches_are_spawned_with_a_note(project: Project):
    project.write(f"""
        import os

        from tests.fakes.steps import taking

        HELD = os.open({str(OPENED)!r}, os.O_RDONLY)
        PARENT = os.getppid()

        def test_product(bench):
            assert os.getppid() == PARENT  # no child of the process that opened it
            bench(taking(bench, 1e-5))
    """)
    OPENED.touch()
    try:
        done = project.run()
    finally:
        OPENED.unlink()
    assert done.code == 0, done.output
    assert "its launches are started anew instead of forked" in " ".join(done.output.split())
    (variant_result,) = done.report["variant_results"]
    assert variant_result["launches"] >= 3


WATCHED = """
    import sys

    from tests.fakes.nvml import Device, library

    # In one of the first launches heat holds the clock down.
    sys.modules["pynvml"] = library(Device(reasons=[0, 0, 0, 0x40, 0]))
"""


@pytest.mark.slow
def test_a_run_monitors_its_gpu(project: Project):
    """All but the GPU is real: the driver follows a script, and the steps run on the CPU, without TensorFlow."""
    project.write(WATCHED, "conftest.py")
    project.write("""
        import os

        def test_sum(bench):
            assert os.environ["CUDA_VISIBLE_DEVICES"].startswith("GPU-1a2b3c4d")
            bench(sum, range(300_000))  # so that a launch has readings between its blocks
    """)
    done = project.run("--device", "gpu:0", "--save-baseline", "watched")
    assert done.code == 0, done.output
    assert "1 launch was discarded: the GPU lowered its clock (heat, by the hardware)" in " ".join(done.output.split())
    side = done.report["sides"]["contender"]
    (gpu,) = side["gpus"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert sum(side["discarded"].values()) == 1
    assert gpu["launches"]
    assert all(launch["reasons"] == 0 for launch in gpu["launches"])
    (variant_result,) = done.report["variant_results"]
    assert variant_result["facts"]["gpu_clock"] == 1980
    # Another limit of power, and saved times say nothing any more.
    project.write(WATCHED.replace("Device(", "Device(power_limit=500_000, "), "conftest.py")
    again = project.run("--device", "gpu:0", "--baseline", "watched", "--replay", "never")
    assert again.outcomes() == {"test_sum": "incomparable"}
    assert "GPU 0 power limit 700 W there, 500 W here" in again.reason("test_sum")


@pytest.mark.alone
@pytest.mark.tensorflow
def test_the_gpu_check_works_on_a_cpu():
    """Detection, profiles, races and an injected slowdown run the same code as on a GPU, on the CPU."""
    check = GpuCheck(GpuSession("cpu", (), preset("quick")), processors(None, available_cpus()), preset("quick"), "CPU")
    try:
        found = {finding.name: finding for finding in check.findings(lambda text: None)}
    finally:
        check.close()
    assert list(found) == ["devices", "TensorFlow", "CUPTI", "A/A", "10% slower"]
    assert found["TensorFlow"].state is State.OK
    assert "device events" in found["CUPTI"].what
    assert found["A/A"].state is not State.BAD, found["A/A"]
    assert found["10% slower"].what.startswith("regressed"), found["10% slower"]


@pytest.mark.tensorflow
def test_a_failed_check_names_the_missing_part_and_keeps_the_recording_of_the_driver(monkeypatch, tmp_path, capsys):
    """The scripted driver has GPUs, and TensorFlow sees none of them."""
    monkeypatch.setattr(doctor, "has_driver", lambda: True)
    monkeypatch.setattr(doctor, "Nvml", lambda: Nvml(library(Device(persistence=0))))
    parser = argparse.ArgumentParser()
    doctor.add_doctor(parser)
    kept = tmp_path / "gpus.json"
    assert doctor.run_doctor(parser.parse_args(["--gpu", "--device", "gpu:0", "--record", str(kept)])) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "devices: 0: NVIDIA H100 80GB HBM3, driver 570.124.06" in printed
    assert "sudo nvidia-smi -pm 1" in printed
    assert "sees no GPU" in printed
    assert "tensorflow[and-cuda]" in printed
    assert "CUPTI" not in printed  # needs what is missing
    (gpu,) = Replay(json.loads(kept.read_text())).identities()
    assert gpu.name == "NVIDIA H100 80GB HBM3"
