"""The doctor's race on a fake clock with scripted entrants, and its findings."""

import random

import numpy as np
import pytest

from tests.fakes.race import Clock, ScriptedLauncher, sides_of, steady
from tfbench import cli
from tfbench.commands import doctor
from tfbench.doctor import noise
from tfbench.doctor.checks import Machine, State
from tfbench.doctor.noise import detectable, deviations
from tfbench.errors import BenchmarkError, SideError
from tfbench.model import Case, Effect
from tfbench.policy import Policy
from tfbench.race.lanes import Processors

POLICY = Policy()


def raced(deviation=0.004, seconds=10.0, broken=None):
    clock = Clock()
    launcher = ScriptedLauncher(clock, [steady(1e-4, deviation), steady(1e-4, deviation)])
    if broken:
        launcher.broken[1] = broken
    entrants = sides_of(Case("t.py::test_step[a]", "t.py::test_step[a]", ""))
    told = []
    made = noise.against_itself(entrants, launcher, seconds, POLICY, told.append, clock, random.Random(1))
    return made, clock.now, told


def test_a_race_against_itself_uses_its_time_and_no_more():
    made, now, told = raced(seconds=10.0)
    assert made.name == "a"
    assert noise.PAIRS <= made.launches < 30
    assert 10 <= now < 11
    assert set(told) == {"a"}


def test_a_quiet_machine_detects_small_slowdowns():
    made, *_ = raced(0.003)
    (finding,) = noise.findings_of([made], POLICY)
    assert finding.state is State.OK
    assert made.noise.detectable <= 0.03
    assert finding.what == f"policy standard detects a slowdown of {made.noise.detectable:.1%} here"


def test_a_machine_that_hides_slowdowns_is_not_fit():
    findings = noise.findings_of([raced(0.2)[0]], POLICY)
    assert noise.exit_code(findings) == 1
    assert "would often miss a slowdown of 5%" in findings[0].what


def test_a_race_without_a_result_claims_no_fitness(monkeypatch, capsys):
    unknown = noise.Finding(noise.NAME, State.UNKNOWN, "too short", "more time")
    fine = noise.Finding("load", State.OK, "idle")
    monkeypatch.setattr(doctor.checks, "examine", lambda *_: [fine])
    monkeypatch.setattr(noise, "measure", lambda *_: noise.Measured(findings=[unknown]))
    assert cli.main(["doctor", "--seconds", "5"]) == 3
    assert "not known whether it is fit for timing: 1 unknown, 1 ok" in capsys.readouterr().out


def test_a_workload_that_breaks_is_a_bad_finding():
    findings = noise.findings_of([raced(broken=BenchmarkError("ImportError: libcudart"))[0]], POLICY)
    assert findings[0].state is State.BAD
    assert "libcudart" in findings[0].what


def test_simulated_deviations_are_estimated_correctly():
    rng, found = np.random.default_rng(1), []
    for _ in range(60):
        pairs = rng.normal(0, 0.01, 6)
        found.append(deviations([Effect(pairs[n % 6] + rng.normal(0, 0.006), n % 6) for n in range(18)], POLICY))
    launch, zygote = np.median(found, axis=0)
    assert launch == pytest.approx(0.006, rel=0.15)
    assert zygote == pytest.approx(0.01, rel=0.25)


def test_one_outlying_launch_does_not_dominate_the_estimate():
    effects = [Effect(0.001 * (n % 3), n % 6) for n in range(18)]
    effects[4] = Effect(0.3, 4)
    assert deviations(effects, POLICY)[0] < 0.02


@pytest.mark.parametrize(
    ("launch", "zygote", "found"),
    [
        (0.006, 0.0018, 0.0179), (0.006, 0.005, 0.0189), (0.012, 0.012, 0.0292), (0.02, 0.005, 0.0234),
        (0.0243, 0.0075, 0.0277), (0.04, 0.01, 0.0355), (0.08, 0.02, 0.059),
    ],
)  # fmt: skip
def test_the_detectable_slowdown_is_what_95_percent_of_simulated_races_found(launch, zygote, found):
    """Of 400 races of policy standard each, decided at every look and confirmed, in suites of 30 cases."""
    assert detectable(launch, zygote, POLICY) == pytest.approx(found, rel=0.1)


@pytest.mark.tensorflow
def test_a_race_of_real_processes_is_printed(capsys):
    assert cli.main(["doctor", "--seconds", "3"]) in (0, 1)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    (heading,) = (words for words in lines if "matmul" in words)
    (slowdowns,) = (words[2:] for words in lines if words[:2] == ["detectable", "slowdown"])
    assert set(heading) == {"eager_add", "matmul", "elementwise"}
    known = [slowdown for slowdown in slowdowns if slowdown != "-"]  # which needs six launches
    assert all(float(slowdown.removesuffix("%")) > 1 for slowdown in known)
    assert "fit for timing: " in printed


def test_no_race_prints_the_findings_of_the_system(capsys):
    assert cli.main(["doctor", "--no-race"]) in (0, 1)
    assert "processors" in capsys.readouterr().out


def test_a_side_that_does_not_start_is_a_finding(monkeypatch):
    def refuse(self, wanted, pairs):
        raise SideError("it does not start\nImportError: numpy")

    monkeypatch.setattr(noise.ProcessLauncher, "ready", refuse)
    state, where = Machine((0,), 0, memory=8 << 30), Processors((0,), (0,))
    (finding,) = noise.measure(1.0, state, where, POLICY, lambda *_: None).findings
    assert "ImportError: numpy" in finding.what


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_impossible_times_are_refused(seconds, capsys):
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--seconds", seconds])
    assert "write a number of at least 0" in capsys.readouterr().err
