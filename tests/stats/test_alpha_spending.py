"""Boundaries against published values, and spent alpha against the budget."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from tfbench.policy import PRESETS, Policy
from tfbench.stats.alpha_spending import alpha_per_look, case_alpha, look_alpha, look_of, unchanged_alpha

FIVE = (1, 2, 3, 4, 5)
OBRIEN_FLEMING = tuple(2 * stats.norm.sf(stats.norm.isf(0.0125) / math.sqrt(look / 5)) / 0.025 for look in FIVE)
POCOCK = tuple(math.log(1 + (math.e - 1) * look / 5) for look in FIVE)


@pytest.mark.parametrize(
    ("spent", "published"),
    [
        (OBRIEN_FLEMING, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        (POCOCK, [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]),
    ],
    ids=["O'Brien-Fleming", "Pocock"],
)
def test_the_boundaries_of_lan_and_demets(spent, published):
    """Five even looks, 2.5% a side: the table that Reboussin, DeMets, Kim & Lan's program prints (2000,
    Control. Clin. Trials 21)."""
    found = [stats.norm.isf(level / 2) for level in alpha_per_look(0.05, FIVE, spent)]
    assert found == pytest.approx(published, abs=2e-4)


def test_one_look_spends_everything():
    assert alpha_per_look(0.03, (7,)) == pytest.approx((0.03,))


def test_two_stages_together_spend_a_cases_share_of_the_run():
    policy = replace(Policy(), alpha_case=0.4)
    for cases in (1, 30, 1000):
        assert (case_alpha(policy, cases) / 2) ** 2 * cases == pytest.approx(policy.alpha)
    assert case_alpha(replace(policy, confirm=False), 30) == pytest.approx(policy.alpha / 30)
    assert case_alpha(Policy(), 1) == Policy().alpha_case
    assert case_alpha(Policy(), 0) == case_alpha(Policy(), 1)


def test_launches_between_looks_use_the_next_one():
    looks = (3, 4, 6, 9)
    assert [look_of(launches, looks) for launches in (1, 3, 4, 5, 6, 7, 9, 12)] == [0, 0, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("name", PRESETS)
def test_unchanged_has_an_alpha_of_its_own_that_cases_do_not_share(name):
    policy = replace(PRESETS[name], alpha_unchanged=0.03)
    levels = [unchanged_alpha(policy, look) for look in range(len(policy.looks))]
    assert levels == pytest.approx(alpha_per_look(0.06, policy.looks))
    assert levels[0] > look_alpha(policy, 320, 0)
