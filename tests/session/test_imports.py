"""What a benchmark file imports is judged once, from the zygotes that a run has anyway."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.model import Case, Outcome
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.session.races import Races
from tfbench.sides.spec import Side

FIRST, SECOND, OTHER = (Case(name, name, name) for name in ("a.py::one", "a.py::two", "b.py::one"))
HERE, THERE = (Side(name, "python", Path("/")) for name in ("contender", "baseline"))
POLICY = preset("standard")


class Launcher:
    """Has the imports of the zygotes that were started."""

    def __init__(self, seconds):
        self.seconds, self.pairs, self.asked = seconds, [0, 1, 2], []

    def imports(self, entrant, whole=False):
        self.asked.append(whole)
        slow = self.seconds if entrant.side.name == "contender" else lambda pair: 0.5
        return {pair: (slow(pair), 50 << 20) for pair in self.pairs}

    def start_pairs(self, entrants, pairs):
        self.pairs += pairs


def races(launcher):
    return Races(SimpleNamespace(policy=POLICY, seed=1), launcher, HERE, 320, None)


def outcomes(launcher_or_races, case, there=THERE):
    made = launcher_or_races if isinstance(launcher_or_races, Races) else races(launcher_or_races)
    return {row.metric: row.outcome for row in made.imports(case, Entrant(case, there))}


def test_each_file_is_judged_once_for_all_of_its_cases():
    made = races(Launcher(lambda pair: 3.5))
    rows = [outcomes(made, case) for case in (FIRST, SECOND, OTHER)]
    expected = {"import": Outcome.REGRESSED, "import_memory": Outcome.UNCHANGED}
    assert rows == [expected, {}, expected]


def test_a_change_must_hold_in_further_zygotes():
    launcher = Launcher(lambda pair: 3.5 if pair < POLICY.zygotes else 0.5)
    assert outcomes(launcher, FIRST)["import"] is Outcome.INCONCLUSIVE
    assert launcher.pairs == [0, 1, 2, *range(POLICY.zygotes, POLICY.zygotes + 3)]
    unchanged = Launcher(lambda pair: 0.51)
    assert outcomes(unchanged, FIRST)["import"] is Outcome.UNCHANGED
    assert unchanged.pairs == [0, 1, 2]


@pytest.mark.parametrize(("executable", "whole"), [("python", False), ("other python", True)])
def test_the_import_of_tensorflow_counts_between_interpreters(executable, whole):
    launcher = Launcher(lambda pair: 0.5)
    outcomes(launcher, FIRST, replace(THERE, executable=executable))
    assert set(launcher.asked) == {whole}
