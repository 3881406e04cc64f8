"""Launches in real processes that follow a script: what the controller makes of those that die, hang or talk nonsense."""

import random
from dataclasses import replace

import pytest

from tests.fakes import worker
from tfbench.errors import BenchmarkError, BenchmarkSkipped, ProtocolError, SideError, WorkerDied, WorkerHung
from tfbench.model import Case, Outcome
from tfbench.policy import preset
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.race import Race, RaceConfig
from tfbench.race.schedule import make_plan, orders
from tfbench.race.zygote import Suite
from tfbench.sides.side import Side

POLICY = replace(preset("quick"), launch_seconds=0.01)
IMPATIENT = replace(POLICY, setup_seconds=0.5, answer_seconds=0.5)
FINE = "t.py::test_fine"
ODD = "t.py::test_odd"


def case(name):
    return Case(name, name, name)


@pytest.fixture
def launcher(tmp_path):
    """From what its measuring processes do to a launcher, and the entrants of a fine case and of an odd one."""
    opened = []

    def start(odd=None, policy=POLICY, **script):
        executable = worker.install(tmp_path, cases={FINE: {}, ODD: odd or {}}, **script)
        suite = Suite(("t.py",), "", "importlib", str(tmp_path / "made"), ())
        opened.append(ProcessLauncher(suite, policy, Processors((), ())))
        sides = (Side("baseline", executable, tmp_path), Side("contender", executable, tmp_path))
        return opened[-1], [Entrant(case(FINE), sides[0]), Entrant(case(ODD), sides[1])]

    yield start
    for one in opened:
        one.close()


def raced(launcher, entrants):
    """The seconds of one launch."""
    launch = launcher.open(entrants, 0)
    try:
        ready = {index: launch.prepare(index).iteration for index in (0, 1)}
        plan = make_plan(entrants, ready, POLICY, False)
        found = launch.rounds(plan, orders([0, 1], plan.rounds, random.Random(1)))
        launch.close()
        return found
    finally:
        launch.kill()


def test_each_entrant_has_the_time_of_its_own_process(launcher):
    found = raced(*launcher({"seconds": 2e-5}))
    assert found[0] == pytest.approx([1e-5] * len(found[0]))
    assert found[1] == pytest.approx([2e-5] * len(found[0]))


@pytest.mark.parametrize(
    ("at", "does", "error", "words"),
    [
        ("set-up", "die", WorkerDied, "exit code 3"),
        ("set-up", "crash", WorkerDied, "SIGSEGV"),
        ("set-up", "hang", WorkerHung, "did not answer within 0.5 s"),
        ("set-up", "stop", WorkerHung, "was killed"),
        ("set-up", "skip", BenchmarkSkipped, "not here"),
        ("set-up", "fail", BenchmarkError, "it broke"),
        ("set-up", "cut", WorkerDied, "exit code 0"),
        ("rounds", "die", WorkerDied, "exit code 3"),
        ("rounds", "kill", WorkerDied, "SIGKILL"),
        ("rounds", "hang", WorkerHung, "did not answer within 0.5 s"),
        ("rounds", "cut", WorkerDied, "exit code 0"),
        ("rounds", "flood", WorkerDied, "exit code 3"),
        ("stop", "die", WorkerDied, "exit code 3"),
        ("stop", "hang", WorkerHung, "was killed"),
        ("stop", "fail", BenchmarkError, "after it had been timed: it broke"),
    ],
)
def test_an_entrant_that_breaks_is_named_with_its_reason(launcher, at, does, error, words):
    opened, entrants = launcher({"at": at, "does": does}, IMPATIENT if does in ("hang", "stop") else POLICY)
    with pytest.raises(error, match=words) as caught:
        raced(opened, entrants)
    if at != "set-up":
        assert caught.value.entrant == 1
    if does == "die":
        assert "last words" in caught.value.output
    assert raced(opened, [entrants[0], replace(entrants[1], case=case(FINE))])  # the zygotes are as they were


@pytest.mark.parametrize("does", ["garble", "mistake"])
@pytest.mark.parametrize("at", ["set-up", "rounds", "stop"])
def test_what_is_no_answer_is_an_error_that_quotes_it(launcher, at, does):
    opened, entrants = launcher({"at": at, "does": does})
    with pytest.raises(ProtocolError, match="no JSON" if does == "garble" else "launched"):
        raced(opened, entrants)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("die", "last words"),
        ("hang", "no answer within 2 s"),
        ("cut", "the other process is gone"),
        ("fail", "it broke"),
    ],
)
def test_a_side_that_does_not_start_says_why(launcher, does, words):
    opened, entrants = launcher(
        policy=replace(POLICY, start_seconds=2.0 if does == "hang" else 60.0), at="start", does=does
    )
    with pytest.raises(SideError, match=words):
        raced(opened, entrants)


@pytest.mark.parametrize("does", ["die", "hang", "garble"])
def test_a_zygote_that_forks_nothing_is_an_error_of_its_side(launcher, does):
    opened, entrants = launcher(policy=IMPATIENT if does == "hang" else POLICY, at="launch", does=does)
    with pytest.raises(SideError, match="its zygote is gone"):
        raced(opened, entrants)


def test_a_case_that_the_side_does_not_collect_is_no_launch(launcher):
    opened, (fine, odd) = launcher()
    with pytest.raises(BenchmarkError, match="does not collect"):
        raced(opened, [fine, replace(odd, case=case("t.py::test_other"))])


@pytest.mark.parametrize(("seconds", "outcome"), [(1e-5, Outcome.UNCHANGED), (1.5e-5, Outcome.REGRESSED)])
def test_a_race_is_decided_by_what_the_processes_say(launcher, seconds, outcome):
    opened, entrants = launcher({"seconds": seconds})
    race = Race(entrants, opened, POLICY, RaceConfig(1, range(3)), lambda: 0.0, random.Random(1))
    race.run()
    assert race.decisions[1].outcome is outcome


def test_a_race_names_who_died_and_goes_on_with_nobody(launcher):
    opened, entrants = launcher({"at": "rounds", "does": "die"})
    race = Race(entrants, opened, POLICY, RaceConfig(1, range(3)), lambda: 0.0, random.Random(1))
    race.run()
    assert set(race.failures) == {1}
    assert not race.launches
