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
        {"minimum_effect": 0.5},
    ],
)
def test_impossible_thresholds_are_refused(change):
    with pytest.raises(UsageError):
        replace(Policy(), **change)
