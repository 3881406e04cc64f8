"""The steps of profiles with a device, and xprof's own tools on the folders that tfbench keeps."""

import gzip
from pathlib import Path

import pytest

from tests.fakes.alone import run_alone
from tests.fakes.profiles import Built
from tfbench import cli
from tfbench.errors import ProfileError
from tfbench.profiles.folders import step_breakdown
from tfbench.report.profile import content_of, one_side
from tfbench.report.screen import Screen
from tfbench.session.profiling import device_facts

H200 = Path(__file__).parent / "data" / "h200-float16-product.xplane.pb.gz"
GPU = {
    "device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0, "clock_rate": 1_410_000,
    "core_count": 108, "memory_bandwidth": 1_555_000_000_000, "memory_size": 42_505_273_344,
}  # fmt: skip


def training(steps=5):
    """A profile of steps on a GPU: a product, an activation and a copy each."""
    built = Built("training")
    host, python = built.steps(steps)
    device = built.plane("/device:GPU:0", **GPU)
    stream, copies = built.line(device, "Stream #20(Compute)"), built.line(device, "Stream #21(MemcpyH2D)")
    for at in range(0, 1000 * steps, 1000):
        for op, start, length in (("MatMul", 50, 400), ("Relu", 500, 100)):
            of = {"correlation_id": at + start}
            built.event(host, python, "cuLaunchKernel", at + start // 10, 8, device_id=0, **of)
            built.event(device, stream, f"kernel of {op}", at + start, length, tf_op=f"a/{op}:{op}", **of)
        built.event(device, copies, "MemcpyH2D", at + 610, 60, memcpy_details="kind:pageable size:4096 dest:0 async:1")
    return built


TOOLS = ["overview_page", "framework_op_stats", "trace_viewer"]
PROGRAM = """
import json, sys
from xprof.convert import raw_to_tool_data
for tool in sys.argv[2:]:
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {"use_saved_result": False})
    print("answer", json.dumps(json.loads(data)))
"""


@pytest.mark.slow
def test_the_tools_of_xprof_read_a_kept_profile(tmp_path):
    file = training().write(tmp_path / "plugins" / "profile" / "launch-1")
    shown = run_alone(PROGRAM, file, *TOOLS, cwd=file.parent)  # it may crash
    overview, ops, trace = (line for line in shown.splitlines() if line.startswith("answer "))
    assert "stepTimeMs" in overview
    assert "Nvidia GPU" in overview
    assert "a/MatMul" in ops
    assert "cuLaunchKernel" in trace


def test_a_profile_of_an_h200_shows_its_device_time(tmp_path):
    (tmp_path / "vm.xplane.pb").write_bytes(gzip.decompress(H200.read_bytes()))
    facts = device_facts(step_breakdown([tmp_path / "vm.xplane.pb"]), 264e-6)  # the median of the race
    assert facts["device_time"] == pytest.approx(180e-6, rel=0.02)
    assert facts["device_share"] == pytest.approx(0.68, abs=0.01)


def test_time_on_the_device_has_categories(tmp_path):
    steps = step_breakdown([training().write(tmp_path)])
    spent = {str(key.category): round(part.seconds * 1e6) for key, part in steps.parts.items() if key.kind != "Relu"}
    assert spent == {"device compute": 400, "device copies": 60, "kernel launch": 16}


def test_device_facts_of_a_step(tmp_path):
    facts = device_facts(step_breakdown([training().write(tmp_path)]), 900e-6)
    assert facts["device_time"] == pytest.approx(500e-6)
    assert facts["copy_time"] == pytest.approx(60e-6)
    assert facts["device_share"] == pytest.approx(560 / 900)
    alone = Built()
    alone.steps()
    assert device_facts(step_breakdown([alone.write(tmp_path / "alone")]), 1e-3) == {}


def test_an_empty_part_of_a_device_names_the_privileges(tmp_path):
    built = Built()
    built.steps()
    built.line(built.plane("/device:GPU:0", **GPU), "Stream #1")
    with pytest.raises(ProfileError, match=r"part of the profile is empty.*NVreg_.*=0.*--cap-add=SYS_ADMIN"):
        step_breakdown([built.write(tmp_path)])


def test_the_steps_of_one_side_are_a_table_and_json(tmp_path, capsys):
    steps = step_breakdown([training().write(tmp_path)])
    content = content_of(steps)
    assert content["step"] == pytest.approx(900e-6)
    assert next(iter(content["time"])) == "device compute"
    Screen().print(one_side("test_a, contender", steps))
    text = capsys.readouterr().out
    assert "0.0% of a step waits for input" in text
    assert "device copies" in text


@pytest.mark.parametrize("runs", [1, 3])
def test_the_log_folder_of_another_program_is_read_under_any_title(tmp_path, capsys, runs):
    for number in range(runs):
        training().write(tmp_path / "logs" / "plugins" / "profile" / f"2026_11_30_{number}")
    assert cli.main(["explain", "my training", "--profile", str(tmp_path / "logs")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"my training: {tmp_path / 'logs'} 0.0% of a step waits for input")
    assert "device compute" in shown
