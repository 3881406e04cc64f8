"""Contracts of a benchmark: held, broken, unreadable, undecided."""

from dataclasses import replace

import pytest

from tfbench.metrics.contracts import claim_row, leak_free, of_case, of_metric_values, of_times, parity
from tfbench.metrics.parity import Difference
from tfbench.model import Case, Claim, Comparison, MetricValues, Outcome, Ratio, Reason, Verdict
from tfbench.model.case import NO_ACCELERATOR, NO_MODULE
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
METRIC_VALUES = MetricValues(
    counts={
        "graph_ops": {"_MklNativeFusedConv2D": 1}, "optimized_ops": {"_FusedConv2D": 1},
        "traces": {"f": 1}, "retraces": {"f: argument 0 was 1, then 2": 2},
    },
    absent={"xla_kernels": NO_MODULE, "peak_device_memory": NO_ACCELERATOR},
)  # fmt: skip


def checked(contracts, metric_values=METRIC_VALUES, peaks=(1e6, 2e6, 3e6)):
    (row,) = of_case(CASE, contracts, metric_values, peaks)
    return row


@pytest.mark.parametrize(
    ("contract", "outcome", "text"),
    [
        ({"expect_ops": {"_MklNativeFusedConv2D": 1}}, "held", "as expected: _MklNativeFusedConv2D"),
        ({"expect_ops": {"Cast": 0, "A": 0}}, "held", "as expected: none of Cast, A"),
        ({"expect_ops": {"_FusedConv2D": 2, "Cast": 0, "A": 1}}, "broken",
         "1 A expected, 0 found, 2 _FusedConv2D expected, 1 found; the graph has _FusedConv2D"),
        ({"compiled": False}, "held", "XLA compiled no module"),
        ({"compiled": True}, "broken", "compilation by XLA expected: XLA compiled no module"),
        ({"max_traces": 3}, "held", "traced 3 times, 3 allowed"),
        ({"max_traces": 2}, "broken", "traced 3 times, 2 allowed: 2 f: argument 0 was 1, then 2"),
        ({"max_peak_bytes": 2e6}, "held", "peak of 1.91 MiB, 1.91 MiB allowed"),
        ({"max_peak_bytes": 1e6}, "broken", "peak of 1.91 MiB, 976.56 KiB allowed"),
    ],
)  # fmt: skip
def test_a_contract_holds_or_is_broken(contract, outcome, text):
    reason = Reason(f"contract-{outcome}", text)
    outcome = {"held": Outcome.UNCHANGED, "broken": Outcome.REGRESSED}[outcome]
    assert checked(contract) == Verdict.of(CASE, outcome, reason, f"contract:{next(iter(contract))}", launches=1)


KERNELS = MetricValues(counts={"xla_kernels": {"dot": 2, "add": 1}})


def test_xla_kernels_tell_whether_a_step_was_compiled_and_count_as_ops():
    text = "XLA compiled 3 kernels: 2 dot, add"
    found = [checked({"compiled": expected}, KERNELS) for expected in (True, False)]
    assert [row.outcome for row in found] == [Outcome.UNCHANGED, Outcome.REGRESSED]
    assert {row.reason.message for row in found} == {text}
    assert checked({"expect_ops": {"dot": 2}}, KERNELS).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("contract", "absent", "text"),
    [
        ({"expect_ops": {"A": 0}}, {"graph_ops": "an eager op"},
         "the ops of expect_ops could not be counted: an eager op"),
        ({"expect_ops": {"A": 0}}, {}, "the ops of expect_ops could not be counted: no graph was read"),
        ({"max_traces": 1}, {"traces": "an eager op"}, "traces could not be read: an eager op"),
        ({"max_traces": 1}, {}, "traces could not be read: the probing launch did not report it"),
        ({"max_peak_bytes": 1}, {"peak_device_memory": NO_ACCELERATOR},
         "this system does not report the memory of a process"),
        ({"compiled": True}, {"xla_kernels": "the probe failed"}, "xla_kernels could not be read: the probe failed"),
        ({"compiled": False}, {}, "xla_kernels could not be read: the probing launch did not report it"),
    ],
)  # fmt: skip
def test_an_unreadable_contract_is_an_error(contract, absent, text):
    row = checked(contract, MetricValues(absent=absent), ())
    assert (row.outcome, row.reason) == (Outcome.ERROR, Reason("contract-unreadable", text))


