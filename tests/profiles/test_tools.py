"""The profiler guide's tools on profiles of a device, read by the real xprof, and their failures."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.profiles import Built
from tfbench.policy import preset
from tfbench.profiles import xprof
from tfbench.profiles.folders import read, step_breakdown
from tfbench.profiles.xprof import kernel_stats, memory_profile, op_stats, overview
from tfbench.report import profile
from tfbench.session.profiling import device_facts
from tfbench.untrusted import render_json

POLICY = preset("standard")
RECORDED = Path(__file__).parent / "data" / "gpu-kernels.csv"
H200 = RECORDED.parent / "h200-float16-product.xplane.pb.gz"
GPU = {
    "device_vendor": "Nvidia",
    "compute_cap_major": 8,
    "compute_cap_minor": 0,
    "clock_rate": 1_410_000,
    "core_count": 108,
    "memory_bandwidth": 1_555_000_000_000,
    "memory_size": 42_505_273_344,
}
HALF = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"


def recorded():
    """A profile of the kernels of data/gpu-kernels.csv, one after the other on a stream."""
    built = Built("recorded")
    built.steps(1, 100_000)
    device = built.plane("/device:GPU:0", **GPU)
    stream = built.line(device, "Stream #20(Compute)")
    rows = list(csv.DictReader(RECORDED.read_text().splitlines()))
    time = 10.0
    for row in rows:
        count, total = int(row["count"]), float(row["total_ms"]) * 1000
        for _ in range(count):
            built.event(
                device, stream, row["kernel"], time, total / count,
                hlo_op=row["op"], hlo_module="jit_compiled", tf_op=row["op"], kernel_details=row["details"],
            )  # fmt: skip
            time += total / count
    return built, rows


def training(kernel=HALF, steps=5):
    """A profile of steps on a GPU: a product, an activation, a copy and an allocation each."""
    built = Built("training")
    host, python = built.steps(steps)
    device = built.plane("/device:GPU:0", **GPU)
    stream, copies = built.line(device, "Stream #20(Compute)"), built.line(device, "Stream #21(MemcpyH2D)")
    details = "regs:128 static_shared:0 dynamic_shared:36864 grid:64,1,1 block:128,1,1 occ_pct:25"
    memory = {
        "bytes_reserved": 0, "bytes_available": 40 << 30, "fragmentation": 0.125, "peak_bytes_in_use": 9 << 20,
        "requested_bytes": 4 << 20, "allocation_bytes": 4 << 20, "tf_op": "model/dense/MatMul", "shape": "[1024,1024]",
        "data_type": 1, "region_type": "output", "allocator_name": "GPU_0_bfc",
    }  # fmt: skip
    for number in range(steps):
        at = number * 1000
        built.event(
            host, python, "MemoryAllocation", at + 5, 0, bytes_allocated=8 << 20, address=7, step_id=number, **memory
        )
        built.event(host, python, "cuLaunchKernel", at + 10, 8, correlation_id=2 * number + 1, device_id=0)
        built.event(host, python, "cuLaunchKernel", at + 20, 8, correlation_id=2 * number + 2, device_id=0)
        built.event(
            device, stream, kernel, at + 50, 400,
            correlation_id=2 * number + 1, tf_op="model/dense/MatMul:MatMul", kernel_details=details,
        )  # fmt: skip
        built.event(
            device, stream, "void Eigen::EigenMetaKernel<relu>", at + 500, 100,
            correlation_id=2 * number + 2, tf_op="model/dense/Relu:Relu", kernel_details=details,
        )  # fmt: skip
        built.event(device, copies, "MemcpyH2D", at + 610, 60, memcpy_details="kind:pageable size:4096 dest:0 async:1")
        built.event(
            host,
            python,
            "MemoryDeallocation",
            at + 890,
            0,
            bytes_allocated=4 << 20,
            address=7,
            step_id=number,
            **memory,
        )
    return built


def rows(section, name):
    """The rows of a table as dictionaries."""
    (table,) = [table for table in section.tables if table.name == name]
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def answers(built, folder):
    return xprof.ask(built.write(folder), 60)


class TestRecordedKernels:
    def test_each_kernel_has_its_resources(self, tmp_path):
        built, given = recorded()
        kernels = rows(kernel_stats(answers(built, tmp_path)), "kernels")
        assert [kernel["kernel"] for kernel in kernels] == [row["kernel"] for row in given]
        for kernel, row in zip(kernels, given, strict=True):
            wanted = dict(part.split(":") for part in row["details"].split())
            assert kernel["registers"] == int(wanted["regs"])
            assert kernel["shared memory"] == int(wanted["dynamic_shared"])
            assert (kernel["grid"], kernel["block"]) == (wanted["grid"], wanted["block"])
            assert kernel["occupancy"] == pytest.approx(float(wanted["occ_pct"]) / 100, rel=1e-4)
            assert kernel["occurrences"] == int(row["count"])
            assert kernel["total"] == pytest.approx(float(row["total_ms"]) * 1e-3, rel=1e-3)
        assert [kernel["Tensor Cores used"] for kernel in kernels] == [
            "cutlass" in kernel["kernel"] for kernel in kernels
        ]

    def test_no_kernel_is_lost(self, tmp_path):
        built, _ = recorded()
        found = read(built.write(tmp_path), POLICY)
        sections = {section.tool: section for section in found}
        assert not sections["kernels"].absent
        assert sum(row[-2] for row in sections["kernels"].tables[0].rows) == pytest.approx(38.59e-3, rel=1e-3)


def test_a_profile_of_an_h200_shows_its_tensor_cores(tmp_path):
    """A float16 product, whose kernel xprof does not count among them."""
    (tmp_path / "vm.xplane.pb").write_bytes(gzip.decompress(H200.read_bytes()))
    section = kernel_stats(xprof.ask(tmp_path / "vm.xplane.pb", 60))
    (kernel,) = rows(section, "kernels")
    assert kernel["kernel"].startswith("nvjet_hsh_")
    assert (kernel["Tensor Cores used"], kernel["occurrences"]) == (True, 61)
    assert kernel["total"] / kernel["occurrences"] == pytest.approx(180e-6, rel=0.01)
    assert section.notes == ("kernels on Tensor Cores take 100% of the kernel time",)
    facts = device_facts(step_breakdown([tmp_path / "vm.xplane.pb"], POLICY), 264e-6)  # the median of the race
    assert facts["device_time"] == pytest.approx(180e-6, rel=0.02)
    assert facts["device_share"] == pytest.approx(0.68, abs=0.01)


class TestDevice:
    @pytest.fixture(scope="class")
    def asked(self, tmp_path_factory):
        return answers(training(), tmp_path_factory.mktemp("training"))

    def test_overview(self, asked):
        _, section = overview(asked, ())
        assert [tuple(row.values()) for row in rows(section, "top_ops")] == [
            ("model/dense/MatMul", "MatMul", "device", 0.8),
            ("model/dense/Relu", "Relu", "device", 0.2),
        ]
        *parts, step = rows(section, "breakdown")
        times = {row["part"]: row["time"] for row in parts}
        assert times["device compute"] == pytest.approx(0.5e-3)
        assert sum(times.values()) == pytest.approx(step["time"])
        assert any(note.startswith("hardware: device: Nvidia GPU") for note in section.notes)
        steps = rows(section, "steps")
        assert len(steps) == 5
        assert steps[0]["all"] == pytest.approx(step["time"], rel=0.1)

    def test_ops_with_and_without_idle_time(self, asked):
        _, section = op_stats(asked)
        on_device = [
            (row["type"], row["occurrences"], round(row["self"] * 1e6))
            for row in rows(section, "ops")
            if row["where"] == "device"
        ]
        assert on_device == [("MatMul", 5, 2000), ("Relu", 5, 500)]
        without_idle, with_idle = section.tables
        assert any("IDLE" in row for row in with_idle.rows)
        assert not any("IDLE" in row for row in without_idle.rows)

    def test_memory(self, asked):
        section = memory_profile(asked)
        (allocator,) = rows(section, "allocators")
        assert (allocator["allocator"], allocator["peak"], allocator["lifetime peak"]) == (
            "GPU_0_bfc",
            8 << 20,
            9 << 20,
        )
        assert allocator["fragmentation at the peak"] == pytest.approx(0.125)
        assert allocator["capacity"] == (40 << 30) + (8 << 20)
        timeline, held = rows(section, "timeline"), rows(section, "at_peak")
        assert len(timeline) == 10
        assert (timeline[0]["activity"], timeline[0]["bytes"]) == ("allocation", 4 << 20)
        assert (held[0]["op"], held[0]["shape"], held[0]["bytes"]) == ("model/dense/MatMul", "[1024,1024]", 4 << 20)
        assert sum(row["bytes"] for row in held) == allocator["peak"]

    def test_time_on_the_device_has_categories(self, tmp_path):
        steps = step_breakdown([training().write(tmp_path)], POLICY)
        spent = {
            str(key.category): round(part.seconds * 1e6) for key, part in steps.parts.items() if key.kind != "Relu"
        }
        assert spent == {"device compute": 400, "device copies": 60, "kernel launch": 16}

    def test_device_facts_of_a_step(self, tmp_path):
        facts = device_facts(step_breakdown([training().write(tmp_path)], POLICY), 900e-6)
        assert facts["device_time"] == pytest.approx(500e-6)
        assert facts["copy_time"] == pytest.approx(60e-6)
        assert facts["device_share"] == pytest.approx(560 / 900)
        alone = Built()
        alone.steps()
        assert device_facts(step_breakdown([alone.write(tmp_path / "alone")], POLICY), 1e-3) == {}


class TestFailures:
    def test_empty_device_planes_name_the_privileges(self, tmp_path):
        built = Built()
        built.steps()
        built.line(built.plane("/device:GPU:0", **GPU), "Stream #1")
        absent = sections(built, tmp_path)["kernels"].absent
        assert "the device's part of the profile is empty" in absent
        assert "NVreg_RestrictProfilingToAdminUsers=0" in absent
        assert "--cap-add=SYS_ADMIN" in absent

    def test_errors_of_the_profiler_are_reported(self, tmp_path):
        built = training()
        built.space.errors.append("CUPTI could not be loaded or symbol could not be found.")
        assert "CUPTI could not be loaded" in sections(built, tmp_path)["errors"].notes[0]

    def test_without_step_markers_the_tools_that_need_them_report_it_and_the_others_go_on(self, tmp_path):
        built = training(steps=0)
        host = built.space.planes[0]
        built.event(host, host.lines[0], "Iterator::Root", 0, 900, id=1)
        built.event(host, host.lines[0], "Iterator::Root::Map", 0, 900, id=2, parent_id=1)
        built.event(
            built.space.planes[1], built.space.planes[1].lines[0], HALF, 0, 10, kernel_details="regs:1 occ_pct:1"
        )
        found = sections(built, tmp_path)
        for tool in ("overview", "input"):
            assert "no step marker" in found[tool].absent
        assert "bottleneck: Map" in found["tf_data"].notes[1]
        assert not found["kernels"].absent

    def test_without_xprof_the_other_tools_go_on(self, tmp_path):
        path = training().write(tmp_path)
        missing = xprof.Answers(
            absent="xprof is not installed (ModuleNotFoundError); pip install 'pytest-tfbench[profile]'"
        )
        found = read(path, POLICY, lambda file, seconds: missing)
        absent = {section.tool: section.absent for section in found if section.absent}
        assert set(absent) == {"overview", "input", "tf_data", "ops", "kernels", "memory"}
        assert "pip install 'pytest-tfbench[profile]'" in absent["overview"]

    def test_an_unknown_table_costs_one_section(self, tmp_path):
        strange = xprof.Answers({xprof.KERNELS: [{"cols": [{"id": "other"}], "rows": [{"c": [{"v": 1}]}]}]})
        found = read(training().write(tmp_path), POLICY, lambda file, seconds: strange)
        assert "xprof's answer has an unknown format" in {s.tool: s for s in found}["kernels"].absent


class TestAsking:
    def path(self, tmp_path):
        return training().write(tmp_path)

    def test_a_missing_xprof_is_reported_with_the_fix(self, tmp_path, monkeypatch):
        (tmp_path / "xprof").mkdir()
        (tmp_path / "xprof" / "__init__.py").write_text("raise ImportError('no module named xprof')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert xprof.ask(self.path(tmp_path), 60).absent == (
            "xprof is not installed (ImportError: no module named xprof); pip install 'pytest-tfbench[profile]'"
        )

    def test_a_crash_of_xprof_stays_in_its_process(self, tmp_path, monkeypatch):
        (tmp_path / "xprof").mkdir()
        (tmp_path / "xprof" / "__init__.py").write_text("import os; os._exit(7)")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert xprof.ask(self.path(tmp_path), 60).absent == "xprof failed while it read the profile (exit code 7)"

    def test_an_xprof_that_takes_too_long_is_stopped(self, tmp_path):
        def late(*arguments, **keywords):
            raise subprocess.TimeoutExpired(arguments, keywords["timeout"])

        assert xprof.ask(self.path(tmp_path), 5, late).absent == "xprof did not read the profile within 5 s"

    def test_the_error_of_a_tool_is_in_the_answer(self, tmp_path):
        answer = tmp_path / "answer.json"
        order = {"file": str(tmp_path / "none.xplane.pb"), "tools": ["overview_page"], "answer": str(answer)}
        subprocess.run(
            [sys.executable, "-m", "tfbench.profiles.xprof", json.dumps(order)], check=True, capture_output=True
        )
        assert json.loads(answer.read_text())["tools"]["overview_page"]["error"]

    def test_xprof_leaves_no_files_beside_the_profile(self, tmp_path):
        path = self.path(tmp_path / "run")
        xprof.ask(path, 60)
        assert [one.name for one in path.parent.iterdir()] == [path.name]


class TestTables:
    @pytest.fixture(scope="class")
    def read_once(self, tmp_path_factory):
        return read(training().write(tmp_path_factory.mktemp("training")), POLICY)

    def test_json(self, read_once):
        content = json.loads(render_json(profile.as_json("f.py::test_a", "contender", read_once)))
        assert content["schema"] == "tfbench-profile/1"
        assert {section["tool"] for section in content["sections"]} >= {"overview", "kernels", "memory"}


def sections(built, folder):
    return {section.tool: section for section in read(built.write(folder), POLICY)}
