"""The interval against closed forms and brute force, and its symmetries."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.stats.recorded import recorded
from tfbench.model import Effect
from tfbench.policy import PRESETS, Policy
from tfbench.stats.interval import huber_pseudovalues, interval, launch_effect, posterior, quantile_error

POLICY = Policy()
KNOWN = replace(POLICY, launch_spread=1e-4, zygote_spread=1e-4, clip=1000)
"""A policy with certain knowledge of both deviations."""

effects = st.lists(
    st.builds(Effect, st.floats(-0.3, 0.3).map(lambda value: round(value, 6)), st.integers(0, 5)),
    min_size=3,
    max_size=20,
)


def logs(ratio):
    return [math.log(ratio.center), math.log(ratio.low), math.log(ratio.high)]


def effects_of(values, pairs):
    return [Effect(value, pair) for value, pair in zip(values, pairs, strict=True)]


def test_the_effect_of_a_launch_is_the_median_of_paired_log_ratios():
    assert launch_effect([1.0, 2.0, 4.0], [1.1, 2.0, 40.0], 0).value == pytest.approx(math.log(1.1))
    assert launch_effect([1e-5], [2e-5], 0).value == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("baseline", "contender"),
    [([], []), ([1.0], [1.0, 1.0]), ([1.0], [0.0]), ([-1.0], [1.0]), ([math.nan], [1.0]), ([1.0], [math.inf])],
)
def test_invalid_times_are_refused(baseline, contender):
    reported = "both sides need the same number of rounds, at least one|a time is not a positive number"
    with pytest.raises(ValueError, match=f"^({reported})$"):
        launch_effect(baseline, contender, 0)


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_the_error_of_a_median_is_that_of_repeated_draws(draw):
    rng = np.random.default_rng(1)
    samples = getattr(rng, draw)(size=(2000, 200))
    true = np.median(samples, axis=1).std()
    assert np.mean([quantile_error(one) for one in samples[:300]]) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.0003])
def test_with_known_deviations_the_interval_is_the_normal_one_of_both_levels(alpha):
    """Pairs weigh by the inverse of their variance, as in DerSimonian & Laird (1986, Control. Clin. Trials 7)."""
    values, pairs = [0.011, 0.002, -0.004, 0.021, 0.006], [0, 1, 2, 0, 0]
    variance = np.array([0.005**2 + 0.006**2 / 3, 0.005**2 + 0.006**2, 0.005**2 + 0.006**2])
    means = np.array([(0.011 + 0.021 + 0.006) / 3, 0.002, -0.004])
    center = (means / variance).sum() / (1 / variance).sum()
    reach = stats.norm.isf(alpha / 2) / math.sqrt((1 / variance).sum())
    found = interval(effects_of(values, pairs), alpha, KNOWN, shared_zygote=False)
    assert logs(found) == pytest.approx([center, center - reach, center + reach], abs=1e-7)
    assert found.confidence == 1 - alpha


@pytest.mark.parametrize("errors", [[0.0] * 8, [0.002, 0.02, 0.005, 0.001, 0.012, 0.03, 0.004, 0.008]])
def test_the_interval_agrees_with_brute_force(errors):
    """The same posterior from the joint normal law of all launches, on a finer grid, by numpy's linear algebra."""
    values = np.array([0.012, 0.021, 0.004, 0.016, 0.019, 0.001, 0.013, 0.018])
    pairs = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    steps = np.arange(-2.5, 5, 0.1)
    same = (pairs[:, None] == pairs[None, :]).astype(float)
    usual = np.diag(0.006**2 + np.square(errors))
    truths = np.linspace(-0.05, 0.08, 2601)
    density = np.zeros_like(truths)
    for own in steps:
        for between in steps:
            covariance = usual * math.exp(own) ** 2 + same * (0.005 * math.exp(between)) ** 2
            inverse = np.linalg.inv(covariance)
            away = values[:, None] - truths[None, :]
            log_likelihood = -0.5 * (np.einsum("it,ij,jt->t", away, inverse, away) + np.linalg.slogdet(covariance)[1])
            prior = stats.t.logpdf(own / POLICY.launch_spread, 2) + stats.t.logpdf(between / POLICY.zygote_spread, 2)
            density += np.exp(log_likelihood + prior)
    cumulative = np.cumsum(density) / density.sum()
    launches = [Effect(*one) for one in zip(values, pairs, errors, strict=True)]
    found = interval(launches, 0.02, replace(POLICY, clip=1000), shared_zygote=False)
    low, high = (truths[np.searchsorted(cumulative, level)] for level in (0.01, 0.99))
    assert logs(found)[1:] == pytest.approx([low, high], abs=3e-4)


