"""Simulated error rates of whole races, against the targets of the presets."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tfbench.doctor.noise import OUTCOMES, NoiseModel, classify_races, evaluate, region_tails, simulate
from tfbench.model import Effect, Outcome
from tfbench.policy import PRESETS
from tfbench.stats.alpha_spending import case_alpha, look_alpha, unchanged_alpha
from tfbench.stats.interval import interval, posterior
from tfbench.stats.verdict import balanced, classify, decide

STANDARD, STRICT, QUICK = PRESETS["standard"], PRESETS["strict"], PRESETS["quick"]
TYPICAL = NoiseModel()
NOISY = NoiseModel(launch_deviation=0.008, zygote_deviation=0.007)
EAGER = NoiseModel(launch_deviation=0.007, zygote_deviation=0.012)
"""The noisiest pairs of zygotes: ops of a few microseconds."""
SHARED = NoiseModel(launch_deviation=0.008, zygote_deviation=0.001)
CASES = 30


class HeavyTailed(NoiseModel):
    """Student's t with 3 degrees of freedom, and the same deviation."""

    def scatter(self, rng, like):
        return self.launch_deviation * rng.standard_t(3, like.shape) / math.sqrt(3)


class Bistable(NoiseModel):
    """Normal, and in a tenth of the launches the baseline takes 30% less time."""

    def scatter(self, rng, like):
        return super().scatter(rng, like) - math.log(0.7) * (rng.random(like.shape) < 0.1)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("launches", [3, 4, 9, 30])
def test_many_races_at_once_are_classified_as_one_at_a_time(launches, shared):
    rng = np.random.default_rng(launches)
    pairs = np.arange(launches) % 6
    values = rng.normal(rng.uniform(-0.04, 0.04, (60, 1)), 0.008, (60, launches))
    values[rng.random(values.shape) < 0.05] -= 0.3
    distribution = posterior(values, pairs, STANDARD, shared_zygote=shared)
    low, high = distribution.bounds(0.004)
    codes = classify_races(region_tails(distribution, STANDARD.step_time, 0.004), 0.004)
    seen = set()
    for race, row in enumerate(values):
        evidence = [Effect(value, pair) for value, pair in zip(row, pairs.tolist(), strict=True)]
        ratio = interval(evidence, 0.004, STANDARD, shared_zygote=shared)
        assert (ratio.low, ratio.high) == pytest.approx((np.exp(low[race]), np.exp(high[race])), rel=1e-9)
        outcome = classify(ratio.low, ratio.high, STANDARD.step_time) or Outcome.INCONCLUSIVE
        assert OUTCOMES[codes[race]] is outcome
        seen.add(outcome)
    assert len(seen) >= 3


@pytest.mark.parametrize("cases", [1, 320])
@pytest.mark.parametrize("look", [0, 2, 6])
def test_many_races_at_once_are_decided_as_one_at_a_time(look, cases):
    launches = STANDARD.looks[look]
    rng = np.random.default_rng(launches)
    pairs = np.arange(launches) % 12
    values = rng.normal(rng.uniform(-0.06, 0.06, (80, 1)), 0.004, (80, launches))
    distribution = posterior(values, pairs, STANDARD, shared_zygote=False)
    codes = evaluate(
        distribution, look_alpha(STANDARD, cases, look), unchanged_alpha(STANDARD, look), STANDARD.step_time
    )
    seen = set()
    for code, row, even in zip(codes, values, balanced(values, STANDARD.step_time), strict=True):
        evidence = [Effect(value, pair) for value, pair in zip(row, pairs.tolist(), strict=True)]
        outcome = decide(evidence, 1, STANDARD, cases=cases, shared_zygote=False, final=True).outcome
        assert outcome is (OUTCOMES[code] if even or OUTCOMES[code] is not Outcome.UNCHANGED else Outcome.INCONCLUSIVE)
        seen.add(outcome)
    assert len(seen) >= 3


@pytest.mark.parametrize("model", [TYPICAL, NOISY, EAGER], ids=["typical", "noisy", "eager"])
@pytest.mark.parametrize("policy", [QUICK, STANDARD], ids=["quick", "standard"])
def test_a_case_at_the_edge_of_the_tolerance_is_rarely_unchanged(policy, model):
    for effect in (policy.tolerance, 1 / (1 + policy.tolerance) - 1):
        found = simulate(policy, replace(model, effect=effect), 6_000, 18, cases=320)
        assert found.rate(Outcome.UNCHANGED) <= 0.05


