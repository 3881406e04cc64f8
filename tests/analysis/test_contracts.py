"""Contracts: what a benchmark says must hold of it."""

import pytest

from tfbench.analysis.contracts import faster_than, of_reading, parity
from tfbench.model import Case, Comparison, Outcome, Ratio, Reading

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
READING = Reading(
    counts={
        "graph_ops": {"_MklNativeFusedConv2D": 1}, "optimized_ops": {"_FusedConv2D": 1},
        "traces": {"f": 1}, "retraces": {"f: argument 0 was 1, then 2": 2},
    }
)  # fmt: skip


def ruled(contracts, reading=READING, peaks=(1e6, 2e6, 3e6)):
    (row,) = of_reading(CASE, contracts, reading, peaks)
    return row


@pytest.mark.parametrize(
    ("contract", "outcome", "words"),
    [
        ({"expect_ops": {"_FusedConv2D": 1}}, Outcome.UNCHANGED, "as expected: _FusedConv2D"),
        ({"expect_ops": {"_MklNativeFusedConv2D": 1}}, Outcome.UNCHANGED, "as expected"),
        ({"expect_ops": {"Cast": 0}}, Outcome.UNCHANGED, "none of Cast"),
        ({"expect_ops": {"_FusedConv2D": 2}}, Outcome.REGRESSED, "2 _FusedConv2D expected, 1 found"),
        ({"compiled": False}, Outcome.UNCHANGED, "it was not told"),
        ({"compiled": True}, Outcome.REGRESSED, "to be compiled by XLA"),
        ({"max_traces": 3}, Outcome.UNCHANGED, "traced 3 times, 3 allowed"),
        ({"max_traces": 1}, Outcome.REGRESSED, "1 allowed: 2 f: argument 0 was 1, then 2"),
        ({"max_peak_bytes": 2e6}, Outcome.UNCHANGED, "1.91 MiB allowed"),
        ({"max_peak_bytes": 1e6}, Outcome.REGRESSED, "peak of 1.91 MiB"),
    ],
)
def test_a_contract_holds_or_is_broken(contract, outcome, words):
    row = ruled(contract)
    assert row.outcome is outcome
    assert words in row.reason.message
    assert row.metric == f"contract:{next(iter(contract))}"


@pytest.mark.parametrize("contract", [{"expect_ops": {"A": 0}}, {"max_traces": 1}, {"max_peak_bytes": 1}])
def test_what_cannot_be_read_is_an_error_and_no_pass(contract):
    assert ruled(contract, Reading(absent={"graph_ops": "an eager op"}), ()).outcome is Outcome.ERROR


def test_an_accelerator_counts_its_own_memory():
    reading = Reading(numbers={"peak_device_memory": 5e5})
    assert ruled({"max_peak_bytes": 1e6}, reading).outcome is Outcome.UNCHANGED


def test_parity():
    assert parity(1e-3, 1e-3)[0] is Outcome.UNCHANGED
    assert parity(1e-3, 2e-3)[0] is Outcome.REGRESSED
    assert parity(1e-3, float("inf"))[0] is Outcome.REGRESSED
    assert parity(1e-3, "its reference is no part of this run")[0] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(1.3, 1.5, Outcome.UNCHANGED), (1.1, 1.5, Outcome.INCONCLUSIVE), (0.9, 1.19, Outcome.REGRESSED)],
)
def test_a_factor_must_be_proved(low, high, outcome):
    found = Comparison(Ratio((low + high) / 2, low, high, 0.95), 3, 3, 100)
    assert faster_than("pipeline=naive", 1.2, found)[0] is outcome
    assert faster_than("pipeline=naive", 1.2, "it broke")[0] is Outcome.INCONCLUSIVE
