"""Results that differ by chance are no regressions, wherever a project draws: at import, or in each process."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.session.test_metric_checks import timed
from tfbench.metrics.parity import Output, ProbeOutput
from tfbench.model import Case, Outcome, ReasonCode
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.session.results import BaselineValues, MetricChecker
from tfbench.sides.spec import Side

HERE, THERE = Side("contender", "python", Path("/")), Side("baseline", "python", Path("/"))
CASE = Case("w.py::w", "w", "w.py::w")
DRAWS = {
    "normal": lambda rng: rng.gauss(0, 1),
    "uniform": lambda rng: rng.random(),
    "time": lambda rng: 1.7e9 + rng.expovariate(1.0),
    "coin": lambda rng: float(rng.random() < 0.5),  # as the order of two threads, or of a set of two
    "rare": lambda rng: float(rng.random() < 0.1),
    "id": lambda rng: rng.getrandbits(32),
    "order": lambda rng: rng.sample(range(4), 4)[0],
    "heavy": lambda rng: rng.paretovariate(1.0),
    "length": lambda rng: [1.0] * rng.randint(1, 3),
    "nothing": lambda rng: 3.0,
}


class Project:
    """A prober of one step, which returns a number that is always the same beside numbers drawn somewhere.

    Args:
        number: Selects the places and kinds of the draws.
        seed: Of the draws themselves.
    """

    def __init__(self, number, seed):
        choice = random.Random(number)
        self.parts = [
            (choice.choice(("import", "process")), choice.choice(list(DRAWS))) for _ in range(choice.randint(1, 3))
        ]
        self.joined = choice.random() < 0.5
        self.rng, self.imported = random.Random(f"{number} {seed}"), {}

    def probe(self, entrants, pairs=()):
        return [self._launch(*one) for one in zip(entrants, pairs or [0] * len(entrants), strict=True)]

    def _launch(self, entrant, pair):
        values = [2.0]
        for place, (where, kind) in enumerate(self.parts):
            if where == "process":
                values.append(DRAWS[kind](self.rng))
            else:
                key = entrant.side.name, pair, place
                values.append(self.imported.setdefault(key, DRAWS[kind](self.rng)))
        arrays = [np.array(one) for one in values]
        if self.joined:
            arrays = [np.concatenate([np.atleast_1d(one).astype(float) for one in values])]
        outputs = tuple(Output(array, f"[{place}]", str(array.dtype)) for place, array in enumerate(arrays))
        return ProbeOutput(found={"flops": {"flops": 10}, "outputs": {}}, absent={}, results=outputs)


def row_of(project, policy):
    result = MetricChecker(project, policy, (CASE,), 1).checked(
        timed(CASE), HERE, BaselineValues(entrant=Entrant(CASE, THERE))
    )
    return {row.metric: row for row in result.metrics}["parity"]


@pytest.mark.parametrize("name", ["quick", "standard"])
def test_equal_sides_of_thirty_projects_that_draw_do_not_regress(name):
    policy, tries = preset(name), 20
    rows = [row_of(Project(number, seed), policy) for number in range(30) for seed in range(tries)]
    assert [row.reason.message for row in rows if row.outcome is Outcome.REGRESSED] == []
    scattered = [row for row in rows if row.outcome is Outcome.INCONCLUSIVE]
    assert len(scattered) > 0.3 * len(rows)
    assert {row.reason.code for row in scattered} == {ReasonCode.NOT_EXACT}
