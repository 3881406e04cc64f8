"""First calls that two sides make in turn, beside neighbours."""

import math

import pytest

from tfbench.model import DOUBT, ONCE
from tfbench.protocol import Prepared
from tfbench.race.launch import alone

CALL = Prepared(1e-5, {"first_call": 4.0, "first_call_parts": {"trace": 2.0}}, first_call=(4.0, 1.0, 1_000_000_000))


def test_on_a_quiet_machine_a_call_takes_its_own_time():
    assert alone(CALL, 0.0) is CALL
    assert alone(Prepared(1e-5, {}), 9e9) == Prepared(1e-5, {})


def test_a_call_and_its_parts_may_be_too_short():
    facts = alone(CALL, 9e9).facts
    assert (facts["first_call"], facts["first_call_parts"]) == (1.0, {"trace": 0.5})
    assert facts["first_call_doubt"] == pytest.approx(math.log(4))


def test_neighbours_have_taken_no_more_than_they_ran():
    assert alone(CALL, 1e9).facts["first_call"] == 3.0


def test_a_step_that_runs_once_is_treated_alike():
    once = alone(Prepared(4.0, {ONCE: True}, first_call=(4.0, 1.0, 0)), 9e9)
    assert once.iteration == 1.0
    assert once.facts[DOUBT] == pytest.approx(math.log(4))
