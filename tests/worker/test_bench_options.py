"""The keywords of bench."""

import json

import numpy as np
import pytest

from tfbench.errors import BenchmarkError
from tfbench.worker.bench import facts


def test_amounts_and_contracts_are_kept_and_none_is_left_out():
    given = {"flops": 3, "items": None, "parity": 1e-3, "expect_ops": {"A": 0}, "artifact": b""}
    assert facts(given) == {"flops": 3, "contracts": {"expect_ops": {"A": 0}, "parity": 1e-3}}
    assert facts({}) == {}


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"speed": 1}, "no keyword 'speed': for an argument of the step, write .*; it has flops, bytes, items, expect"),
        ({"flops": 0}, "a positive number"),
        ({"max_traces": 1.5}, "a whole number"),
        ({"max_traces": True}, "a whole number"),
        ({"max_peak_bytes": -1}, "a positive number"),
        ({"parity": np.eye(3)}, r"parity=array.* must be a relative error"),
        ({"expect_ops": {}}, "how often each op"),
        ({"expect_ops": "A"}, "how often each op"),
    ],
)
def test_an_invalid_keyword_is_refused_with_the_valid_ones(keywords, words):
    with pytest.raises(BenchmarkError, match=words) as caught:
        facts(keywords)
    assert not caught.value.rest  # a headline with its fix


def test_numpy_scalars_are_numbers():
    found = facts({"bytes": np.int64(7), "flops": np.float32(2.5)})
    assert found == {"bytes": 7, "flops": 2.5}
    assert json.dumps(found)
