"""The assignment of cases to shards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.errors import UsageError
from tfbench.model import Case
from tfbench.suite.shards import Shard, digest, parse_shard


@given(st.integers(1, 12), st.lists(st.text(min_size=1), min_size=1, max_size=20))
def test_each_case_is_in_exactly_one_shard_together_with_its_other_variants(of, groups):
    for group in groups:
        for name in ("a", "b"):
            owners = [index for index in range(1, of + 1) if Shard(index, of).has(Case(name, "w", group))]
            assert len(owners) == 1
            assert Shard(owners[0], of).has(Case("other", "w", group))


def test_the_split_is_deterministic_and_nearly_even():
    cases = [Case(f"b/test_{n}.py::test", "w", f"b/test_{n}.py::test") for n in range(400)]
    sizes = [sum(Shard(index, 4).has(case) for case in cases) for index in range(1, 5)]
    assert min(sizes) > 75
    assert Shard(1, 2).has(Case("x", "w", "stable")) == Shard(1, 2).has(Case("y", "w", "stable"))


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/999", "a/b", "1/2/3", "-1/2"])
def test_an_invalid_shard_is_refused(text):
    with pytest.raises(UsageError, match="write 2/4"):
        parse_shard(text)


def test_a_shard_is_parsed_and_the_digest_ignores_the_order_of_names():
    assert str(parse_shard("2/4")) == "2/4"
    assert digest(["a", "b"]) == digest(["b", "a"]) != digest(["a"])