def test_traces_that_are_too_many_name_their_functions_and_half_of_them_are_not_enough():
    values = MetricValues(counts={"traces": {"f": 3}, "retraces": {}})
    assert checked({"max_traces": 2}, values).reason.message == "traced 3 times, 2 allowed: 3 f"
    for known in ("traces", "retraces"):
        assert checked({"max_traces": 9}, MetricValues(counts={known: {"f": 1}})).outcome is Outcome.ERROR


def test_the_memory_of_an_accelerator_counts_instead_of_the_process_even_if_it_cannot_be_read():
    metric_values = MetricValues(numbers={"peak_device_memory": 5e5})
    assert checked({"max_peak_bytes": 1e6}, metric_values).outcome is Outcome.UNCHANGED
    unread = MetricValues(absent={"peak_device_memory": "CUDA's own allocator"})
    assert checked({"max_peak_bytes": 1e12}, unread).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("error", "outcome", "code", "text"),
    [
        (Difference(1e-3), Outcome.UNCHANGED, "held", "differs from the reference variant by 0.001, 0.001 allowed"),
        (Difference(2.345e-3), Outcome.REGRESSED, "broken", "differs from the reference variant by 0.0023, 0.001 allowed"),
        (
            Difference(1e300, "[1]"), Outcome.REGRESSED, "broken",
            "differs from the reference variant by an infinite factor in the output [1], 0.001 allowed",
        ),
        ("it broke", Outcome.ERROR, "unreadable", "the result has no comparison: it broke"),
        ("", Outcome.INCONCLUSIVE, "open", "the result has no comparison: the other variant is skipped or not part of this run"),
    ],
)  # fmt: skip
def test_parity_holds_up_to_the_allowed_error(error, outcome, code, text):
    assert parity(1e-3, error) == (outcome, Reason(f"contract-{code}", text))


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
        (FASTER, 1.0, 1.2, Outcome.INCONCLUSIVE),  # it touches the claim
        (AS_FAST, 1.02, 1.1, Outcome.INCONCLUSIVE),
        (AS_FAST, 0.9, 1 / 1.02, Outcome.INCONCLUSIVE),
    ],
)
def test_a_claim_about_times_needs_proof(claim, low, high, outcome):
    found = Comparison(Ratio((low + high) / 2, low, high, 0.95), 3, 100)
    assert of_times(claim, found, preset("standard").tolerance)[0] is outcome


@pytest.mark.parametrize(
    ("claim", "found", "text"),
    [
        (FASTER, Ratio(1.4, 1.2, 1.5, 0.95), "1.40x as fast as pipeline=naive, 1.2x is claimed "
         "(interval +20.0% to +50.0% at 95% confidence, 3 launches)"),
        (FASTER, Ratio(1.4, 1.1, 1.5, 0.95), "not decided, until more launches (--policy strict) or a quieter machine narrow the interval: 1.40x as fast as pipeline=naive, 1.2x is claimed "
         "(interval +10.0% to +50.0% at 95% confidence, 3 launches)"),
        (AS_FAST, Ratio(1.0, 1 / 1.02, 1.02, 0.95), "1.00x as fast as pruning=none, the same time is claimed "
         "(interval -2.0% to +2.0% at 95% confidence, 3 launches)"),
        (FASTER, "it broke", "pipeline=naive: 1.2x is claimed; it broke"),
    ],
)  # fmt: skip
def test_a_claim_about_times_states_its_evidence(claim, found, text):
    comparison = found if isinstance(found, str) else Comparison(found, 3, 100)
    outcome, reason = of_times(claim, comparison, preset("standard").tolerance)
    assert reason.message == text
    is_open = isinstance(found, str) or text.startswith("not decided")
    assert outcome is (Outcome.INCONCLUSIVE if is_open else Outcome.UNCHANGED)


