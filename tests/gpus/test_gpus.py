"""GPUs without a GPU: readings, selection, locks and disturbances, with a scripted driver."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.nvml import UUIDS, Beats, Device, library
from tfbench.errors import GpuError, UsageError
from tfbench.gpus.monitor import GpuMonitor, GpuSession, disturbance, family, foreign
from tfbench.gpus.nvml import GpuObservationWindow, GpuReading, Nvml
from tfbench.gpus.selection import choose, doubtful_order, environment, has_driver, lock, parse_device, visible
from tfbench.model import Case
from tfbench.policy import preset
from tfbench.race.workers import worker_environment
from tfbench.sides.spec import Side

POLICY = preset("quick")
OURS = frozenset({100, 101})
NOBODY: frozenset[int] = frozenset()


class TestReading:
    def test_the_identity_of_a_device(self):
        (gpu,) = Nvml(library(Device())).identities()
        assert (gpu.uuid, gpu.name, gpu.driver, gpu.cuda) == (UUIDS[0], "NVIDIA H100 80GB HBM3", "570.124.06", "12.8")
        assert (gpu.power_limit, gpu.clock_limit, gpu.pcie, gpu.mig, gpu.ecc) == (700, 1980, "gen 5 x16", False, True)
        assert gpu.as_machine()["GPU 0 power limit"] == "700 W"

    def test_another_gpu_of_the_same_model_is_another_machine(self):
        """So it has other saved times, and its history is a series of its own."""
        (first,), (second,) = (Nvml(library(Device(uuid))).identities() for uuid in UUIDS)
        differing = set(first.as_machine().items()) ^ set(second.as_machine().items())
        assert differing == {("GPU 0 UUID", uuid) for uuid in UUIDS}

    def test_values_that_a_driver_does_not_report_are_none(self):
        asked = ("nvmlDeviceGetVbiosVersion", "nvmlDeviceGetMigMode", "nvmlDeviceGetEnforcedPowerLimit")
        asked += ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetComputeRunningProcesses_v3")
        nvml = Nvml(library(Device(temperature=None), missing=asked))
        (gpu,) = nvml.identities()
        assert (gpu.vbios, gpu.mig, gpu.power_limit) == (None, None, None)
        assert "GPU 0 power limit" not in gpu.as_machine()
        reading = nvml.reading(gpu)
        assert (reading.energy, reading.processes, reading.temperature) == (None, None, None)

    def test_the_older_name_of_the_clock_reasons_is_tried(self):
        nvml = Nvml(library(Device(reasons=[0x20]), missing=("nvmlDeviceGetCurrentClocksEventReasons",)))
        (gpu,) = nvml.identities()
        assert nvml.reading(gpu).reasons == 0x20

    def test_processes_that_compute(self):
        nvml = Nvml(library(Device(computing=[(7,), (7, 9), ()])))
        (gpu,) = nvml.identities()
        assert [nvml.reading(gpu).computing for _ in range(3)] == [{7}, {7, 9}, set()]
        nvml = Nvml(library(Device()))
        assert nvml.reading(gpu).computing is None

    def test_parts_of_a_divided_gpu(self):
        nvml = Nvml(library(Device(mig=1, parts=("MIG-aa", "MIG-bb"), processes=[(7,)]), Device(UUIDS[1])))
        first, second, whole = nvml.identities()
        assert [gpu.place for gpu in (first, second, whole)] == ["0.0", "0.1", "1"]
        assert (second.uuid, second.name, second.memory) == ("MIG-bb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 << 30)
        reading = nvml.reading(second)
        assert (reading.sm_clock, reading.processes) == (1980, {7})
        assert reading.energy is None  # the counter covers all parts together
        (one,) = Nvml(library(Device(mig=1))).identities()
        assert one.place == "0"  # MIG mode, but not divided yet

    def test_a_missing_driver_is_reported_with_the_fix(self):
        with pytest.raises(GpuError, match=r"there is no NVIDIA driver here.*--gpus all"):
            Nvml(library())

    def test_a_missing_library_is_reported_with_the_fix(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pynvml", None)
        with pytest.raises(GpuError, match=r"nvidia-ml-py is not installed.*pip install nvidia-ml-py"):
            Nvml()

    def test_a_lost_device_is_an_error(self):
        nvml = Nvml(library(Device(gone=1)))
        (gpu,) = nvml.identities()
        nvml.reading(gpu)
        with pytest.raises(GpuError, match="GPU 0 does not answer any more"):
            nvml.reading(gpu)


class TestChoosing:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("all", ("all", ())),
            ("gpu", ("gpu", ())),
            ("gpu:0,2", ("gpu", ("0", "2"))),
        ],
    )
    def test_values_of_the_option_are_parsed(self, text, found):
        assert parse_device(text) == found

    @pytest.mark.parametrize("text", ["tpu", "cpu:0", "gpu:", "gpu:first", "gpu:0,0", "gpu:-1", "gpu:0;rm"])
    def test_an_invalid_value_is_a_usage_error(self, text):
        with pytest.raises(UsageError, match="--device"):
            parse_device(text)

    def test_gpus_are_found_by_index_and_by_the_start_of_a_uuid(self):
        there = Nvml(library(Device(), Device(UUIDS[1]))).identities()
        assert [gpu.index for gpu in choose(there, ["1"])] == [1]
        assert [gpu.index for gpu in choose(there, ["GPU-9f8e", "0"])] == [1, 0]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("", ()),
            ("-1", ()),
            ("1, 0", ("1", "0")),
            ("2,-1,3", ("2",)),
            ("GPU-1a2b,MIG-9", ("GPU-1a2b", "MIG-9")),
        ],
    )
    def test_the_environment_is_read_as_cuda_reads_it(self, text, found):
        assert visible({"CUDA_VISIBLE_DEVICES": text}) == found
        assert visible({}) is None

    def test_indices_of_different_models_give_a_note(self):
        unlike = Nvml(library(Device(), Device(UUIDS[1], name="Tesla T4"))).identities()
        assert "set it, or name them by UUID" in doubtful_order(unlike, ["1"], {})
        assert not doubtful_order(unlike, ["1"], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        assert not doubtful_order(unlike, [UUIDS[1]], {})
        assert not doubtful_order(unlike[:1], ["0"], {})

    @pytest.mark.parametrize(
        ("names", "words"), [(["7"], "no GPU here"), (["GPU-"], "more than one"), (["0", UUIDS[0]], "twice")]
    )
    def test_a_missing_ambiguous_or_repeated_gpu_is_a_usage_error(self, names, words):
        there = Nvml(library(Device(), Device(UUIDS[1]))).identities()
        with pytest.raises(UsageError, match=words):
            choose(there, names)

    def test_a_divided_gpu_is_selected_by_its_parts(self):
        there = Nvml(library(Device(mig=1, parts=("MIG-aa", "MIG-bb")))).identities()
        with pytest.raises(UsageError, match="select a part by its UUID"):
            choose(there, ["0"])
        (part,) = choose(there, ["MIG-b"])
        assert environment([part])["CUDA_VISIBLE_DEVICES"] == "MIG-bb"

    def test_workers_see_the_named_gpus_and_do_not_take_all_memory(self, monkeypatch):
        (gpu,) = Nvml(library(Device())).identities()
        assert environment([gpu]) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": UUIDS[0]}
        side = Side("contender", "python", Path("/"), env={"OTHER": "1"})
        monkeypatch.setattr("tfbench.race.workers.has_driver", lambda: True)
        assert worker_environment(os.environ, side, {})["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
        assert worker_environment(os.environ, side, {})["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
        monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH")
        monkeypatch.setattr("tfbench.race.workers.has_driver", lambda: False)
        assert "TF_FORCE_GPU_ALLOW_GROWTH" not in worker_environment(os.environ, side, {})


class TestLocks:
    HOLD = "import sys, time; sys.path.insert(0, {root!r}); from tests.gpus.test_gpus import held; held({folder!r})"

    def test_one_run_at_a_time_across_processes(self, tmp_path):
        gpus = Nvml(library(Device())).identities()
        root = str(Path(__file__).resolve().parents[2])
        program = self.HOLD.format(root=root, folder=str(tmp_path))
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(GpuError, match=r"another run measures on GPU 0 .*: wait for it"):
                lock(gpus, tmp_path)
            other.kill()
        lock(gpus, tmp_path).close()  # the lock of a process that died is free

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(GpuError, match="file/locks cannot hold the locks of GPUs: Not a directory"):
            lock(Nvml(library(Device())).identities(), tmp_path / "file/locks")


def held(folder):
    """Hold the lock of the scripted GPU until this process is killed."""
    locks = lock(Nvml(library(Device())).identities(), Path(folder))
    print("held", flush=True)
    sys.stdin.read()
    locks.close()


def observed(*clocks, ends=345, reasons=0, processes=OURS):
    """Return a launch with these clocks, before and after which the GPU rests without the driver's bit for it."""
    reading = partial(GpuReading, reasons=reasons, processes=frozenset(processes))
    return GpuObservationWindow(tuple(reading(sm_clock=clock) for clock in (ends, *clocks, ends)))


