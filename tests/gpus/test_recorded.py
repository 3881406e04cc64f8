"""Published readings of real GPUs, and recordings, which can be replayed."""

import json

from tests.fakes.nvml import H200, Beats, Device, Replay, library
from tfbench.gpus.monitor import GpuMonitor, disturbance
from tfbench.gpus.nvml import GpuObservationWindow, GpuReading, Nvml, Recording
from tfbench.policy import preset

POLICY = preset("standard")
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


def watched(driver):
    """Return the causes of two monitored launches, and what the monitor has to report."""
    beats, causes = Beats(1), []
    gpu_monitor = GpuMonitor(driver.identities(), driver, POLICY, lambda: {7}, beats)
    for beats.left in (1, 1):
        beats.done.clear()
        with gpu_monitor.watching("a race") as launch_monitor:
            assert beats.done.wait(10)
        causes.append(launch_monitor.cause)
    return causes, gpu_monitor.as_json()


def test_a_replay_of_a_recording_gives_the_same_results():
    device = Device(clocks=[210, 1980, 1980, 1980, 900], reasons=[1, 0], processes=[(), (7,)], gone=9)
    recording = Recording(Nvml(library(device, errors=(79,))))
    first = watched(recording)
    content = json.loads(json.dumps(recording.as_json()))
    assert watched(Replay(content)) == first