@settings(max_examples=60, deadline=None)
@given(effects, st.floats(-1, 1))
def test_a_shift_of_all_launches_shifts_the_interval(evidence, shift):
    here = interval(evidence, 0.01, POLICY, shared_zygote=False)
    there = interval([Effect(one.value + shift, one.pair) for one in evidence], 0.01, POLICY, shared_zygote=False)
    assert logs(there) == pytest.approx([end + shift for end in logs(here)], abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(effects, st.randoms(use_true_random=False))
def test_neither_the_order_of_launches_nor_the_names_of_pairs_matter(evidence, random):
    shuffled = [Effect(one.value, 17 - one.pair) for one in evidence]
    random.shuffle(shuffled)
    here = interval(evidence, 0.01, POLICY, shared_zygote=False)
    there = interval(shuffled, 0.01, POLICY, shared_zygote=False)
    assert logs(there) == pytest.approx(logs(here), abs=1e-9)


@pytest.mark.parametrize("launches", [1, 2])
@pytest.mark.parametrize("name", PRESETS)
def test_few_launches_of_one_pair_give_an_honest_wide_interval(launches, name):
    policy = PRESETS[name]
    found = interval([Effect(0.0, 0)] * launches, 0.01, policy, shared_zygote=False)
    assert logs(found)[2] > stats.norm.isf(0.005) * policy.zygote_deviation


@pytest.mark.parametrize(
    ("evidence", "reported"),
    [
        ([], "no launch, no interval"),
        ([Effect(math.nan, 0)], "an effect is not a finite number"),
        ([Effect(0.0, 0), Effect(math.inf, 0)], "an effect is not a finite number"),
    ],
)
def test_missing_or_infinite_evidence_is_refused(evidence, reported):
    with pytest.raises(ValueError, match=f"^{reported}$"):
        interval(evidence, 0.01, POLICY, shared_zygote=False)


def test_many_races_at_once_give_the_intervals_of_each_alone():
    values = np.random.default_rng(4).normal(0.01, [[0.004], [0.02], [0.1]], (3, 8))
    values[0, 0] += 0.4  # an outlier
    pairs = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    together = posterior(values, pairs, POLICY, shared_zygote=False)
    alone = [posterior(one[None, :], pairs, POLICY, shared_zygote=False) for one in values]
    for level in (0.3, 1e-6):
        ends = [np.concatenate(ends) for ends in zip(*(one.bounds(level) for one in alone), strict=True)]
        assert np.array(together.bounds(level)) == pytest.approx(np.array(ends), abs=1e-12)
    assert together.center == pytest.approx(np.concatenate([one.center for one in alone]))
    each = np.array([0.0, 0.01, 0.02])
    beneath = [one.below(value)[0] for one, value in zip(alone, each, strict=True)]
    assert together.below(each) == pytest.approx(beneath)
    assert together.above(each) == pytest.approx([1 - below for below in beneath])
    assert together.below(0.01)[1] == pytest.approx(beneath[1])


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-9])
def test_an_interval_excludes_half_of_alpha_on_either_side(alpha):
    values = np.random.default_rng(5).normal(0.2, 0.02, (2, 6))
    distribution = posterior(values, np.arange(6), POLICY, shared_zygote=False)
    low, high = distribution.bounds(alpha)
    assert distribution.below(low) == pytest.approx([alpha / 2] * 2, rel=1e-5)
    assert distribution.above(high) == pytest.approx([alpha / 2] * 2, rel=1e-5)


def test_the_limit_of_an_outlier_follows_the_noise_of_both_levels():
    """The last launch is about three deviations of 0.006 and 0.005 together from the median, 0.0005."""
    limit = 3 * math.hypot(0.006, 0.005)
    centers = []
    for far in (limit * 0.99, limit * 1.01, limit * 5):
        values = np.array([[0.0, 0.001, -0.001, 0.002, -0.002, 0.0005 + far]])
        centers.append(posterior(values, np.zeros(6, int), POLICY, shared_zygote=False).center)
    assert centers[0] < centers[1]  # moved, and the others with it
    assert centers[1] == pytest.approx(centers[2])