@pytest.mark.parametrize(("deviation", "found"), [(0.006, 0.97), (0.01, 0.93)])
def test_a_slowdown_of_the_tolerance_is_found_though_it_is_measured_too_small(deviation, found):
    model = NoiseModel(0.019, deviation, STANDARD.ancestor_deviation)
    assert simulate(STANDARD.with_common_ancestors(), model, 2_000, 20, cases=320).rate(Outcome.REGRESSED) >= found


def test_the_cases_of_a_run_hardly_change_the_cost_of_unchanged_code():
    for model, launches in ((TYPICAL, 4.6), (EAGER, 9.3)):
        found = simulate(STANDARD, model, 4_000, 19, cases=320)
        assert found.launches.mean() <= launches
        assert found.rate(Outcome.UNCHANGED) >= 0.98
        assert found.rate(Outcome.REGRESSED, first=True) <= case_alpha(STANDARD, 320) / 2


@pytest.mark.parametrize("deviation", [0.05, 0.08, 0.12])
def test_first_calls_keep_their_levels_over_all_looks(deviation):
    chosen = QUICK.first_call._asdict()
    policy = replace(QUICK, **chosen)
    model = NoiseModel(0.0, deviation, policy.zygote_deviation)
    same, edge, slower = (simulate(policy, replace(model, effect=effect), 3_000, 20, cases=320)
                          for effect in (0.0, policy.tolerance, 0.5))  # fmt: skip
    assert same.rate(Outcome.UNCHANGED) >= 0.99
    assert same.rate(Outcome.REGRESSED, first=True) <= case_alpha(policy, 320) / 2
    assert edge.rate(Outcome.UNCHANGED) <= 0.05
    assert slower.rate(Outcome.REGRESSED) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NoiseModel, HeavyTailed, Bistable])
def test_unchanged_code_stays_within_the_false_positive_budget(noise):
    """100,000 races: a tenth each of the deviations that were measured, quiet, typical and memory-bound ones."""
    measured = [(0.4, 0.3), (0.6, 0.5), (0.8, 0.5), (0.6, 0.7), (0.7, 0.3), (1.1, 0.3), (1.8, 1.2), (0.6, 0.0),
                (0.4, 1.2), (1.9, 0.7)]  # fmt: skip
    false_positives, suspected = 0.0, 0.0
    for seed, (launch, zygote) in enumerate(measured):
        found = simulate(STANDARD, noise(0.0, launch / 100, zygote / 100), 10_000, seed, cases=CASES)
        false_positives += found.rate(Outcome.REGRESSED) / len(measured)
        suspected += found.rate(Outcome.REGRESSED, first=True) / len(measured)
    assert false_positives <= 0.01 / CASES  # a run in a hundred
    assert suspected <= case_alpha(STANDARD, CASES) / 2


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_run_keeps_its_budget_even_if_every_case_is_at_the_minimum_effect(factor):
    """The worst that must be no false positive, with noise as the policy knows it and twice that."""
    model = NoiseModel(STANDARD.minimum_effect, factor * STANDARD.launch_deviation, factor * STANDARD.zygote_deviation)
    found = simulate(STANDARD, model, 15_000, 5, cases=CASES)
    stage = found.rate(Outcome.REGRESSED, first=True)
    assert stage <= case_alpha(STANDARD, CASES) / 2 * (1.0 if factor == 1 else 1.75)
    # Twice the noise costs: three times the budget, of which the null itself uses nothing.
    assert found.rate(Outcome.REGRESSED) <= 0.01 / CASES * (1.0 if factor == 1 else 4.0)


def test_one_stage_stays_near_its_level_in_noise_far_beyond_the_prior():
    found = simulate(STANDARD, NoiseModel(0.0, 0.4, 0.01), 5_000, 6, cases=CASES)
    assert found.rate(Outcome.REGRESSED, first=True) < 2 * case_alpha(STANDARD, CASES) / 2
    assert found.rate(Outcome.REGRESSED) < 0.004


