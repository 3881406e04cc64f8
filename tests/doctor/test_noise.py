"""The doctor's race on a fake clock with scripted entrants, and its findings."""

import json
import random

import numpy as np
import pytest

from tests.fakes.race import Clock, ScriptedLauncher, sides_of, steady
from tfbench import cli
from tfbench.commands import machine
from tfbench.doctor import noise
from tfbench.doctor.checks import is_fit
from tfbench.doctor.machine import Limits, State
from tfbench.doctor.noise import noise_of
from tfbench.errors import BenchmarkError, SideError
from tfbench.model import Case, Effect
from tfbench.policy import Policy
from tfbench.race.lanes import Processors

POLICY, LIMITS = Policy(), Limits()
SIDES = [entrant.side for entrant in sides_of(Case("", "", ""))]


def lapped(deviation=0.004, seconds=30.0, broken=None):
    clock = Clock()
    launcher = ScriptedLauncher(clock, [steady(1e-4, deviation), steady(1e-4, deviation)])
    if broken:
        launcher.broken[1] = broken
    names = [f"t.py::test_step[{name}]" for name in ("a", "b", "c")]
    races = tuple(noise.SelfRace(Case(name, name, name), SIDES) for name in names)
    noise.round_robin(races, launcher, range(6), seconds, POLICY, lambda *_: None, clock, random.Random(1))
    return races, clock.now


def judged(raced):
    noise.add_detection_limits(raced, POLICY, LIMITS)
    made = noise.NoiseTest(POLICY, raced, 30.0, 12, 8.0)
    return made, noise.findings_of(made, LIMITS)


def test_the_races_end_in_time_and_share_it_equally():
    raced, now = lapped()
    assert 30 <= now < 31
    assert {one.name for one in raced} == {"a", "b", "c"}
    assert all(len(one.effects) >= 14 for one in raced)
    assert {effect.pair for effect in raced[0].effects} == set(range(6))


def test_a_quiet_machine_detects_small_slowdowns_at_a_stated_cost():
    made, findings = judged(lapped(0.003)[0])
    assert is_fit(findings)
    assert made.middle is not None
    assert made.races[0].limit.smallest_found <= 0.03
    assert "is detectable here in about" in findings[0].what
    assert json.loads(json.dumps(made.as_json()))["workloads"][0]["smallest_found"] <= 0.03


def test_a_machine_that_hides_slowdowns_is_not_fit():
    _, findings = judged(lapped(0.2)[0])
    assert not is_fit(findings)
    assert "would often miss a slowdown of 5%" in findings[0].what


def test_too_few_launches_give_an_unknown_finding():
    made, findings = judged(lapped(seconds=5.0)[0])
    assert [finding.state for finding in findings] == [State.UNKNOWN]
    assert "too short to tell" in findings[0].what
    launches = sum(len(one.launches) for one in made.races)
    enough = int(findings[0].fix.rpartition("--seconds ")[2])
    assert enough >= 6 * 3 * made.seconds / launches


def test_a_race_without_a_result_claims_no_fitness(monkeypatch, tmp_path, capsys):
    unknown = noise.Finding(noise.NAME, State.UNKNOWN, "too short", "more time")
    fine = noise.Finding("load", State.OK, "idle")
    monkeypatch.setattr(machine.checks, "examine", lambda *_: [fine])
    monkeypatch.setattr(noise, "measure", lambda *_: noise.Measured(findings=[unknown]))
    target = tmp_path / "d.json"
    assert cli.main(["doctor", "--seconds", "5", "--report-json", str(target)]) == 3
    assert "not known whether it is fit for timing: 1 unknown, 1 ok" in capsys.readouterr().out
    assert json.loads(target.read_text())["fit"] is False


def test_a_workload_that_breaks_is_a_bad_finding():
    raced, _ = lapped(broken=BenchmarkError("ImportError: libcudart"))
    _, findings = judged(raced)
    assert findings[0].state is State.BAD
    assert "libcudart" in findings[0].what


def test_simulated_deviations_are_estimated_correctly():
    rng, found = np.random.default_rng(1), []
    for _ in range(60):
        pairs = rng.normal(0, 0.01, 6)
        effects = [Effect(pairs[n % 6] + rng.normal(0, 0.006), n % 6) for n in range(18)]
        found.append(noise_of(effects, POLICY))
    assert np.median([one.launch_deviation for one in found]) == pytest.approx(0.006, rel=0.15)
    assert np.median([one.zygote_deviation for one in found]) == pytest.approx(0.01, rel=0.25)


def test_one_outlying_launch_does_not_dominate_the_estimate():
    effects = [Effect(0.001 * (n % 3), n % 6) for n in range(18)]
    effects[4] = Effect(0.3, 4)
    assert noise_of(effects, POLICY).launch_deviation < 0.02


@pytest.mark.tensorflow
def test_a_race_of_real_processes_writes_its_report(tmp_path, capsys, monkeypatch):
    """The race is too short for a result, so only its output and its file are checked."""
    monkeypatch.setattr(noise, "PAIRS", 1)  # each pair takes four seconds to start
    target = tmp_path / "d.json"
    assert cli.main(["doctor", "--seconds", "1", "--report-json", str(target)]) in (1, 3)
    content = json.loads(target.read_text())
    assert content["schema"] == "tfbench-doctor/1"
    assert {row["name"] for row in content["race"]["workloads"]} == {"eager_add", "matmul", "elementwise"}
    assert "race" in {row["name"] for row in content["findings"]}
    assert "fit for timing: " in capsys.readouterr().out


def test_no_race_prints_the_findings_of_the_system(capsys):
    assert cli.main(["doctor", "--no-race"]) in (0, 1)
    assert "processors" in capsys.readouterr().out


def test_a_side_that_does_not_start_is_a_finding(monkeypatch):
    def refuse(self, wanted, pairs):
        raise SideError("it does not start\nImportError: numpy")

    monkeypatch.setattr(noise.ProcessLauncher, "ready", refuse)
    with pytest.raises(SideError) as caught:
        noise.race(1.0, POLICY, Processors((0,), (0,)), lambda *_: None, Clock(), random.Random())
    assert "ImportError: numpy" in noise.finding_of(caught.value).what


@pytest.mark.parametrize("seconds", ["0", "4000", "nan"])
def test_impossible_times_are_refused(seconds, capsys):
    assert cli.main(["doctor", "--seconds", seconds]) == 2
    assert "must lie from" in capsys.readouterr().err
