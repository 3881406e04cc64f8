"""Shares of the roofline that cases reach."""

import pytest

from tests.fakes import report as fakes
from tfbench.metrics.contracts import with_shares
from tfbench.model import Case


def variant_result(name, seconds, cpus=1, variant=(), **facts):
    case = Case(f"w.py::{name}", name, f"w.py::{name}", variant, cpus=cpus)
    return fakes.variant(case, case.name, seconds, None, None, 3, 300, facts)


CEILINGS = [
    variant_result("arithmetic", 1.0, flops=100.0, ceiling="flops"),
    variant_result("arithmetic_half", 1.0, variant=(("precision", "mixed_float16"),), flops=400.0, ceiling="flops"),
    variant_result("memory", 1.0, bytes=10.0, ceiling="bytes"),
]


@pytest.mark.parametrize(
    ("facts", "variant", "share", "bound"),
    [
        ({"flops": 50.0}, (), 0.5, "flops"),
        ({"flops": 50.0, "bytes": 8.0}, (), 0.8, "bytes"),
        ({"flops": 50.0}, (("precision", "mixed_float16"),), 0.125, "flops"),
        ({"bytes": 8.0}, (("precision", "mixed_float16"),), 0.8, "bytes"),
    ],
)
def test_the_lower_roof_counts(facts, variant, share, bound):
    *_, found = with_shares([*CEILINGS, variant_result("mine", 1.0, variant=variant, **facts)])
    assert found.facts["share"] == pytest.approx(share)
    assert found.facts["bound"] == bound


@pytest.mark.parametrize(
    "mine",
    [
        variant_result("mine", 1.0),
        variant_result("mine", 1.0, cpus=0, flops=50.0),
        variant_result("mine", 1.0, variant=(("precision", "mixed_bfloat16"),), flops=50.0),
        variant_result("mine", 1.0, variant=(("device", "gpu"),), bytes=50.0),
    ],
)
def test_a_case_without_a_ceiling_of_its_kind_has_no_share(mine):
    *ceilings, found = with_shares([*CEILINGS, mine])
    assert "share" not in found.facts
    assert all("share" not in ceiling.facts for ceiling in ceilings)
    assert with_shares([mine]) == (mine,)


def test_cases_without_a_device_have_the_ceiling_of_the_gpu_where_the_run_has_one():
    axis = {device: (("device", device),) for device in ("cpu", "gpu")}
    ours = [variant_result(device, 1.0, variant=axis.get(device, ()), bytes=2.0) for device in ("", "gpu", "cpu")]
    shares = [row.facts.get("share") for row in with_shares([*CEILINGS, *ours], "gpu")[len(CEILINGS) :]]
    assert shares == [0.2, 0.2, None]  # a case on the CPU is not measured by the peak of the GPU
    more = variant_result("memory_of_the_host", 1.0, variant=axis["cpu"], bytes=4.0, ceiling="bytes")
    assert with_shares([*CEILINGS, more, *ours], "gpu")[-1].facts["share"] == 0.5
