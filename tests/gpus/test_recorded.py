"""Published readings of real GPUs, and recordings, which can be replayed."""

import json
from pathlib import Path

import pytest

from tests.fakes.nvml import UUIDS, Beats, Device, Replay, library
from tfbench.errors import GpuError, UsageError
from tfbench.gpus.monitor import GpuMonitor, disturbance
from tfbench.gpus.nvml import GpuObservationWindow, GpuReading, Nvml, Recording
from tfbench.policy import preset

POLICY = preset("standard")
PUBLISHED = json.loads((Path(__file__).parent / "data" / "published.json").read_text())
H200 = Path(__file__).parent / "data" / "h200-capped.json"
"""The readings of a `tfbench doctor --gpu` on 27 November 2026: driver 580.159.04, TensorFlow 2.21.0."""
NOBODY: frozenset[int] = frozenset()
FEW = 5
"""Readings of a launch that lasts 0.3 s, with those before and after it."""


@pytest.mark.parametrize("published", PUBLISHED["devices"], ids=lambda published: published["device"]["name"])
class TestPublished:
    def test_published_values_are_read(self, published):
        reported = published["device"]
        nvml = Nvml(library(Device(**reported), version=published["version"], cuda=published["cuda"]))
        (gpu,) = nvml.identities()
        assert (gpu.name, gpu.driver) == (reported["name"], published["version"])
        assert gpu.cuda == f"{published['cuda'] // 1000}.{published['cuda'] % 1000 // 10}"
        if "ecc" in reported:
            assert gpu.ecc is (None if reported["ecc"] is None else bool(reported["ecc"]))
            assert gpu.mig is (None if reported["mig"] is None else bool(reported["mig"]))
            assert gpu.power_limit == (None if reported["power_limit"] is None else reported["power_limit"] / 1000)
        reading = nvml.reading(gpu)
        assert reading.sm_clock == reported["clocks"][0]
        if "power" in reported:
            assert reading.power == (None if reported["power"] is None else pytest.approx(reported["power"] / 1000))

    def test_a_launch_counts_unless_its_clock_is_lowered(self, published):
        nvml = Nvml(library(Device(**published["device"])))
        (gpu,) = nvml.identities()
        window = GpuObservationWindow(tuple(nvml.reading(gpu) for _ in range(FEW)))
        cause = disturbance(window, NOBODY, NOBODY, [])
        assert cause == "" if not published["held"] else f"({published['held']})" in cause

    def test_the_clock_of_an_idle_gpu_is_none(self, published):
        nvml = Nvml(library(Device(**published["device"])))
        (gpu,) = nvml.identities()
        clock = GpuObservationWindow(tuple(nvml.reading(gpu) for _ in range(FEW))).sm_clock
        assert clock == (None if published["idle"] else published["device"]["clocks"][0])


class TestPowerLimit:
    """An A100 at its power limit during a product: its clock drops by 15 of 1410 MHz for 80 ms."""

    def readings(self, rows):
        return [
            GpuReading(sm_clock=clock, power=power, temperature=heat, reasons=0x04, seconds=seconds)
            for seconds, heat, power, clock in rows
        ]

    def test_launches_count_wherever_they_begin(self):
        busy = self.readings(PUBLISHED["series"]["busy"])
        earlier: list[GpuObservationWindow] = []
        for start in range(len(busy) - FEW):
            window = GpuObservationWindow(tuple(busy[start : start + FEW]))
            assert disturbance(window, NOBODY, NOBODY, earlier) == ""
            earlier.append(window)
        clocks = [window.sm_clock for window in earlier]
        assert (min(clocks), max(clocks)) == (1395, 1410)

    def test_the_summary_of_a_launch(self):
        reported = GpuObservationWindow(tuple(self.readings(PUBLISHED["series"]["busy"]))).as_json()
        assert 240 < reported["power"] < 256
        assert reported["temperature"] == 55
        assert reported["reasons"] == 0x04


def test_every_launch_of_a_recorded_check_of_an_h200_counts():
    """Its software power cap moves the clock of a product between 1650 and 1980 MHz."""
    driver = Replay(json.loads(H200.read_text()))
    (gpu,) = driver.identities()
    assert gpu.name == "NVIDIA H200"
    launches: list[list[GpuReading]] = [[]]
    before = driver.reading(gpu)
    while (reading := driver.reading(gpu)) != before:
        if reading.seconds - before.seconds > 0.5:
            launches.append([])
        launches[-1].append(reading)
        before = reading
    windows = [GpuObservationWindow(tuple(readings)) for readings in launches if len(readings) > 3]
    ours = frozenset().union(*(reading.processes for readings in launches for reading in readings))
    assert len(windows) > 10
    for number, window in enumerate(windows):
        earlier = windows[:number]
        assert disturbance(window, ours, NOBODY, earlier, earlier[-1] if earlier else None) == ""
    assert min(reading.sm_clock for readings in launches for reading in readings) < 1700


class TestRecording:
    def run(self, driver):
        """Monitor two launches."""
        beats = Beats(1)
        gpu_monitor = GpuMonitor(driver.identities(), driver, POLICY, lambda: {7}, beats)
        causes = []
        for _ in range(2):
            with gpu_monitor.watching("a race") as launch_monitor:
                assert beats.done.wait(10)
            beats.left = 1
            beats.done.clear()
            causes.append(launch_monitor.cause)
        return causes, gpu_monitor.as_json()

    def test_a_replay_gives_the_same_results(self):
        device = Device(clocks=[210, 1980, 1980, 1980, 900], reasons=[1, 0], processes=[(), (7,)])
        recording = Recording(Nvml(library(device)))
        first = self.run(recording)
        assert "ran at" in first[0][1]
        content = json.loads(json.dumps(recording.as_json()))
        assert self.run(Replay(content)) == first

    def test_errors_and_lost_devices_are_recorded(self):
        recording = Recording(Nvml(library(Device(gone=2), Device(UUIDS[1]), errors=(79,))))
        first, second = recording.identities()
        recording.listen([first, second])
        assert recording.xids() == [79]
        recording.reading(first)
        recording.reading(second)
        recording.reading(first)
        with pytest.raises(GpuError):
            recording.reading(first)
        again = Replay(recording.as_json())
        assert again.xids() == [79]
        assert again.xids() == []
        assert again.reading(second).sm_clock == 1980
        for _ in range(2):
            again.reading(first)
        for _ in range(2):
            with pytest.raises(GpuError, match="GPU 0 does not answer any more"):
                again.reading(first)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({}, "its schema is None"),
            ({"schema": "tfbench-gpus/1", "gpus": [], "told": 1}, "no list of readings"),
            ({"schema": "tfbench-gpus/1", "gpus": [{"size": 1}], "told": []}, "size"),
            ({"schema": "tfbench-gpus/1", "gpus": [], "told": [{"gpu": "0", "size": 1}]}, "unknown field size"),
        ],
    )
    def test_an_invalid_recording_is_a_usage_error(self, content, words):
        with pytest.raises(UsageError, match=words):
            Replay(content)
