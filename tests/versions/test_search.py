"""The binary search: which points it asks for, and how many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.model import Case, Outcome
from tfbench.versions.bisect import BisectResult, BisectStep, max_steps

CASE = Case("w.py::w", "w", "w.py::w")


OUTCOMES = {True: Outcome.REGRESSED, False: Outcome.UNCHANGED, None: None}


def searched(count, is_bad):
    """Search after the race of the bad end; return the result and the points that it asked for."""
    result, asked = BisectResult(CASE, count, [BisectStep(count - 1, Outcome.REGRESSED, "")]), []
    while (point := result.next) is not None:
        asked.append(point)
        result.steps.append(BisectStep(point, OUTCOMES[is_bad(point)], ""))
    return result, asked


@given(st.integers(2, 300).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count - 1))))
def test_the_search_finds_the_first_bad_point_within_its_bound(given_):
    count, first_bad = given_
    search, asked = searched(count, lambda point: point >= first_bad)
    assert list(search.suspects) == [first_bad]
    assert search.good == first_bad - 1
    assert len(asked) <= max_steps(count)
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(("count", "races"), [(2, 0), (3, 1), (4, 2), (5, 2), (7, 3), (9, 3), (10, 4), (1025, 10)])
def test_the_bound_is_reached_and_never_exceeded(count, races):
    assert max_steps(count) == races
    assert max(len(searched(count, lambda p, k=k: p >= k)[1]) for k in range(1, count)) == races


@given(
    st.integers(3, 40).flatmap(
        lambda count: st.tuples(st.just(count), st.integers(1, count - 1), st.sets(st.integers(1, count - 2)))
    )
)
def test_only_points_that_cannot_be_judged_stay_suspects(given_):
    count, first_bad, unknown = given_
    search, asked = searched(count, lambda point: None if point in unknown else point >= first_bad)
    assert first_bad in search.suspects
    assert set(search.suspects[:-1]) <= unknown
    assert len(set(asked)) == len(asked)


def test_a_result_needs_a_race_of_the_bad_end():
    result = BisectResult(CASE, 2)
    assert (result.is_slower, result.first_bad, result.is_answered) == (None, None, False)
    result.steps.append(BisectStep(1, Outcome.REGRESSED, "slower"))
    assert (result.first_bad, result.is_answered) == (1, True)
    open_ = BisectResult(CASE, 2, [BisectStep(1, Outcome.INCONCLUSIVE, "who knows")])
    assert (open_.is_slower, open_.is_answered) == (None, False)
    same = BisectResult(CASE, 2, [BisectStep(1, Outcome.UNCHANGED, "the same")])
    assert (same.first_bad, same.is_answered) == (None, True)
