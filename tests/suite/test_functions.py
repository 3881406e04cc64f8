"""The digest of a benchmark's own code."""

import sys

import pytest

from tfbench.suite.claims import no_leak
from tfbench.suite.functions import digest


def plain(bench):
    bench(sum, [1])


@pytest.mark.tfbench(minimum_effect=0.45, tolerance=0.9)
@pytest.mark.slow
@no_leak
def marked(bench):
    bench(sum, [1])


def other(bench):
    bench(sum, [2])


def test_a_name_a_mark_or_a_contract_is_no_other_code():
    assert digest(plain) == digest(marked)
    assert digest(plain) != digest(other)
    assert digest(sys.modules[__name__])


def test_decorators_count_in_the_digest_of_a_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = set()
    for number, decorator in enumerate(("", "@staticmethod\n")):
        (tmp_path / f"made_{number}.py").write_text(f"{decorator}def build(): ...\n")
        found.add(digest(__import__(f"made_{number}")))
    assert len(found) == 2
