"""Policies refuse what cannot decide."""

from dataclasses import replace

import pytest

from tfbench.errors import UsageError
from tfbench.policy import PRESETS, Policy, preset


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_named_as_they_are_asked_for(name):
    assert preset(name).name == name


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(UsageError, match="quick, standard, strict"):
        preset("lax")


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0},
        {"alpha": 0.6},
        {"looks": ()},
        {"looks": (9, 6)},
        {"looks": (1, 3)},
        {"alone_launches": 0},
        {"zygotes": 0},
        {"most_zygotes_after": 8},
        {"minimum_effect": 0.5},
    ],
)
def test_impossible_thresholds_are_refused(change):
    with pytest.raises(UsageError):
        replace(Policy(), **change)


def test_a_race_that_goes_on_takes_launches_from_more_and_more_pairs_of_zygotes():
    order = preset("quick").with_common_ancestors().pair_order()
    assert order[:12] == (0, 1, 0, 1, 0, 2, 3, 2, 3, 1, 2, 3)
    assert [order.count(pair) for pair in range(4)] == [5, 5, 5, 5]
    assert preset("quick").pair_order() == tuple(launch % 6 for launch in range(20))
    assert {name: len(set(preset(name).with_common_ancestors().pair_order())) for name in PRESETS} == {
        "quick": 4,
        "standard": 12,
        "strict": 16,
    }
    order = preset("standard").with_common_ancestors().pair_order()
    assert [len(set(order[:count])) for count in (9, 13, 26, 30, 48)] == [4, 8, 8, 12, 12]
    assert order[26:34] == (8, 9, 10, 11, 8, 9, 10, 11)
    assert set(replace(Policy(), zygotes=1).with_common_ancestors().pair_order()) == {0}


def test_another_smallest_slowdown():
    quick = preset("quick")
    for smallest, screen in ((0.02, quick.screen_tolerance), (0.1, 0.2)):
        found = quick.with_slowdown(smallest)
        assert (found.minimum_effect, found.tolerance, found.screen_tolerance) == (smallest, 2 * smallest, screen)
    with pytest.raises(
        UsageError, match=r"smallest slowdown of 0\.5: give a fraction between 0 and 0\.5, such as 0\.05"
    ):
        quick.with_slowdown(0.5)
