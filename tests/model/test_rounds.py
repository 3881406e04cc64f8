"""StoredRounds survive a report within 0.1%, and damaged ones are refused."""

import base64
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.report import decoded
from tfbench.model import Case, Run, Sample, StoredRounds
from tfbench.model.measurement import LARGEST, MOST

CASE = Case("t.py::t", "t", "t.py::t")
TIMES = st.lists(st.floats(1e-15, 1e9), min_size=1, max_size=20)


def sample(*launches):
    return Sample(CASE, tuple(Run(tuple(seconds), 1) for seconds in launches))


@given(st.lists(TIMES, min_size=1, max_size=5))
def test_rounds_keep_their_order_launch_and_size(launches):
    found = StoredRounds.of_sample(sample(*launches), "contender")
    assert found.launches == tuple(map(len, launches))
    near = [pytest.approx(seconds, rel=6e-4) for launch in launches for seconds in launch if far(found, seconds) < 32]
    assert [s for launch in decoded(found) for s in launch if far(found, s) < 32] == near


def far(found, seconds):
    return abs(math.log(seconds / found.median_seconds))


def test_a_long_sample_is_thinned_and_keeps_its_median():
    found = StoredRounds.of_sample(sample(*[[1e-3, 2e-3, 3e-3] * 100] * 4), "baseline")
    assert sum(found.launches) <= MOST
    assert (found.every, found.median_seconds) == (3, 2e-3)


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": "no base64!"},
        {"steps": base64.b64encode(b"odd").decode()},
        {"launches": (2, 1)},
        {"launches": (LARGEST + 1,)},
    ],
)
def test_damaged_rounds_are_refused(damage):
    found = StoredRounds.of_sample(sample([1e-3, 2e-3]), "contender")
    with pytest.raises(ValueError, match="rounds"):
        replace(found, **damage)
