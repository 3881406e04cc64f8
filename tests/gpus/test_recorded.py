"""Published readings of real GPUs, and recordings, which can be replayed."""

import json
from pathlib import Path

import pytest

from tests.fakes.nvml import UUIDS, Beats, Device, Replay, library
from tfbench.errors import GpuError
from tfbench.gpus.monitor import GpuMonitor, disturbance
from tfbench.gpus.nvml import GpuObservationWindow, GpuReading, Nvml, Recording
from tfbench.policy import preset

POLICY = preset("standard")
H200 = Path(__file__).parent / "data" / "h200-capped.json"
"""The readings of a `tfbench doctor --gpu` on 27 November 2026: driver 580.159.04, TensorFlow 2.21.0."""
NOBODY: frozenset[int] = frozenset()


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