class TestDisturbance:
    def cause(self, window, earlier=(), before=NOBODY, last=None):
        return disturbance(window, OURS, before, earlier, last)

    @pytest.mark.parametrize(
        ("bit", "words"),
        [(0x08, "hardware slowdown"), (0x20, "heat"), (0x40, "heat, by the hardware"), (0x80, "power brake")],
    )
    def test_a_lowered_clock_disturbs(self, bit, words):
        assert words in self.cause(observed(1980, reasons=bit))

    def test_a_software_power_cap_is_normal_and_its_clock_is_compared(self):
        usual = [observed(1500, reasons=0x04)] * 3
        assert self.cause(observed(1300, reasons=0x04), usual) == ""
        assert "ran at 900 MHz, and at 1500 MHz in other launches" in self.cause(observed(900, reasons=0x04), usual)

    def test_idle_readings_are_excluded_from_the_clock(self):
        resting, busy = GpuReading(sm_clock=210, reasons=0x01), GpuReading(sm_clock=1980)
        window = GpuObservationWindow((busy, resting, busy, busy, busy))
        assert window.sm_clock == 1980
        assert self.cause(window, [observed(1980)]) == ""
        assert GpuObservationWindow((busy, resting, busy)).sm_clock is None

    def test_readings_before_and_after_the_blocks_are_no_part_of_the_clock(self):
        """An idle H100 reports its lowest or its highest clock, and its bit of idleness comes late."""
        assert observed(1400, 1420).sm_clock == observed(1400, 1420, ends=1980).sm_clock == 1410
        assert self.cause(observed(1400, 1420), [observed(1410, ends=1980)]) == ""
        assert observed().sm_clock is None

    def test_a_second_launch_at_another_clock_counts(self):
        cold, warm = [observed(1980)] * 3, observed(1200)
        assert "ran at 1200 MHz" in self.cause(warm, cold, last=cold[-1])
        assert self.cause(observed(1190), cold, last=warm) == ""

    def test_heat_between_two_readings_disturbs(self):
        def heated(seconds):
            return GpuObservationWindow(
                (GpuReading(seconds=10.0, too_hot=5.0), GpuReading(seconds=11.0, too_hot=5.0 + seconds))
            )

        assert self.cause(heated(0.01)) == ""
        assert "lowered the GPU's clock for 10% of the launch" in self.cause(heated(0.1))
        assert heated(0.1).as_json()["too_hot"] == pytest.approx(0.1)
        assert GpuObservationWindow((GpuReading(seconds=1.0),)).too_hot is None

    def test_another_process_disturbs(self):
        assert "pid 777" in self.cause(observed(1980, processes={100, 777}))

    def test_an_idle_process_does_not_disturb(self):
        """Such as a notebook that holds a CUDA context."""

        def window(*computing):
            return GpuObservationWindow(
                tuple(GpuReading(processes=frozenset({100, 777}), computing=frozenset(pids)) for pids in computing)
            )

        assert self.cause(window({100}, {100}, {100})) == ""
        assert self.cause(window({777}, {100}, {100})) == ""  # that was before
        assert "pid 777" in self.cause(window({100}, {777}, set()))

    def test_in_a_container_only_processes_from_before_are_foreign(self):
        inside = observed(1980, processes={50_001, 50_002})
        assert foreign(inside, OURS, NOBODY) == set()
        assert foreign(inside, OURS, frozenset({50_001})) == {50_001}

    def test_an_error_of_the_driver_and_a_lost_device_disturb(self):
        assert "XID 79" in self.cause(replace(observed(1980), xids=(79,)))
        assert (
            self.cause(replace(observed(1980), lost="GPU 0 does not answer any more"))
            == "GPU 0 does not answer any more"
        )


