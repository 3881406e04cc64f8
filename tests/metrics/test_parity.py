"""Errors of results, exact and estimated from sketches."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.metrics.parity import LARGEST, describe, error, evaluate, nonfinite, scatter, sketch, sketched_error
from tfbench.model import Case, Outcome, Reason, Verdict
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
POLICY = preset("standard")


def test_the_error_is_relative_to_the_largest_number():
    reference = [np.array([100.0, 1e-9])]
    assert error([np.array([100.0, 2e-9])], reference) == pytest.approx(1e-11)
    assert error([np.array([101.0, 1e-9])], reference) == pytest.approx(0.01)
    assert error(reference, reference) == 0


def test_the_largest_error_of_all_arrays_counts():
    one, other = np.ones(3), np.full(2, 1000.0)
    assert error([one * 1.5, other], [one, other]) == pytest.approx(0.5)


def test_nan_on_one_side_only_is_an_infinite_error():
    good, bad = [np.ones(2)], [np.array([1.0, np.nan])]
    assert error(bad, good) == math.inf
    assert error(bad, bad) == error([bad[0][1:]], [bad[0][1:]]) == 0
    assert error([np.array([np.inf])], [np.array([-np.inf])]) == math.inf
    assert nonfinite([np.array([np.nan, np.inf, 1.0]), np.array([1, 2])]) == {"NaN": 1, "Inf": 1}
    assert nonfinite([np.ones(3)]) == {}
    assert nonfinite([np.array([complex(np.nan, 1)]), np.array(["NaN"])]) == {"NaN": 1}


def test_integers_halves_and_complex_numbers():
    assert error([np.array([1, 2])], [np.array([1, 2])]) == 0
    assert error([np.array([1, 3])], [np.array([1, 2])]) == pytest.approx(0.5)
    assert error([np.array([1 + 1j])], [np.array([1 + 0j])]) == pytest.approx(1.0)
    assert error([np.zeros(2)], [np.zeros(2)]) == 0
    assert error([np.ones(2)], [np.zeros(2)]) == math.inf


def test_results_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="shapes of the results differ"):
        error([np.ones(2)], [np.ones(3)])
    with pytest.raises(ValueError, match="shapes of the results differ"):
        error([np.ones(2)], [])
    with pytest.raises(ValueError, match=r"^the shapes of the results differ: \[\(2,\), \(1,\)\] and \[\(3,\)\]$"):
        error([np.ones(2), np.ones(1)], [np.ones(3)])
    with pytest.raises(ValueError, match=r"and \[\(1,\), \(1,\), \(1,\), \(1,\), \(1,\), and 1,995 more\]$"):
        error([np.ones(2)], [np.ones(1)] * 2000)
    assert error([], []) == 0


@given(st.integers(0, 1000), st.integers(65, 5000), st.floats(1e-7, 1.0))
def test_two_sketches_give_the_distance_of_the_results(seed, size, scale):
    random = np.random.RandomState(seed)
    first = random.standard_normal(size)
    second = first + scale * random.standard_normal(size)
    exact = float(np.linalg.norm(second - first) / np.linalg.norm(first))
    assert sketched_error(sketch([second]), sketch([first])) == pytest.approx(exact, rel=0.6)


def test_the_same_result_has_the_same_sketch_and_shapes_do_not_matter():
    array = np.random.RandomState(1).standard_normal((6, 7)).astype(np.float32)
    assert sketched_error(sketch([array]), sketch([array])) == 0
    assert sketch([array]) == sketch([array.ravel()])
    assert sketch([]) == ()
    assert len(sketch([np.array([np.nan, 1.0])])) == 65
    with pytest.raises(ValueError, match="64 buckets"):
        sketched_error((1.0,), (1.0,))


def test_a_single_changed_number_is_detected():
    array = np.ones(10_000)
    other = array.copy()
    other[1234] = 5.0
    assert sketched_error(sketch([other]), sketch([array])) == pytest.approx(4 / 100, rel=1e-6)


def test_a_sketch_is_the_norm_and_64_sums_with_random_signs():
    """Files keep sketches, so they stay the same in every version."""
    found = sketch([np.arange(1.0, 131.0)])
    assert len(found) == 65
    assert found[0] == pytest.approx(math.sqrt(sum(number**2 for number in range(1, 131))))
    signs = np.unpackbits(np.frombuffer(np.random.RandomState(1).bytes(17), np.uint8))[:130] * 2.0 - 1
    sums = [sum(signs[n] * (n + 1) for n in range(bucket, 130, 64)) for bucket in range(64)]
    assert found[1:] == pytest.approx(sums)
    assert found[1:5] == pytest.approx([193.0, 62.0, -64.0, -72.0])


def test_a_sketch_leaves_out_what_is_not_finite_and_takes_complex_numbers_apart():
    plain = sketch([np.array([0.0, 2.0, 0.0, 0.0])])
    assert sketch([np.array([np.nan, 2.0, np.inf, -np.inf])]) == plain
    assert sketch([np.array([1 + 3j, 2 + 4j])]) == sketch([np.array([1.0, 2.0, 3.0, 4.0])])
    assert sketch([np.array([1, 2]), np.zeros(0), np.array([3.0, 4.0])]) == sketch([np.array([1.0, 2.0, 3.0, 4.0])])


@pytest.mark.parametrize("lengths", [(64, 65), (65, 64), (66, 65)])
def test_a_sketch_of_another_length_is_refused(lengths):
    with pytest.raises(ValueError, match=r"^a sketch has a norm and 64 buckets$"):
        sketched_error(*((1.0,) * length for length in lengths))


def test_the_scatter_is_the_largest_distance_from_the_first_launch():
    first, near, far = ((norm, 3.0, *[0.0] * 62, last) for norm, last in ((5.0, 4.0), (9.0, 4.5), (9.0, 3.0)))
    assert scatter([first, near, far]) == pytest.approx(0.2)
    assert scatter([first, near, ()]) == pytest.approx(0.1)
    assert scatter([first]) == scatter([(), far]) == 0.0
    assert scatter([(0.0, *[0.0] * 64), far]) == LARGEST


@pytest.mark.parametrize(
    ("old", "new", "outcome", "code", "text"),
    [
        (0.0, 0.0, "unchanged", "same", "nothing: rounding at most"),
        (0.0, 9e-5, "unchanged", "same", "9e-05: rounding at most"),
        (1e-4, 1e-4, "unchanged", "same", "0.0001: rounding at most"),
        (0.0, 2e-4, "regressed", "more", "0.0002, by nothing before"),
        (1e-3, 1.9e-3, "unchanged", "same", "0.0019, by 0.001 before"),
        (1e-3, 2e-3, "unchanged", "same", "0.002, by 0.001 before"),
        (2e-3, 1e-3, "unchanged", "same", "0.001, by 0.002 before"),
        (1e-3, 2.1e-3, "regressed", "more", "0.0021, by 0.001 before"),
        (1e-3, 1e-5, "improved", "fewer", "1e-05, by 0.001 before"),
        (None, 1e-3, "new", "not-in-baseline", "0.001; no value in the baseline"),
    ],
)
def test_only_an_error_beyond_rounding_is_a_difference(old, new, outcome, code, text):
    reason = Reason(code, f"differs from the reference variant by {text}")
    verdict = Verdict(CASE, Outcome(outcome), reason, "parity", launches=1, values=(old, new))
    assert evaluate(CASE, old, new, "the reference variant", POLICY) == verdict


def test_errors_are_formatted_for_people():
    assert (describe(0), describe(1.234e-5), describe(1e300)) == ("nothing", "1.2e-05", "an infinite factor")
