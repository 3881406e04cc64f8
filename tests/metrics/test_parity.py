"""Errors of results, exact and estimated from sketches."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.metrics.parity import (
    Difference,
    Output,
    compare,
    evaluate,
    largest,
    nonfinite,
    scatter,
    sketch,
    sketched_differences,
)
from tfbench.model import Case, MetricValues, Note, Outcome, OutputSketch, Reason, Verdict
from tfbench.model.formats import line, read
from tfbench.model.words import LARGEST
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
POLICY = preset("standard")


def outputs(*arrays, names=None):
    """Return the outputs of a step that returns a list of these arrays, or the only array."""
    arrays = [np.asarray(array) for array in arrays]
    names = names or ([f"[{place}]" for place in range(len(arrays))] if len(arrays) > 1 else [""])
    return [Output(array, name, array.dtype.name) for array, name in zip(arrays, names, strict=False)]


def error(result, reference):
    return compare(outputs(*result), outputs(*reference)).error


def sketched(mine, theirs):
    """Return the largest difference of two lists of outputs, from their sketches."""
    return largest(sketched_differences(sketch(mine), sketch(theirs)), {}, POLICY)


def test_the_error_is_relative_to_the_largest_number():
    reference = [np.array([100.0, 1e-9])]
    assert error([np.array([100.0, 2e-9])], reference) == pytest.approx(1e-11)
    assert error([np.array([101.0, 1e-9])], reference) == pytest.approx(0.01)
    assert error(reference, reference) == 0


WHOLE = [
    (np.arange(30_000), np.arange(30_000) + (np.arange(30_000) == 7)),
    (np.arange(32_000, 62_000, dtype=np.uint16), np.arange(32_000, 62_000, dtype=np.uint16)[::-1]),
    (np.array([2**60, 5]), np.array([2**60 + 7, 5])),
    (np.array([2**60, 5]), np.array([2**60 + 2**40, 5])),
    (np.array([-(2**60), 5]), np.array([-(2**60) + 7, 5])),
    (np.array([5, 7]), np.array([2**60, 7])),  # kept in another number of sums
    (np.full(1000, -(2**62)), np.full(1000, -(2**62) + 1)),
    (np.zeros(1000, bool), np.arange(1000) == 1),
]


@pytest.mark.parametrize(("mine", "theirs"), WHOLE)
def test_whole_numbers_and_truth_values_do_not_round(mine, theirs):
    for found in (compare(outputs(mine), outputs(theirs)), sketched(outputs(mine), outputs(theirs))):
        assert 0 < found.error <= LARGEST
        row = evaluate(CASE, 0.0, found, "the baseline's result", POLICY)
        assert (row.outcome, row.reason.message) == (
            Outcome.REGRESSED, "differs from the baseline's result: other values",
        )  # fmt: skip
    for found in (compare(outputs(mine), outputs(mine)), sketched(outputs(mine), outputs(mine))):
        assert evaluate(CASE, 0.0, found, "the baseline's result", POLICY).outcome is Outcome.UNCHANGED


def test_the_largest_error_of_all_outputs_counts_and_its_output_is_named():
    one, other = np.ones(3), np.full(2, 1000.0)
    found = compare(outputs(one * 1.5, other), outputs(one, other))
    assert found == Difference(pytest.approx(0.5), "[0]")
    assert found.note(Note.OUTPUTS).message == "the outputs differ by 0.5 of their largest number in the output [0]"
    assert compare(outputs(one), outputs(one)).note(Note.OUTPUTS).message == "the outputs are the same"
    assert compare(outputs(one * 1.5), outputs(one)).note(whose="it").message == "differs from it by 0.5"


def test_nan_on_one_side_only_is_an_infinite_error():
    good, bad = [np.ones(2)], [np.array([1.0, np.nan])]
    assert error(bad, good) == error(good, bad) == LARGEST
    assert error(bad, bad) == error([bad[0][1:]], [bad[0][1:]]) == 0
    assert error([np.array([np.inf])], [np.array([-np.inf])]) == LARGEST
    assert nonfinite(outputs(np.array([np.nan, np.inf, 1.0]), np.array([1, 2]))) == {"NaN": 1, "Inf": 1}
    assert nonfinite(outputs(np.ones(3))) == {}
    assert nonfinite(outputs(np.array([complex(np.nan, 1)]), np.array(["NaN"]))) == {"NaN": 1}


def test_integers_halves_and_complex_numbers():
    assert error([np.array([1, 2])], [np.array([1, 2])]) == 0
    assert error([np.array([1, 3])], [np.array([1, 2])]) == pytest.approx(0.5)
    assert error([np.array([1, 8])], [np.array([1, 2])]) == pytest.approx(3.0)
    for mine, theirs in ([1.0, 2.1], [1, 2]), ([1, 2], [1.0, 2.1]):  # a type that rounds, on either side
        assert error([np.array(mine)], [np.array(theirs)]) == pytest.approx(0.05, rel=0.1)
    assert error([np.array([1 + 1j])], [np.array([1 + 0j])]) == pytest.approx(1.0)
    assert error([np.array([1.0])], [np.array([1 + 1j])]) == pytest.approx(math.sqrt(0.5))
    assert error([np.zeros(2)], [np.zeros(2)]) == 0
    assert error([np.ones(2)], [np.zeros(2)]) == LARGEST
    assert error([], []) == 0


ONE, PAIR = outputs(np.ones((2, 2))), outputs(1.0, np.ones(2), names=["['loss']", "['rows']"])


@pytest.mark.parametrize("find", [compare, sketched])
@pytest.mark.parametrize(
    ("mine", "theirs", "text"),
    [
        (outputs(np.pad(np.ones((2, 2)), 1)), ONE, "the output has the shape (4, 4) instead of (2, 2)"),
        (PAIR[:1], PAIR, "1 output instead of 2: ['rows'] missing"),
        (PAIR, PAIR[1:], "2 outputs instead of 1: ['loss'] new"),
        (outputs(*np.ones(2000)), ONE, "2,000 outputs instead of 1: [0], [1000], [1001], [1002], [1003] and 1,995 more new"),
        (
            [PAIR[0], *outputs(np.ones((2, 1)), names=["['rows']"])], PAIR,
            "the output ['rows'] has the shape (2, 1) instead of (2,)",
        ),
    ],
)  # fmt: skip
def test_another_number_or_shape_of_outputs_is_an_infinite_difference_that_names_them(find, mine, theirs, text):
    found = find(mine, theirs)
    assert (found.error, found.note(whose="it").message) == (LARGEST, f"differs from it: {text}")
    assert find(theirs, theirs) == Difference(0.0, theirs[0].name if find is sketched else "")


def test_another_type_is_a_difference_of_two_sides_and_none_of_two_variants():
    single, double = outputs(np.ones(2, np.float32)), outputs(np.ones(2))
    assert compare(single, double).error == compare(PAIR, outputs(1.0, np.ones(2))).error == 0
    found = sketched(single, double)
    assert (found.error, found.structure) == (LARGEST, "the output has the type float32 instead of float64")
    assert sketched([Output(np.ones(2, np.float32), "", "bfloat16")], single).structure.endswith(
        "bfloat16 instead of float32"
    )


def test_numbers_that_are_no_longer_finite_are_a_difference_although_others_become_finite():
    before, now = outputs([1.0, np.nan], [1.0, 2.0]), outputs([1.0, 2.0], [1.0, np.nan])
    found = sketched(now, before)
    assert (found.error, found.structure) == (LARGEST, "the output [0] has 2 finite numbers instead of 1")


@pytest.mark.parametrize("other", [-250.0, 3.71])
def test_a_wrong_loss_beside_a_large_tensor_is_found(other):
    large = np.random.RandomState(1).standard_normal(1_000_000)
    before, now = outputs(3.7, large), outputs(other, large)
    found = sketched(now, before)
    assert (found.error, found.output) == (pytest.approx(abs(other - 3.7) / 3.7), "[0]")
    assert evaluate(CASE, 0.0, found, "the baseline's result", POLICY).outcome is Outcome.REGRESSED


@given(st.integers(0, 1000), st.integers(65, 5000), st.floats(1e-7, 1.0))
def test_two_sketches_give_the_distance_of_the_results(seed, size, scale):
    random = np.random.RandomState(seed)
    first = random.standard_normal(size)
    second = first + scale * random.standard_normal(size)
    exact = float(np.linalg.norm(second - first) / np.linalg.norm(first))
    assert sketched(outputs(second), outputs(first)).error == pytest.approx(exact, rel=0.6)


@settings(deadline=None)
@given(st.sampled_from([1, 3, 20, 300]), st.data())
def test_in_any_of_many_outputs_a_wrong_one_is_found_and_named(count, data):
    place, size = data.draw(st.integers(0, count - 1)), data.draw(st.integers(1, 50))
    first = outputs(*(np.ones(size) for _ in range(count)))
    second = [*first]
    second[place] = Output(first[place].array * 1.01, first[place].name, "float64")
    found = sketched(second, first)
    assert found.output == first[place].name
    assert 0.00999 < found.error < 0.04


def test_changes_that_hide_behind_each_others_signs_are_found_by_the_norm():
    first = outputs(*[np.ones(1000)] * 300)
    kept = sketch(first)
    for one in range(4, 100, 4):  # in the same bucket of four
        second = first[0].array.copy()
        second[[0, one]] += 1.0
        changed = sketch([Output(second, "[0]", "float64"), *first[1:256]])[0]  # as many buckets
        assert len(changed.sums) == len(kept[0].sums) == 4
        assert sketched_differences([changed], kept[:1])[0].error > 1e-3


def test_the_sketches_of_many_outputs_are_small():
    few = sketch(outputs(*np.ones((10, 100))))
    many = sketch(outputs(*np.ones((4096, 100))))
    assert [len(one.sums) for one in few] == [64] * 10
    assert [len(one.sums) for one in many] == [4] * 4096
    assert len(line(MetricValues(sketch=many))) < 600_000


def test_an_output_of_few_numbers_is_kept_exactly():
    found = sketch(outputs(3.7, [3.0, -4.0], np.zeros(0)))
    assert [sorted(map(abs, one.sums)) for one in found] == [[3.7], [3.0, 4.0], []]
    assert [(one.norm, one.finite, one.shape) for one in found] == [(3.7, 1, ()), (5.0, 2, (2,)), (0.0, 0, (0,))]
    assert sketch([]) == ()


def test_a_sketch_is_the_norm_and_64_sums_with_random_signs():
    """Files keep sketches, so they stay the same in every version."""
    (found,) = sketch(outputs(np.arange(1.0, 131.0)))
    assert (found.dtype, found.shape, found.finite) == ("float64", (130,), 130)
    assert found.norm == pytest.approx(math.sqrt(sum(number**2 for number in range(1, 131))))
    signs = np.unpackbits(np.frombuffer(np.random.RandomState(1).bytes(17), np.uint8))[:130] * 2.0 - 1
    sums = [sum(signs[n] * (n + 1) for n in range(bucket, 130, 64)) for bucket in range(64)]
    assert found.sums == pytest.approx(sums)
    assert found.sums[:4] == pytest.approx([193.0, 62.0, -64.0, -72.0])


def test_a_sketch_leaves_out_what_is_not_finite_and_takes_complex_numbers_apart():
    (plain,), (other,) = sketch(outputs([0.0, 2.0, 0.0, 0.0])), sketch(outputs([np.nan, 2.0, np.inf, -np.inf]))
    assert (other.norm, other.sums, other.finite) == (plain.norm, plain.sums, 1)
    (apart,), (numbers,) = sketch(outputs([1 + 3j, 2 + 4j])), sketch(outputs([1.0, 2.0, 3.0, 4.0]))
    assert (apart.norm, apart.sums, apart.finite) == (numbers.norm, numbers.sums, 4)


def test_a_sketch_of_huge_numbers_can_be_written():
    values = MetricValues(sketch=sketch(outputs(np.full(200, 1e308))))
    assert read(MetricValues, line(values)) == values


@pytest.mark.parametrize(
    ("names", "inside", "said"),
    [
        (("['a']", "['c']"), "dict", "other outputs: ['c'] new; ['b'] missing"),
        (("[0]", "[1]"), "list", "other outputs: [0], [1] new; ['a'], ['b'] missing"),
        (("['a']", "['b']"), "dict list", "the output ['a'] is in dict list instead of dict"),
        (("['a']", "['b']"), "", ""),  # of an older baseline
    ],
)
def test_equal_numbers_in_other_places_differ(names, inside, said):
    def found(names, inside):
        return sketch([Output(np.ones(3), name, "float64", inside) for name in names])

    before = found(("['a']", "['b']"), "dict")
    first = sketched_differences(found(names, inside), before)[0]
    assert (first.structure, first.error) == (said, LARGEST if said else 0.0)


def test_sketches_of_other_lengths_are_refused():
    one, other = (OutputSketch("[1]", "float64", (9,), 9, 1.0, (1.0,) * length) for length in (3, 4))
    with pytest.raises(ValueError, match=r"^the output \[1\] has sketches of different lengths$"):
        sketched_differences([one], [other])


def test_the_scatter_of_an_output_is_its_largest_distance_between_two_launches_relative_to_either():
    launches = [sketch(outputs([3.0, 4.0], [one])) for one in (0.8, 1.0, 2.0)]
    for order in permutations(launches):
        assert scatter(order) == {(1, "[0]"): 0.0, (1, "[1]"): pytest.approx(1.5)}
    first, far = launches[0], launches[2]
    assert scatter([first]) == scatter([(), far]) == scatter([first, ()]) == {}
    assert scatter([first, first[:1]]) == {(1, ""): LARGEST}


def of_calls(first, later, call=6):
    results = [*outputs(first), *(replace(output, call=call) for output in outputs(later))]
    return sketch(results)


def test_results_of_a_later_call_are_compared_with_those_of_the_same_call():
    one, other = of_calls([1.0], [1.0, 2.0]), of_calls([1.0], [1.0, 2.5])
    assert sketched_differences(one, one) == [Difference(0.0, ""), Difference(0.0, "", call=6)]
    assert sketched_differences(other, one)[1] == Difference(pytest.approx(0.5 / math.sqrt(5)), "", call=6)
    gone = sketched_differences(one[:1], one)[1]
    assert (gone.call, gone.structure) == (6, "0 outputs instead of 1")
    assert scatter([other, one]) == {(1, ""): 0.0, (6, ""): pytest.approx(0.5 / math.sqrt(5))}


def test_a_later_call_has_no_comparison_in_an_older_baseline_or_with_another_number():
    one = of_calls([1.0], [1.0, 2.0])
    for other in (of_calls([1.0], [9.0], call=8), one[:1]):
        assert sketched_differences(one, other) == [Difference(0.0, "")]


def test_rounding_may_grow_until_a_later_call_and_a_first_call_outweighs_it():
    first, later = Difference(5e-4, "[0]"), Difference(5e-4, "[0]", call=6)
    assert first.error > first.floor()
    assert later.error < later.floor()
    assert Difference(1.0, exact=True, call=6).floor() == 0
    larger = Difference(0.5, "[0]", call=6)
    assert largest([later, larger, first], {}, POLICY) == first
    assert largest([Difference(9e-5, "[0]"), larger], {}, POLICY) == larger
    assert largest([Difference(0.0, "[0]"), larger], {}, POLICY) == larger
    assert largest([Difference(0.0, "[0]"), larger], {(6, "[0]"): 0.3}, POLICY) == Difference(0.0, "[0]")


def test_an_output_that_scatters_hides_no_other_one():
    differences = [Difference(0.5, "[0]"), Difference(0.01, "[1]"), Difference(0.02, "[2]")]
    assert largest(differences, {}, POLICY).output == "[0]"
    assert largest(differences, {(1, "[0]"): 0.051}, POLICY).output == "[2]"
    assert largest(differences, {(1, "[0]"): 0.049}, POLICY).output == "[0]"
    assert largest(differences, {(1, "[0]"): 0.3, (1, "[2]"): 0.01}, POLICY).output == "[1]"
    assert largest(differences, {(1, ""): LARGEST}, POLICY).output == "[0]"
    unnamed = {(1, ""): 0.1, (1, "[0]"): 0.3}  # a launch had another number of outputs
    assert largest([Difference(0.5, "[0]"), Difference(0.01, "[1]")], unnamed, POLICY).output == "[0]"


@pytest.mark.parametrize(
    ("old", "new", "outcome", "code", "text"),
    [
        (0.0, 9e-5, "unchanged", "same", "9e-05: rounding at most"),
        (1e-4, 1e-4, "unchanged", "same", "0.0001: rounding at most"),
        (1.5e-4, 9e-5, "unchanged", "same", "9e-05, by 0.00015 before"),
        (0.0, 2e-4, "regressed", "more", "0.0002, by 0 before"),
        (1e-3, 2e-3, "unchanged", "same", "0.002, by 0.001 before"),
        (2e-3, 1e-3, "unchanged", "same", "0.001, by 0.002 before"),
        (1e-3, 2.1e-3, "regressed", "more", "0.0021, by 0.001 before"),
        (1e-3, 1e-5, "improved", "fewer", "1e-05, by 0.001 before"),
        (LARGEST, LARGEST, "unchanged", "same", "an infinite factor, by an infinite factor before"),
        (None, 1e-3, "new", "not-in-baseline", "0.001; no value in the baseline"),
    ],
)
def test_only_an_error_beyond_rounding_is_a_difference(old, new, outcome, code, text):
    reason = Reason(code, f"differs from the reference variant by {text}")
    verdict = Verdict.of(CASE, Outcome(outcome), reason, "parity", launches=1, values=(old, new))
    assert evaluate(CASE, old, Difference(new), "the reference variant", POLICY) == verdict