def gpu_monitor_of(device, beats=3, **keywords):
    nvml = Nvml(library(device, **keywords))
    beat = Beats(beats)
    return GpuMonitor(nvml.identities(), nvml, POLICY, lambda: OURS, beat), beat


class TestGuard:
    def watched(self, gpu_monitor, beat, race="a race"):
        with gpu_monitor.watching(race) as launch_monitor:
            assert beat.done.wait(10)
        beat.left = 3
        beat.done.clear()
        return launch_monitor

    def test_it_looks_before_during_and_after(self):
        device = Device(energy=[1000, 1000, 2000, 3000, 4000, 9000])
        gpu_monitor, beat = gpu_monitor_of(device)
        launch_monitor = self.watched(gpu_monitor, beat)
        assert launch_monitor.cause == ""
        assert device.readings == 1 + 5  # one before anything ran
        assert launch_monitor.energy == pytest.approx(8.0)
        (reported,) = gpu_monitor.as_json()["gpus"]
        assert reported["uuid"] == UUIDS[0]
        assert reported["launches"] == [
            {"sm_clock": 1980, "power": 350, "temperature": 45, "reasons": 0, "too_hot": 0, "capped": 0}
        ]

    def test_what_happens_in_between_is_seen(self):
        gpu_monitor, beat = gpu_monitor_of(Device(reasons=[0, 0, 0, 0x40, 0]))
        assert "heat" in self.watched(gpu_monitor, beat).cause

    def test_a_launch_that_did_not_count_is_no_measure_of_the_others(self):
        device = Device(clocks=[1980] * 6 + [900] * 5 + [1980] * 5)
        gpu_monitor, beat = gpu_monitor_of(device)
        causes = [self.watched(gpu_monitor, beat).cause for _ in range(3)]
        assert [bool(cause) for cause in causes] == [False, True, False]

    def test_a_process_of_ours_that_the_driver_still_lists_is_no_stranger(self):
        nvml = Nvml(library(Device(processes=[(), (100, 101)])))
        ours = iter([{100}, {100}, {101}, {101}])
        gpu_monitor = GpuMonitor(nvml.identities(), nvml, POLICY, lambda: next(ours), lambda over, seconds: over.wait())
        causes = []
        for _ in range(2):
            with gpu_monitor.watching("a race") as launch_monitor:
                pass
            causes.append(launch_monitor.cause)
        assert "pid 101" in causes[0]  # not known as ours yet
        assert causes[1] == ""

    def test_clocks_of_one_race_are_no_measure_of_another(self):
        """A product of matrices runs into the power limit, a copy does not."""
        gpu_monitor, beat = gpu_monitor_of(Device(clocks=[1980] * 6 + [1410] * 5))
        assert not self.watched(gpu_monitor, beat, "copy").cause
        assert not self.watched(gpu_monitor, beat, "product").cause

    @pytest.mark.parametrize(("gigabytes", "room"), [(141, 4), (80, 2), (24, 1)])
    def test_processes_share_a_gpu_as_far_as_its_memory_goes(self, gigabytes, room):
        assert gpu_monitor_of(Device(memory=gigabytes << 30))[0].room == room
        assert gpu_monitor_of(Device(memory=gigabytes << 30), missing=("nvmlDeviceGetMemoryInfo",))[0].room == 1

    def test_errors_and_lost_devices(self):
        gpu_monitor, beat = gpu_monitor_of(Device(), errors=())
        assert self.watched(gpu_monitor, beat).cause == ""
        gpu_monitor, beat = gpu_monitor_of(Device(gone=3))
        assert "does not answer any more" in self.watched(gpu_monitor, beat).cause