# Outliers

CALM = [0.001, -0.002, 0.003, 0.0, -0.001, 0.002, -0.003, 0.004]


def test_launches_without_outliers_are_unchanged():
    assert huber_pseudovalues(np.array([CALM]), 0.008, 3.0).tolist() == [CALM]


@pytest.mark.parametrize("outlier", [-0.36, -3.0, 0.36])
def test_a_launch_in_another_mode_moves_the_centre_little_however_far_it_is(outlier):
    mean = float(huber_pseudovalues(np.array([[*CALM, outlier]]), 0.008, 3.0).mean())
    assert abs(mean) < 0.004
    assert mean == pytest.approx(float(huber_pseudovalues(np.array([[*CALM, outlier * 10]]), 0.008, 3.0).mean()))


def test_the_mean_of_pseudovalues_is_hubers_one_step_estimate():
    """Median plus the mean of psi over the mean of its derivative, by hand: limit 0.06, one launch of six moved."""
    values = np.array([[0.0, 0.01, -0.01, 0.005, -0.005, 0.5]])
    median = 0.0025
    psi = np.clip(values - median, -0.06, 0.06)
    assert huber_pseudovalues(values, 0.02, 3.0).mean() == pytest.approx(median + psi.mean() / (5 / 6))


def test_outliers_are_those_of_each_race():
    """The spread of a noisy race sets no launch of it aside, and at most a third of the launches can be outliers."""
    calm, third = [*CALM, 0.36], [0.0, 0.001, 0.002, 0.5, 0.003, -0.5]
    noisy = [0.1, -0.2, 0.3, 0.0, -0.1, 0.2, -0.3, 0.5]
    for values in (calm, third):
        assert huber_pseudovalues(np.array([values]), 0.008, 3.0).tolist() != [values]
    assert huber_pseudovalues(np.array([noisy]), 0.008, 3.0).tolist() == [noisy]
    both = np.array([calm[1:], noisy])
    found = huber_pseudovalues(both, 0.008, 3.0)
    assert found[0] == pytest.approx(huber_pseudovalues(both[:1], 0.008, 3.0)[0])
    assert found[1].tolist() == noisy


def test_five_launches_can_have_an_outlier():
    values = np.array([[0.0, 0.001, -0.001, 0.002, 0.5]])
    assert huber_pseudovalues(values, 0.008, 3.0).max() == pytest.approx(0.001 + 0.024 * 5 / 4)


def test_fewer_than_five_launches_have_no_identifiable_outliers():
    values = np.array([[0.0, 0.001, -0.36, -0.361]])
    assert huber_pseudovalues(values, 0.008, 3.0).tolist() == values.tolist()


# The error that rounds show


def test_the_error_of_rounds_adds_to_the_usual_deviation_of_launches():
    shown = [Effect(value, pair, 0.02) for pair, value in enumerate((0.0, 0.01, -0.01))]
    hidden = [replace(effect, error=0.0) for effect in shown]
    noisier = POLICY.step_time._replace(launch_deviation=math.hypot(POLICY.launch_deviation, 0.02))
    found, plain = (interval(effects, 0.05, POLICY, shared_zygote=False) for effects in (shown, hidden))
    assert found == interval(hidden, 0.05, POLICY, shared_zygote=False, expected=noisier)
    assert found.low < plain.low < plain.high < found.high


def test_weighted_intervals_are_narrower_and_keep_their_level_if_errors_differ():
    """Launches have errors from 0.2 to 2%, and the usual deviation besides; 7% of the intervals may miss."""
    rng, missed, widths = np.random.default_rng(8), [], []
    for _ in range(400):
        errors = 0.006 * np.exp(0.6 * rng.standard_normal(9))
        values = rng.normal(0, np.hypot(POLICY.launch_deviation, errors))
        effects = [Effect(*one) for one in zip(values, POLICY.pair_order(), errors, strict=False)]
        alike = [replace(effect, error=float(np.sqrt(np.mean(errors**2)))) for effect in effects]
        both = [interval(some, 0.07, POLICY, shared_zygote=False) for some in (effects, alike)]
        missed.append([not found.low <= 1 <= found.high for found in both])
        widths.append([math.log(found.high / found.low) for found in both])
    weighted, plain = np.mean(missed, axis=0)
    print(f"missed: {weighted:.1%} weighted, {plain:.1%} with equal weights")
    assert weighted <= 0.07
    assert np.divide(*np.mean(widths, axis=0)) < 0.93


