"""How many cases the doctor lets race at the same time."""

from dataclasses import replace

import pytest

from tests.race.test_lanes import machine
from tfbench import cli
from tfbench.commands import machine as command
from tfbench.doctor import noise
from tfbench.doctor.noise import LaneTest, borne_lanes
from tfbench.policy import Policy
from tfbench.race.lanes import Processors, measured

POLICY = Policy()
TWO, FOUR, EIGHT = (
    LaneTest(count, {"matmul": 0.006, "elementwise": 0.01}, {"matmul": matmul, "elementwise": elementwise})
    for count, matmul, elementwise in [(2, 0.0061, 0.0099), (4, 0.0069, 0.0114), (8, 0.0062, 0.0117)]
)


def test_the_worse_step_decides():
    assert TWO.larger == pytest.approx(0.0061 / 0.006)
    assert EIGHT.larger == pytest.approx(1.17)


def test_a_machine_bears_the_most_lanes_whose_error_is_at_most_fifteen_percent_larger():
    assert borne_lanes([TWO, FOUR, EIGHT], POLICY) == 4
    assert borne_lanes([EIGHT], POLICY) == 1
    assert borne_lanes([], POLICY) == 1


@pytest.mark.parametrize(("cores", "tried"), [(2, []), (4, []), (5, [2]), (9, [2, 4]), (16, [2, 4, 7])])
def test_numbers_of_lanes_double_up_to_the_room(cores, tried, monkeypatch):
    monkeypatch.setattr(noise, "topology", lambda numbers: machine(cores))
    assert noise.lane_counts(Processors((0,), (0,))) == tried


def test_the_result_is_kept_for_later_runs(monkeypatch, tmp_path, capsys):
    where = Processors((1,), (0, 1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(command, "worker_processors", lambda cpus: where)
    monkeypatch.setattr(noise, "lane_counts", lambda where: [2, 4, 8])
    monkeypatch.setattr(noise, "measure_lanes", lambda *arguments: [TWO, FOUR, EIGHT])
    assert cli.main(["doctor", "--lanes"]) == 0
    assert measured(where) == 4
    text = capsys.readouterr().out
    assert "4 cases may race at the same time here" in " ".join(text.split())
    assert "1.17" in text


def test_a_machine_without_room_is_not_measured(monkeypatch, capsys):
    monkeypatch.setattr(noise, "lane_counts", lambda where: [])
    assert cli.main(["doctor", "--lanes"]) == 0
    assert "have no room for two lanes" in " ".join(capsys.readouterr().out.split())


@pytest.mark.tensorflow
def test_two_forced_lanes_are_measured_with_real_processes():
    policy = replace(POLICY, lane_launches=2, lane_error=1e9)
    (test,) = noise.measure_lanes([2], Processors((1,), (0, 1), (1, 0)), policy, lambda text: None)
    assert test.count == 2
    assert set(test.alone) == set(test.beside) == {"matmul", "elementwise"}
    assert all(0 < error < 1 for error in (*test.alone.values(), *test.beside.values()))
