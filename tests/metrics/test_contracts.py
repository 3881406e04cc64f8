"""Contracts of a benchmark: held, broken, unreadable, undecided."""

import pytest

from tfbench.metrics.contracts import of_case, of_metric_values, of_times, parity
from tfbench.model import Case, Claim, Comparison, MetricValues, Outcome, Ratio
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
METRIC_VALUES = MetricValues(
    counts={
        "graph_ops": {"_MklNativeFusedConv2D": 1}, "optimized_ops": {"_FusedConv2D": 1},
        "traces": {"f": 1}, "retraces": {"f: argument 0 was 1, then 2": 2},
    }
)  # fmt: skip


def checked(contracts, metric_values=METRIC_VALUES, peaks=(1e6, 2e6, 3e6)):
    (row,) = of_case(CASE, contracts, metric_values, peaks)
    return row


@pytest.mark.parametrize(
    ("contract", "outcome", "words"),
    [
        ({"expect_ops": {"_FusedConv2D": 1}}, Outcome.UNCHANGED, "as expected: _FusedConv2D"),
        ({"expect_ops": {"_MklNativeFusedConv2D": 1}}, Outcome.UNCHANGED, "as expected"),
        ({"expect_ops": {"Cast": 0}}, Outcome.UNCHANGED, "none of Cast"),
        ({"expect_ops": {"_FusedConv2D": 2}}, Outcome.REGRESSED, "2 _FusedConv2D expected, 1 found"),
        ({"compiled": False}, Outcome.UNCHANGED, "the probing launch did not report it"),
        ({"compiled": True}, Outcome.REGRESSED, "compilation by XLA expected"),
        ({"max_traces": 3}, Outcome.UNCHANGED, "traced 3 times, 3 allowed"),
        ({"max_traces": 1}, Outcome.REGRESSED, "1 allowed: 2 f: argument 0 was 1, then 2"),
        ({"max_peak_bytes": 2e6}, Outcome.UNCHANGED, "1.91 MiB allowed"),
        ({"max_peak_bytes": 1e6}, Outcome.REGRESSED, "peak of 1.91 MiB"),
    ],
)
def test_a_contract_holds_or_is_broken(contract, outcome, words):
    row = checked(contract)
    assert row.outcome is outcome
    assert words in row.reason.message
    assert row.metric == f"contract:{next(iter(contract))}"


@pytest.mark.parametrize("contract", [{"expect_ops": {"A": 0}}, {"max_traces": 1}, {"max_peak_bytes": 1}])
def test_an_unreadable_contract_is_an_error(contract):
    assert checked(contract, MetricValues(absent={"graph_ops": "an eager op"}), ()).outcome is Outcome.ERROR


def test_the_memory_of_an_accelerator_counts_instead_of_the_process():
    metric_values = MetricValues(numbers={"peak_device_memory": 5e5})
    assert checked({"max_peak_bytes": 1e6}, metric_values).outcome is Outcome.UNCHANGED


def test_parity_holds_up_to_the_allowed_error():
    assert parity(1e-3, 1e-3)[0] is Outcome.UNCHANGED
    assert parity(1e-3, 2e-3)[0] is Outcome.REGRESSED
    assert parity(1e-3, float("inf"))[0] is Outcome.REGRESSED
    assert parity(1e-3, "the reference is not in this run")[0] is Outcome.INCONCLUSIVE


FASTER = Claim("faster_than", "pipeline=naive", (), 1.2)
AS_FAST = Claim("as_fast", "pruning=none", ())


@pytest.mark.parametrize(
    ("claim", "low", "high", "outcome"),
    [
        (FASTER, 1.3, 1.5, Outcome.UNCHANGED),
        (FASTER, 1.1, 1.5, Outcome.INCONCLUSIVE),
        (FASTER, 0.9, 1.19, Outcome.REGRESSED),
        (AS_FAST, 0.985, 1.015, Outcome.UNCHANGED),
        (AS_FAST, 0.9, 1.01, Outcome.INCONCLUSIVE),
        (AS_FAST, 1.1, 1.2, Outcome.REGRESSED),
        (AS_FAST, 0.8, 0.9, Outcome.REGRESSED),
    ],
)
def test_a_claim_about_times_needs_proof(claim, low, high, outcome):
    found = Comparison(Ratio((low + high) / 2, low, high, 0.95), 3, 3, 100)
    assert of_times(claim, found, preset("standard"))[0] is outcome
    assert of_times(claim, "it broke", preset("standard"))[0] is Outcome.INCONCLUSIVE


def read(**numbers):
    return MetricValues(numbers=numbers)


@pytest.mark.parametrize(
    ("claim", "mine", "other", "outcome"),
    [
        (("smaller_than", 2.5, "artifact_bytes"), 40, 100, Outcome.UNCHANGED),
        (("smaller_than", 2.5, "artifact_bytes"), 41, 100, Outcome.REGRESSED),
        (("as_accurate", 0.01, "accuracy"), 0.96, 0.97, Outcome.UNCHANGED),
        (("as_accurate", 0.01, "accuracy"), 0.98, 0.97, Outcome.UNCHANGED),
        (("as_accurate", 0.01, "accuracy"), 0.95, 0.97, Outcome.REGRESSED),
    ],
)
def test_a_claim_about_a_model_needs_the_metric_of_both_variants(claim, mine, other, outcome):
    name, bound, metric = claim
    claim = Claim(name, "pruning=none", (), bound, metric)
    assert of_metric_values(claim, read(**{metric: mine}), read(**{metric: other}))[0] is outcome
    assert of_metric_values(claim, read(**{metric: mine}), "the variant is not in this run")[0] is Outcome.INCONCLUSIVE
    for some in ((read(), read(**{metric: other})), (read(**{metric: mine}), read())):
        assert of_metric_values(claim, *some)[0] is Outcome.ERROR