def test_an_outlier_is_limited_by_its_own_error():
    values, weight = np.array([[*CALM, 0.05]]), np.ones(len(CALM) + 1)
    plain = huber_pseudovalues(values, 0.008, 3.0)
    assert huber_pseudovalues(values, 0.008, 3.0, weight).tolist() == plain.tolist()
    weight[-1] = 1 / 9
    limited = huber_pseudovalues(np.array([[*CALM, 0.2]]), 0.008, 3.0, weight)
    assert huber_pseudovalues(values, 0.008, 3.0, weight).tolist() == values.tolist()  # within three of its deviations
    moved, stretch = float(np.median([*CALM, 0.2])) + 0.072 * (len(CALM) + 1 / 9) / len(CALM), limited.max()
    assert stretch == pytest.approx(moved)


SHIFTING = [
    (0.046, 0.094), (0.519, 0.005), (-0.403, 0.338), (-0.317, 0.516), (-0.302, 0.061), (-0.388, 0.057), (0.57, 0.011),
    (0.017, 0.16),
]  # fmt: skip
"""Log-ratios of real launches and their errors: a step in a thread, whose blocks have one call or eighty-six."""


def test_launches_that_hold_most_of_the_weight_are_no_outliers():
    for launches in (SHIFTING, [(0.0, 0.3), (0.02, 0.3), (-0.02, 0.3), (0.01, 0.3), (-0.01, 0.3), (0.5, 0.01)]):
        effects = [Effect(value, pair % 2, error) for pair, (value, error) in enumerate(launches)]
        found = interval(effects, 0.03, POLICY, shared_zygote=False)
        values = [value for value, _ in launches]
        assert min(values) < math.log(found.center) < max(values)
        assert found.high / found.low > 1.2


def test_the_error_of_a_launch_is_that_of_its_median():
    rng = np.random.default_rng(6)
    baseline, contender = np.exp(rng.normal(0, 0.1, (2, 100)))
    ratios, found = np.log(contender / baseline), launch_effect(baseline, contender, 3)
    assert (found.value, found.error) == pytest.approx((np.median(ratios), quantile_error(ratios)))
    assert found.pair == 3
    assert launch_effect([1.0], [2.0], 0).error == 0


def missed(kind, launches, rounds, policy, shown):
    """Return how often intervals at 93% from some recorded launches of unchanged code miss a ratio of 1."""
    rng, rates = np.random.default_rng(7), []
    for ratios, *_ in recorded(kind):
        some = ratios[:, :rounds]
        values, errors = np.median(some, axis=1), np.array([quantile_error(one) for one in some])
        misses = []
        for _ in range(40):
            chosen = rng.permutation(len(values))[:launches]
            effects = [
                Effect(values[launch], pair, errors[launch] if shown else 0.0)
                for launch, pair in zip(chosen, policy.pair_order(), strict=False)
            ]
            found = interval(effects, 0.07, policy, shared_zygote=False)
            misses.append(not found.low <= 1 <= found.high)
        rates.append(np.mean(misses))
    return float(np.mean(rates))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rounds", "launches"), [("quick", 100, 2), ("quick", 100, 3), ("standard", 200, 3)])
def test_intervals_of_recorded_launches_keep_their_level_on_a_busy_machine(name, rounds, launches):
    """Prints how often they miss, without the error of rounds and with it; 7% is allowed."""
    policy = PRESETS[name].with_common_ancestors()
    for kind in ("quiet", "busy"):
        without, found = (missed(kind, launches, rounds, policy, shown) for shown in (False, True))
        print(f"{name}, {launches} launches of {rounds} rounds, {kind}: {without:.1%} without, {found:.1%} with")
        assert found <= 0.07
    assert without > 0.09