@pytest.mark.parametrize("model", [TYPICAL, NOISY], ids=["typical", "noisy"])
def test_standard_reaches_its_targets(model):
    same = simulate(STANDARD, model, 10_000, 7, cases=CASES)
    assert same.rate(Outcome.INCONCLUSIVE) <= 0.03
    assert same.rate(Outcome.UNCHANGED) >= 0.97
    assert same.median_launches <= 6
    for effect, wanted, launches in ((0.03, 0.97, 10), (0.05, 0.995, 7), (0.10, 1.0, 6)):
        found = simulate(STANDARD, replace(model, effect=effect), 10_000, 8, cases=CASES)
        assert found.rate(Outcome.REGRESSED) >= wanted
        assert found.median_launches <= launches


def test_strict_detects_two_percent_and_one_between_variants():
    found = simulate(STRICT, replace(NOISY, effect=0.02), 3_000, 9, cases=CASES)
    assert found.rate(Outcome.REGRESSED) >= 0.90
    found = simulate(STRICT, replace(SHARED, effect=0.01), 3_000, 10, cases=CASES, shared_zygote=True)
    assert found.rate(Outcome.REGRESSED) >= 0.80


def test_standard_detects_two_percent_between_variants():
    found = simulate(STANDARD, replace(SHARED, effect=0.02), 3_000, 11, cases=CASES, shared_zygote=True)
    assert found.rate(Outcome.REGRESSED) >= 0.90


def test_quick_reaches_its_targets_in_two_launches():
    same = simulate(QUICK, TYPICAL, 5_000, 12, cases=CASES)
    assert same.rate(Outcome.UNCHANGED) >= 0.99
    assert same.median_launches == 2
    assert simulate(QUICK, replace(TYPICAL, effect=0.05), 5_000, 13, cases=CASES).rate(Outcome.REGRESSED) >= 0.95
    assert simulate(QUICK, replace(TYPICAL, effect=0.10), 5_000, 14, cases=CASES).rate(Outcome.REGRESSED) >= 0.999


@pytest.mark.parametrize("policy", [QUICK, STANDARD], ids=["quick", "standard"])
@pytest.mark.parametrize("error", [0.01, 0.02, 0.03])
def test_noise_that_rounds_show_leads_to_no_hasty_verdicts(policy, error):
    model = NoiseModel(0.0, math.hypot(0.005, error), 0.0015, rounds_error=error)
    chosen = policy.with_common_ancestors()
    same, edge, unaware = (
        simulate(chosen, one, 3_000, 21, cases=320)
        for one in (
            model,
            replace(model, effect=policy.tolerance),
            replace(model, effect=policy.tolerance, rounds_error=0.0),
        )
    )
    assert same.rate(Outcome.REGRESSED, first=True) + same.rate(Outcome.IMPROVED, first=True) <= 0.001
    assert edge.rate(Outcome.UNCHANGED) <= policy.alpha_unchanged
    assert edge.rate(Outcome.UNCHANGED) < unaware.rate(Outcome.UNCHANGED)


@pytest.mark.parametrize(("policy", "share"), [(QUICK, 0.9), (STANDARD, 0.97)], ids=["quick", "standard"])
def test_more_pairs_find_small_slowdowns_of_noisy_cases_in_fewer_launches(policy, share):
    chosen = policy.with_common_ancestors()
    few = replace(chosen, zygotes=chosen.first_zygotes)
    deviation = policy.minimum_effect if policy is STANDARD else 0.02
    model = NoiseModel(policy.tolerance, deviation, 0.0015, rounds_error=math.sqrt(deviation**2 - 0.006**2))
    found, before = (simulate(one, model, 600, 31, cases=320) for one in (chosen, few))
    assert found.rate(Outcome.REGRESSED) >= share > before.rate(Outcome.REGRESSED)
    assert found.launches.mean() < 0.9 * before.launches.mean()


def test_an_improvement_is_a_mirrored_regression():
    slower = simulate(STANDARD, replace(TYPICAL, effect=0.02), 4_000, 15, cases=CASES)
    faster = simulate(STANDARD, replace(TYPICAL, effect=1 / 1.02 - 1), 4_000, 16, cases=CASES)
    assert faster.rate(Outcome.IMPROVED) == pytest.approx(slower.rate(Outcome.REGRESSED, first=True), abs=0.03)


def test_the_same_seed_gives_the_same_races():
    one, two = (simulate(STANDARD, NOISY, 500, 17) for _ in range(2))
    assert (one.final == two.final).all()
    assert sum(map(one.rate, OUTCOMES)) == pytest.approx(1)
    assert (one.launches == two.launches).all()
