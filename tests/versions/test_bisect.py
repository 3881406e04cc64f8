"""Bisections of scripted sides on a fake clock."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, steady
from tests.length import WHOLE
from tfbench.errors import BenchmarkError, SideError
from tfbench.model import TIME, Case, Outcome
from tfbench.policy import Policy, preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.launch import Entrant
from tfbench.sides.spec import Side
from tfbench.versions import bisect
from tfbench.versions.bisect import BisectResult, BisectStep, Point, Study
from tfbench.versions.changes import raced

CASE, OTHER = Case("w.py::w", "w", "w.py::w"), Case("w.py::v", "v", "w.py::v")
POLICY = Policy()
SEVEN = [Point(f"2.{minor}", f"tensorflow==2.{minor}", skipped=minor == 18) for minor in range(15, 22)]


class Scripted:
    """Seconds by label and case; what breaks, by label."""

    def __init__(self, seconds, broken=(), unmade=(), deviation=0.004, policy=POLICY, seed=0):
        self.seconds, self.broken, self.unmade = seconds, broken, unmade
        self.deviation, self.policy, self.seed = deviation, policy, 1000 * seed
        self.raced = []
        self.looks = []
        self.sides = set()

    def make(self, spec, label):
        if label in self.unmade:
            raise SideError(f"no wheel of {label}\nmore of it")
        self.sides.add(label)
        return Side(label, "python", Path("/"), spec)

    def release(self, side):
        self.sides.discard(side.name)

    def race_sides(self, case, good, side, policy):
        assert {good.name, side.name} <= self.sides
        self.raced.append((case.name, side.name))
        self.looks.append(policy.looks[-1])
        scripts = [steady(self.seconds(case, one.name), self.deviation) for one in (good, side)]
        launcher = ScriptedLauncher(Clock(), scripts, seed=self.seed + len(self.raced))
        for index, one in enumerate((good, side)):
            if one.name in self.broken:
                launcher.broken[index] = BenchmarkError("it raised\ntraceback")
        made = ConfirmedRace([Entrant(case, good), Entrant(case, side)], launcher, policy, 4, Clock(), random.Random(1))
        made.run()
        return raced(made, TIME)

    def run(self, *cases, points=SEVEN):
        study = Study(points, self.make, self, self.policy, TIME, lambda text: None)
        study.compare = self.race_sides
        return study.run(cases)


def since(first_bad, factor=1.2):
    return lambda case, label: 1e-4 * (factor if label >= first_bad else 1)


@pytest.mark.parametrize("first_bad", [point.label for point in SEVEN[1:]])
def test_seven_versions_take_three_races_after_the_first(first_bad):
    scripted = Scripted(since(first_bad))
    (result,) = scripted.run(CASE)
    assert SEVEN[result.first_bad].label == first_bad
    assert result.is_answered
    assert len(scripted.raced) <= 1 + 3
    assert scripted.raced[0] == (CASE.name, "2.21")
    assert not scripted.sides  # all were released
    reported = bisect.answer(result, SEVEN)
    assert reported.startswith(f"slower since {first_bad}: ")


def test_cases_with_the_same_next_version_share_its_side():
    scripted = Scripted(lambda case, label: 1e-4 * (1.2 if label >= ("2.17" if case is CASE else "2.20") else 1))
    results = scripted.run(CASE, OTHER)
    assert [SEVEN[result.first_bad].label for result in results] == ["2.17", "2.20"]
    assert [label for _, label in scripted.raced[:4]] == ["2.21", "2.21", "2.18", "2.18"]


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, Outcome.UNCHANGED), (0.8, Outcome.IMPROVED)])
def test_a_case_that_is_not_slower_takes_one_race(factor, outcome):
    scripted = Scripted(since("2.21", factor))
    (result,) = scripted.run(CASE)
    assert len(scripted.raced) == 1
    assert result.bad_end.outcome is outcome
    assert result.is_answered
    reported = bisect.answer(result, SEVEN)
    assert reported.startswith("2.21 is not slower than 2.15: ")
    assert reported.endswith("; the points between were not raced, and one may be slower")
    assert ("swap --good and --bad" in reported) == (outcome is Outcome.IMPROVED)


def test_an_inconclusive_step_is_raced_again_and_may_stay_inconclusive():
    scripted = Scripted(since("2.18", 1.0), deviation=0.1)
    (result,) = scripted.run(CASE)
    assert scripted.raced == [(CASE.name, "2.21")] * 2
    assert scripted.looks == [96, 288]
    assert result.bad_end.again
    assert not result.is_answered
    assert bisect.answer(result, SEVEN).startswith("inconclusive whether 2.21 is slower than 2.15")


def test_a_disturbed_race_of_the_bad_end_is_inconclusive_and_no_end_that_cannot_run(monkeypatch):
    monkeypatch.setattr(ConfirmedRace, "abort_reason", "the GPU was throttled", raising=False)
    (result,) = Scripted(since("2.18")).run(CASE)
    assert bisect.exit_code([result]) == 3
    assert bisect.answer(result, SEVEN).endswith("than 2.15: disturbed: the GPU was throttled")


def test_the_search_skips_versions_that_cannot_be_created_or_run():
    scripted = Scripted(since("2.19"), broken=["2.18"], unmade=["2.17"])
    (result,) = scripted.run(CASE)
    assert SEVEN[result.first_bad].label == "2.19" if result.first_bad else True
    assert {step.reason for step in result.steps if step.outcome is None} <= {"it raised", "no wheel of 2.17"}
    # 2.17 and 2.18 could not be judged, so that one of three is the first slower one.
    assert [SEVEN[point].label for point in result.suspects] == ["2.17", "2.18", "2.19"]
    assert not result.is_answered
    assert "since one of 2.17, 2.18, 2.19" in bisect.answer(result, SEVEN)


def test_a_good_end_that_cannot_run_the_case_ends_its_search():
    scripted = Scripted(since("2.19"), broken=["2.15"])
    (result,) = scripted.run(CASE)
    assert len(scripted.raced) == 1
    assert bisect.answer(result, SEVEN) == "the good end cannot run it: it raised"


def test_an_end_that_cannot_be_created_is_an_error():
    with pytest.raises(SideError, match=r"no wheel of 2\.21"):
        Scripted(since("2.19"), unmade=["2.21"]).run(CASE)


def test_hints_name_the_commands_for_later_slowdowns():
    seconds = {"2.18": 1.1, "2.19": 1.1, "2.20": 1.1, "2.21": 1.52}
    scripted = Scripted(lambda case, label: 1e-4 * seconds.get(label, 1))
    (result,) = scripted.run(CASE)
    patches, later = bisect.hints(result, SEVEN, ["--min-slowdown", "0.05"])
    rest = f"--min-slowdown 0.05 {CASE.name}"
    assert patches.endswith(f"tfbench bisect --good tensorflow==2.17 --bad tensorflow==2.18 {rest}")
    assert "2.21 is slower still, 1.5" in later
    assert later.endswith(f"tfbench bisect --good tensorflow==2.18 --bad tensorflow==2.21 {rest}")


def test_neighbouring_releases_have_none_in_between_to_race():
    seconds = {"2.20": 1.1, "2.21": 1.1}
    (result,) = Scripted(lambda case, label: 1e-4 * seconds.get(label, 1)).run(CASE)
    assert bisect.hints(result, SEVEN) == []


@pytest.mark.parametrize(
    ("metric", "slowdown", "changes"),
    [
        ("time", None, {}),
        ("time", 0.1, {"minimum_effect": 0.1, "tolerance": 0.2}),
        ("first_call", 0.25, {"first_call_effect": 0.25, "first_call_tolerance": 0.5}),
    ],
)
def test_the_smallest_slowdown_of_a_metric_is_its_alone(metric, slowdown, changes):
    assert bisect.policy_of(POLICY, metric, slowdown) == replace(POLICY, **changes)


COMMITS = [Point(f"{number:03}", f"git:{number}") for number in range(200)]


def bisected(culprit, slowdown, deviation, seed):
    """Bisect commits of which one makes the case slower, and return the answer: the culprit, several, none or a wrong one."""
    policy = bisect.policy_of(preset("quick"), TIME, slowdown / 2 if slowdown < 0.05 else None)
    scripted = Scripted(since(COMMITS[culprit].label, 1 + slowdown), deviation=deviation, policy=policy, seed=seed)
    (result,) = scripted.run(CASE, points=COMMITS)
    if not result.is_slower:
        return "none"
    if culprit not in result.suspects:
        return "wrong"
    return "right" if result.first_bad == culprit else "several"


def plainly_bisected(culprit, slowdown, deviation, seed):
    """Bisect by one timing of each commit, against the middle between both ends."""
    rng, end = random.Random(seed), BisectStep(len(COMMITS) - 1, Outcome.REGRESSED, "")
    result = BisectResult(CASE, len(COMMITS), [end])
    while (point := result.next) is not None:
        seconds = (1 + slowdown * (point >= culprit)) * (1 + rng.gauss(0, deviation))
        outcome = Outcome.REGRESSED if seconds > 1 + slowdown / 2 else Outcome.UNCHANGED
        result.steps.append(BisectStep(point, outcome, ""))
    return "right" if result.first_bad == culprit else "wrong"


@pytest.mark.chaos
@pytest.mark.parametrize("slowdown", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("deviation", [0.02, 0.05])
def test_a_bisection_under_noise_names_the_commit_or_none(deviation, slowdown):
    """Print the answers: ``TFBENCH_CHAOS=whole pytest -m chaos -s tests/versions/test_bisect.py -k noise``."""
    trials, shares = 20 if WHOLE else 2, []
    for how in (bisected, plainly_bisected):
        rng = random.Random(7)
        answers = [how(rng.randrange(1, len(COMMITS)), slowdown, deviation, seed) for seed in range(trials)]
        shares.append({answer: answers.count(answer) / trials for answer in ("right", "several", "none", "wrong")})
    print(f"{slowdown:.0%} slower, launches scatter by {deviation:.0%}: {shares[0]}; plain: {shares[1]}")
    assert shares[0]["wrong"] <= 0.2


@pytest.mark.parametrize("seed", [2, 5, 17])
def test_a_point_whose_slowdown_is_below_the_tolerance_does_not_pass_as_unchanged(seed):
    scripted = Scripted(since("2.17", 1.035), deviation=0.015, policy=preset("quick"), seed=seed)
    (result,) = scripted.run(CASE)
    assert SEVEN[result.first_bad].label == "2.17"