def test_several_claims_of_one_name_have_the_variant_in_their_row():
    result = (Outcome.UNCHANGED, Reason("contract-held", "yes"))
    case = replace(CASE, claims=(FASTER, AS_FAST))
    assert claim_row(case, FASTER, result) == Verdict.of(case, *result, "contract:faster_than", launches=1)
    case = replace(CASE, claims=(FASTER, AS_FAST, replace(FASTER, other="a=b")))
    assert claim_row(case, FASTER, result).metric == "contract:faster_than pipeline=naive"
    assert claim_row(case, AS_FAST, result).metric == "contract:as_fast"


def read(**numbers):
    return MetricValues(numbers=numbers)


SMALLER, ACCURATE = ("smaller_than", 2.5, "artifact_bytes"), ("as_accurate", 0.01, "accuracy")
ALLOWED = "97.00% of pruning=none, 1 percentage points less allowed"


@pytest.mark.parametrize(
    ("claim", "mine", "other", "outcome", "text"),
    [
        (SMALLER, 40, 100, "held", "40 B, 100 B of pruning=none: 2.50x as small, 2.5x is claimed"),
        (SMALLER, 41, 100, "broken", "41 B, 100 B of pruning=none: 2.44x as small, 2.5x is claimed"),
        (ACCURATE, 0.96, 0.97, "held", f"accuracy 96.00%, {ALLOWED}"),
        (ACCURATE, 0.9599999, 0.97, "broken", f"accuracy 96.00%, {ALLOWED}"),
    ],
)
def test_a_claim_about_a_model_needs_the_metric_of_both_variants(claim, mine, other, outcome, text):
    name, bound, metric = claim
    claim = Claim(name, "pruning=none", (), bound, metric)
    expected = {"held": Outcome.UNCHANGED, "broken": Outcome.REGRESSED}[outcome]
    values = read(**{metric: mine}), read(**{metric: other})
    assert of_metric_values(claim, *values) == (expected, Reason(f"contract-{outcome}", text))
    why = "pruning=none: the other variant is skipped or not part of this run"
    assert of_metric_values(claim, values[0], "") == (Outcome.INCONCLUSIVE, Reason("contract-open", why))
    broke = (Outcome.ERROR, Reason("contract-unreadable", "pruning=none: its probe failed"))
    assert of_metric_values(claim, values[0], "its probe failed") == broke
    gone = MetricValues(absent={metric: "no model"})
    unread = (Outcome.ERROR, Reason("contract-unreadable", f"{metric} could not be read: no model"))
    assert of_metric_values(claim, gone, values[1]) == of_metric_values(claim, values[0], gone) == unread


@pytest.mark.parametrize(
    ("numbers", "outcome", "text"),
    [
        ({"leaked_bytes": 200.0, "leaked_threads": 0.0}, Outcome.UNCHANGED, "does not grow"),
        ({"leaked_bytes": 1024.0, "leaked_threads": 1.0}, Outcome.REGRESSED, "leaked_bytes 1.00 KiB, leaked_threads 1"),
        ({"leaked_bytes": 0.0, "retraces_per_call": 0.1}, Outcome.REGRESSED, "retraces_per_call 0.1"),
        ({"leaked_threads": 0.0}, Outcome.ERROR, "leaked_bytes could not be read"),
    ],
)
def test_a_process_that_grows_with_its_calls_breaks_no_leak(numbers, outcome, text):
    found, reason = leak_free(MetricValues(numbers=numbers))
    assert found is outcome
    assert text in reason.message


def test_a_contract_on_leaks_can_be_about_some_kinds_and_names_the_lines_that_allocate_most():
    numbers = {"leaked_bytes": 4096.0, "leaked_threads": 0.0, "retraces_per_call": 1.0}
    sites = {"leak_sites": {"a.py:12": 1024, "outside of Python": 3072}, "leak_calls": {"calls": 200}}
    values = MetricValues(counts=sites, numbers=numbers)
    assert leak_free(values, ["threads"])[0] is Outcome.UNCHANGED
    broken, reason = leak_free(values, ["bytes", "threads"])
    assert broken is Outcome.REGRESSED
    assert reason.message.endswith(
        "the process grows with every call (measured over 200 calls): leaked_bytes 4.00 KiB; 3.00 KiB per call outside of Python, 1.00 KiB per call at a.py:12"
    )
    assert leak_free(MetricValues(absent={"leaked_files": "gone"}), ["files"])[0] is Outcome.ERROR
