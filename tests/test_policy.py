"""Policies can decide."""

from dataclasses import replace

import pytest

from tfbench.errors import UsageError
from tfbench.model import STATISTICS
from tfbench.policy import PRESETS, Policy, preset
from tfbench.versions.bisect import patient


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_named_as_they_are_asked_for(name):
    assert preset(name).name == name
    with pytest.raises(UsageError, match="quick, standard, strict"):
        preset("lax")


DERIVED = {
    "as it is": lambda policy: policy,
    "patient": patient,
    "on a GPU": Policy.on_gpu,
    "common ancestors": Policy.with_common_ancestors,
    "largest slowdown": lambda policy: policy.with_slowdown(0.49),
    "device": lambda policy: policy.with_device_gate(0.49),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_the_thresholds_of_presets_can_decide(preset, derive):
    policy = derive(preset)
    looks = policy.looks and policy.looks[0] >= 2 and list(policy.looks) == sorted(set(policy.looks))
    rules = {
        "0 < minimum_effect < tolerance < 1 must hold": 0 < policy.minimum_effect < policy.tolerance < 1,
        "0 < tail_effect < tail_tolerance < 1 must hold": 0 < policy.tail_effect < policy.tail_tolerance < 1,
        f"statistic must be one of {', '.join(STATISTICS)}": policy.statistic in STATISTICS,
        "looks must be increasing numbers of launches, the first at least 2": looks,
        "zygotes and ancestors must be at least 1": min(policy.zygotes, policy.ancestors) >= 1,
        "most_zygotes_after must be at least more_zygotes_after": policy.more_zygotes_after
        <= policy.most_zygotes_after,
        "0 < device_effect < 0.5 must hold": 0 < policy.device_effect < 0.5,
        "the numbers of launches must be at least 1": min(
            policy.case_launches, policy.alone_launches, policy.device_launches
        )
        >= 1,
    }
    assert [rule for rule, holds in rules.items() if not holds] == []


def test_a_race_that_goes_on_takes_launches_from_more_and_more_pairs_of_zygotes():
    order = preset("quick").with_common_ancestors().pair_order()
    assert order[:12] == (0, 1, 0, 1, 0, 2, 3, 2, 3, 1, 2, 3)
    assert [order.count(pair) for pair in range(4)] == [5, 5, 5, 5]
    assert preset("quick").pair_order() == tuple(launch % 6 for launch in range(20))
    order = preset("standard").with_common_ancestors().pair_order()
    assert [len(set(order[:count])) for count in (9, 13, 26, 30, 48)] == [4, 8, 8, 12, 12]
    assert order[26:34] == (8, 9, 10, 11, 8, 9, 10, 11)
    assert set(replace(Policy(), zygotes=1).with_common_ancestors().pair_order()) == {0}


def test_another_smallest_slowdown():
    quick = preset("quick")
    for smallest in (0.02, 0.1):
        found = quick.with_slowdown(smallest)
        assert (found.minimum_effect, found.tolerance) == (smallest, 2 * smallest)
    with pytest.raises(
        UsageError, match=r"smallest slowdown of 0\.5: give a fraction between 0 and 0\.5, such as 0\.05"
    ):
        quick.with_slowdown(0.5)