class TestSession:
    def made(self, kind, names, library, tmp_path, driver=True):
        return GpuSession(kind, names, POLICY, False, lambda: Nvml(library), tmp_path, lambda: driver)

    def test_without_a_driver_nothing_happens_and_cpu_hides_the_gpus(self, tmp_path):
        made = self.made("all", (), library(), tmp_path, driver=False)
        assert (made.gpus, made.gpu_monitor, made.environment, made.notes) == ([], None, {}, [])
        assert self.made("cpu", (), library(Device()), tmp_path).environment == {"CUDA_VISIBLE_DEVICES": "-1"}

    def test_gpu_cases_with_their_own_processes_are_skipped_without_a_gpu(self, tmp_path):
        without = self.made("all", (), library(), tmp_path, driver=False)
        shared = Case("f.py::test_a[device=gpu]", "test_a", "f.py::test_a", (("device", "gpu"),))
        case = replace(shared, env=(("XLA_FLAGS", "--xla_gpu_autotune_level=0"),))
        assert "no GPU here" in without.skip_reason(case)
        assert "no GPU here" in self.made("cpu", (), library(Device()), tmp_path).skip_reason(case)
        there = self.made("all", (), library(Device()), tmp_path)
        assert not there.skip_reason(case)
        there.close()
        locked = GpuSession("gpu", (), POLICY, True, driver=lambda: False)
        assert not locked.skip_reason(case)  # the workers report an error
        for other in (shared, Case("f.py::test_a", "test_a", "f.py::test_a")):  # the first gives its own reason
            assert not without.skip_reason(other)

    def test_gpus_are_locked_monitored_and_reported(self, tmp_path):
        driver = library(Device(), Device(UUIDS[1]))
        made = self.made("gpu", ("1",), driver, tmp_path)
        assert made.environment["CUDA_VISIBLE_DEVICES"] == UUIDS[1]
        assert made.machine["GPU 1"] == "NVIDIA H100 80GB HBM3"
        with pytest.raises(GpuError, match="another run measures on GPU 1"):
            self.made("gpu", ("1",), driver, tmp_path)
        self.made("gpu", ("0",), driver, tmp_path).close()
        made.close()
        self.made("gpu", ("1",), driver, tmp_path).close()
        assert driver.nvmlLib.closed

    def test_without_nvml_gpus_are_measured_without_monitoring_and_a_note_says_so(self, tmp_path):
        made = self.made("all", (), library(), tmp_path)
        assert "GPUs are not monitored" in made.notes[0]
        assert made.environment == {}

    def test_a_named_gpu_must_exist(self, tmp_path):
        with pytest.raises(GpuError, match="no NVIDIA driver"):
            self.made("gpu", ("0",), library(), tmp_path)
        with pytest.raises(UsageError, match="gpu:3 matches no GPU here"):
            self.made("gpu", ("3",), library(Device()), tmp_path)

    def test_the_gpus_that_the_environment_leaves_are_locked_and_monitored(self, tmp_path, monkeypatch):
        """A scheduler sets it, since the other GPUs belong to other jobs."""
        driver = library(Device(), Device(UUIDS[1]))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        made = self.made("gpu", (), driver, tmp_path)
        assert [gpu.index for gpu in made.gpus] == [1]
        assert made.environment["CUDA_VISIBLE_DEVICES"] == UUIDS[1]
        made.close()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        with pytest.raises(UsageError, match=r"CUDA_VISIBLE_DEVICES=7 matches no GPU here"):
            self.made("gpu", (), driver, tmp_path)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert self.made("all", (), driver, tmp_path).gpu_monitor is None
        self.made("gpu", ("0",), driver, tmp_path).close()  # a name overrides the environment

    def test_cuda_sees_one_part_of_a_divided_gpu(self, tmp_path):
        divided = Device(mig=1, parts=("MIG-aa", "MIG-bb"))
        with pytest.raises(UsageError, match=r"select one with --device gpu:UUID, from MIG-aa, MIG-bb"):
            self.made("gpu", (), library(divided), tmp_path)
        made = self.made("gpu", ("MIG-bb",), library(divided), tmp_path)
        assert made.machine["GPU 0.1"] == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        made.close()
        self.made("gpu", (), library(replace(divided, parts=("MIG-aa",))), tmp_path).close()

    def test_exclusive_mode_is_refused(self, tmp_path):
        with pytest.raises(GpuError, match="-c DEFAULT"):
            self.made("gpu", (), library(Device(mode=3)), tmp_path)

    def test_a_driver_is_detected_by_its_files(self, tmp_path):
        assert not has_driver(tmp_path)
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev" / "nvidiactl").touch()
        assert has_driver(tmp_path)


def test_the_family_of_a_process():
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= family()
        assert os.getppid() not in family()
        assert family(first=child.pid) == {child.pid}
