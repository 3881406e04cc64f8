"""A verdict on time has its rounds, in whatever order a race finds what it finds."""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.race import Clock, ScriptedLauncher, sides_of, steady, variants_of
from tfbench.errors import BenchmarkError, LaunchDisturbed
from tfbench.model import Case, Outcome
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.race import Race, RaceConfig
from tfbench.session.results import of_sides, of_variant

CASE = Case("w.py::w", "w", "w.py::w")
POLICY = replace(Policy(), looks=(2, 4, 6), case_seconds=6.0)
DECIDED = (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)


class EventfulLauncher(ScriptedLauncher):
    """A scripted launcher whose launches meet one event each, in the order of a list; then nothing happens."""

    def __init__(self, events, *args, **more):
        super().__init__(Clock(), *args, **more)
        self.events = events

    def event(self, number):
        return self.events[number] if number < len(self.events) else ""

    def open(self, entrants, pair):
        launch = super().open(entrants, pair)
        event = self.event(launch.number)
        seen = {"works-0": (0,), "works-1": (1,), "works": tuple(range(len(entrants)))}.get(event)
        if seen is not None:
            self.works_on = {**self.works_on, launch.number: seen}
        rounds = launch.rounds

        def raced(plan, orders):
            self.waits = dict.fromkeys(orders[0], 0.0)  # so later launches may be sliced
            self.late_waits = dict.fromkeys(orders[0], 0.5) if event == "waits" else {}
            if event == "disturbed":
                raise LaunchDisturbed("a busy neighbour")
            if event == "interrupted":
                raise KeyboardInterrupt
            return rounds(plan, orders)

        launch.rounds = raced
        if event.startswith("breaks-") and int(event[-1]) < len(entrants):
            self.dies_at = {**self.dies_at, int(event[-1]): launch.number}
        return launch


def check(race, index):
    """Check that a decision is one about launches that the race still has, and whose rounds count."""
    decision = race.decisions.get(index)
    if decision is None:
        return
    effects = race.effects(index)
    assert effects
    assert decision.comparison.launches <= len(effects)
    assert 0 < decision.comparison.rounds <= race.rounds(index)


EVENTS = st.lists(
    st.sampled_from(["", "", "works-0", "works-1", "works", "disturbed", "waits", "breaks-0", "breaks-1", "breaks-2"]),
    max_size=14,
)
RATIOS = st.sampled_from([0.8, 1.0, 1.0, 1.004, 1.2])


@settings(deadline=None, max_examples=150)
@given(
    EVENTS, RATIOS, st.sampled_from([1e-4, 0.06]), st.lists(st.sampled_from(["run", "extend"]), min_size=1, max_size=4),
    st.booleans(),
)  # fmt: skip
@example(["", "", "", "", "works"], 1.0, 1e-4, ["run", "extend"], False)
@example(["", "", "works-1", "works-1", "works-1"], 1.0, 1e-4, ["run", "extend", "run"], False)
def test_a_decision_has_its_launches_in_every_order(events, ratio, seconds, calls, variants):
    entrants = variants_of("a", "b", "c") if variants else sides_of(CASE)
    launcher = EventfulLauncher(events, [steady(seconds), steady(ratio * seconds), steady(seconds)])
    launcher.step = Prepared(seconds, {}, waiting=0.0)
    race = Race(entrants, launcher, POLICY, RaceConfig(1, range(4)), launcher.clock, random.Random(0))
    for call in calls:
        before = race.all_launches
        if call == "run":
            race.run(lambda race: [check(race, index) for index in range(len(entrants))])
        else:
            decided = dict(race.decisions), race.launches
            race.extend(len(before) + 2)
            if not race.failures:
                assert (dict(race.decisions), race.launches) == decided  # short launches change no evidence on time
        assert all(launch in race.all_launches for launch in before)  # nothing is cleared
        for index in range(len(entrants)):
            check(race, index)
    for index in range(len(entrants)):
        if race.runs(index) or index in race.failures or race.abort_reason:
            result = of_variant(race, index)
            if result.verdict and result.verdict.outcome in DECIDED:
                assert result.verdict.rounds


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.sampled_from(["", "", "", "works-0", "works-1", "works", "disturbed", "waits", "breaks-1", "interrupted"]),
        max_size=20,
    ),
    RATIOS,
    st.sampled_from([0.02, 1.0]),
)  # fmt: skip
@example(["", "", "", "", "", "", "works", "works"], 1.0, 1.0)
@example(["", "", "", "works-1", "", "works-1"], 1.2, 0.02)
def test_a_verdict_on_two_sides_has_the_rounds_of_both(events, ratio, scatter_of_memory):
    launcher = EventfulLauncher(events, [steady(1e-4), steady(ratio * 1e-4)], launch_seconds=0.1)
    launcher.memory = [steady(1e8, scatter_of_memory), steady(1e8, scatter_of_memory)]  # asks for short launches
    race = ConfirmedRace(sides_of(CASE), launcher, POLICY, 1, launcher.clock, random.Random(0))
    try:
        race.run()
    except KeyboardInterrupt:
        if race.decision is None:
            return
    try:
        result = of_sides(CASE, race)
    except BenchmarkError:
        assert race.decision is None or race.decision.outcome is None
        return
    verdict = result.verdict
    assert verdict is not None
    if verdict.ratio is not None or verdict.outcome in DECIDED:
        assert verdict.launches
        assert verdict.rounds
        assert result.sample
        assert result.baseline
        assert sum(len(run.seconds) for run in result.sample.runs) == verdict.rounds
        assert len(result.baseline.runs) == len(result.sample.runs) > 0
