"""The options of bisect."""

from tfbench.policy import preset
from tfbench.versions.bisect import policy_of


def policy(metric, slowdown):
    return policy_of(preset("standard"), metric, slowdown)


def test_the_smallest_slowdown_of_the_times():
    assert policy("time", None) == preset("standard")
    found = policy("time", 0.1)
    assert (found.minimum_effect, found.tolerance) == (0.1, 0.2)
    assert found.first_call_effect == preset("standard").first_call_effect


def test_the_smallest_slowdown_of_the_first_call():
    found = policy("first_call", 0.25)
    assert (found.first_call_effect, found.first_call_tolerance) == (0.25, 0.5)
    assert found.minimum_effect == preset("standard").minimum_effect
