"""Metrics that each timed launch samples."""

import math
import random
from dataclasses import replace

import pytest

from tfbench.metrics.exact import first_call, imports, memory, of_launches, on_device
from tfbench.model import Case, Effect, Outcome, Reason, Verdict
from tfbench.model.words import evidence
from tfbench.policy import preset
from tfbench.stats.verdict import Terms, decide

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
POLICY = preset("standard")
GATED = replace(POLICY, device_gated=True)
MIB = 1 << 20


def peaks(*mebibytes):
    return [{"peak_host_memory": int(value * MIB)} for value in mebibytes]


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (peaks(100, 100, 101), peaks(100, 101, 100), Outcome.UNCHANGED),
        (peaks(1, 1, 1), peaks(1.4, 1.4, 1.4), Outcome.UNCHANGED),  # within the absolute tolerance
        (peaks(100, 100, 100), peaks(103, 103, 103), Outcome.REGRESSED),
        (peaks(103, 103, 103), peaks(100, 100, 100), Outcome.IMPROVED),
        (peaks(100, 100, 110), peaks(103, 103, 103), Outcome.INCONCLUSIVE),
        (peaks(0, 0, 0), peaks(61, 61, 61), Outcome.REGRESSED),
        (peaks(9, 9, 9), peaks(0, 20, 20), Outcome.INCONCLUSIVE),
        (peaks(61, 61, 61), peaks(0, 0, 0), Outcome.IMPROVED),
        (peaks(100, 100), peaks(200, 200), Outcome.INCONCLUSIVE),  # too few launches
        ([{}], peaks(100, 100, 100), Outcome.NEW),
        (peaks(100, 100, 100), [{}], Outcome.MISSING),
    ],
)
def test_a_peak_is_decided_like_a_time(before, now, outcome):
    assert memory(CASE, before, now, POLICY, 1).outcome is outcome


def verdict_on(before, now, **changes):
    given = {"policy": POLICY, "cases": 1, **changes}
    return memory(CASE, before, now, **given)


def row(outcome, code, text, launches, values, ratio=None):
    more = {"ratio": ratio, "launches": launches, "values": values, "unit": "B"}
    return Verdict.of(CASE, Outcome(outcome), Reason(code, text), "peak_host_memory", **more)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([{}], peaks(1, 2), row("new", "not-in-baseline", "1.50 MiB; no value in the baseline", 2, (None, 1.5 * MIB))),
        (peaks(1), [{}], row("missing", "not-read", "1.00 MiB in the baseline, unavailable now", 0, (MIB, None))),
        (peaks(1), peaks(2, 2, 2), row("unchanged", "within-tolerance", "1.00 MiB before, 2.00 MiB now (1 launch)", 1,
                                       (MIB, 2 * MIB))),
        (peaks(1, 1), peaks(20, 20), row("inconclusive", "not-decided", "1.00 MiB before, 20.00 MiB now, but 3 launches "
                                         "of each side are needed, as --policy standard has", 2, (MIB, 20 * MIB))),
    ],
)  # fmt: skip
def test_peaks_that_cannot_be_decided_say_why(before, now, expected):
    assert verdict_on(before, now) == expected


@pytest.mark.parametrize(("pairs", "of"), [((0, 0, 1, 1), (0, 0, 1, 1)), ((), range(4)), ((0, 0), range(4))])
def test_a_peak_is_decided_by_the_policys_thresholds_of_memory(pairs, of):
    before, now = peaks(100, 101, 100, 101), peaks(110, 110, 111, 111)
    effects = [
        Effect(math.log(new["peak_host_memory"] / old["peak_host_memory"]), pair)
        for old, new, pair in zip(before, now, of, strict=True)
    ]
    found = decide(effects, 4, Terms(POLICY, 320, False, POLICY.memory), True)
    ratio = found.comparison.ratio
    text = f"100.50 MiB before, 110.50 MiB now ({evidence(ratio, 4)})"
    values = (100.5 * MIB, 110.5 * MIB)
    assert verdict_on(before, now, cases=320, pairs=pairs) == row("regressed", "more", text, 4, values, ratio)
    fewer = verdict_on(now, before, cases=320, pairs=pairs)
    assert (fewer.outcome, fewer.reason.code) == (Outcome.IMPROVED, "fewer")


def test_launches_beyond_those_of_the_other_side_are_left_out():
    found = verdict_on(peaks(100, 100, 100, 100), peaks(120, 120, 120))
    assert (found.outcome, found.launches) == (Outcome.REGRESSED, 3)
    assert verdict_on(peaks(100, 100, 100, 100), peaks(120, 120, 120), pairs=(0,) * 4) == found
    undecided = verdict_on(peaks(100, 100, 110), peaks(103, 103, 103))
    assert (undecided.outcome, undecided.reason.code) == (Outcome.INCONCLUSIVE, "not-decided")


def device(*seconds, **more):
    return [{"device_time": second, **more} for second in seconds]


@pytest.mark.parametrize(
    ("before", "now", "gated", "reported"),
    [
        (device(1.0, 1.0, 1.0), device(1.3, 1.3, 1.3), Outcome.REGRESSED, Outcome.INCONCLUSIVE),
        (device(1.3, 1.3, 1.3), device(1.0, 1.0, 1.0), Outcome.IMPROVED, Outcome.IMPROVED),
        (device(1.0, 1.0, 1.0), device(1.0, 1.0, 1.0), Outcome.UNCHANGED, Outcome.UNCHANGED),
        (device(1.0, 1.0, 1.0), device(1.0, 1.4, 0.8), Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE),
        (device(1.0, 1.0, 1.0), device(0.0, 0.0, 0.0), Outcome.MISSING, Outcome.INCONCLUSIVE),
        (device(0.0, 0.0, 0.0), device(1.0, 1.0, 1.0), Outcome.NEW, Outcome.NEW),
    ],
)
def test_device_time_is_gated_only_if_the_policy_says_so(before, now, gated, reported):
    for policy, outcome in ((GATED, gated), (POLICY, reported)):
        (found,) = on_device(CASE, before, now, policy, 1)
        assert (found.metric, found.outcome) == ("device_time", outcome)
        assert (found.reason.code == "not-gated") == (policy is POLICY and outcome is Outcome.INCONCLUSIVE)


def test_a_gate_without_any_evidence_of_both_sides_is_missing():
    for policy, before, outcomes in ((GATED, [{}], [Outcome.MISSING]), (GATED, [], []), (POLICY, [{}], [])):
        rows = on_device(CASE, before, [{}], policy, 1)
        assert [row.outcome for row in rows] == outcomes
        assert all("device_time and energy could not be read" in row.reason.message for row in rows)


def test_a_system_that_does_not_report_memory_has_no_row():
    assert memory(CASE, [{}], [{}], POLICY, 1) is None


def calls(seconds, count, rng, deviation=0.05):
    parts = {"trace": 0.3, "compile": 0.6, "execute": 0.1}
    times = [seconds * (1 + rng.gauss(0, deviation)) for _ in range(count)]
    return [{"first_call": time, "first_call_parts": {p: share * time for p, share in parts.items()}} for time in times]


def decided(before, now, launches, seed=0, seconds=0.2):
    rng = random.Random(seed)
    sides = calls(before * seconds, launches, rng), calls(now * seconds, launches, rng)
    return first_call(*sides, [index % 6 for index in range(launches)], POLICY, 30)


def test_a_first_call_twice_as_long_has_regressed_and_its_parts_are_reported():
    decision = decided(1, 2, 6)
    assert decision.outcome is Outcome.REGRESSED
    assert "trace 59 ms before, 119 ms now" in decision.reason.message
    assert decided(2, 1, 6).outcome is Outcome.IMPROVED


def test_the_same_first_call_is_not_a_false_positive():
    outcomes = [decided(1, 1, launches, seed).outcome for launches in (3, 6, 12) for seed in range(150)]
    assert Outcome.REGRESSED not in outcomes
    assert outcomes.count(Outcome.UNCHANGED) > 200


def firsts(*seconds, **parts):
    return [{"first_call": second, "first_call_parts": parts} for second in seconds]


def test_a_first_call_is_decided_by_the_policys_thresholds_of_first_calls():
    before, now = firsts(1.0, 1.1, 1.0, trace=0.02, compile=0.3), firsts(2.0, 2.1, 2.2, trace=0.045)
    effects = [Effect(math.log(new["first_call"] / old["first_call"]), pair)
               for old, new, pair in zip(before, now, (0, 1, 1), strict=True)]  # fmt: skip
    plain = decide(effects, 3, Terms(POLICY, 320, False, POLICY.first_call), True)
    parts = "; trace 20 ms before, 45 ms now, compilation and other work done once 300 ms before, 0 ms now, execute 0 ms before, 0 ms now"
    reason = Reason(plain.reason.code, plain.reason.message + parts)
    assert first_call(before, now, (0, 1, 1), POLICY, 320) == replace(plain, reason=reason)
    assert first_call([{"first_call": 1.0}] * 3, firsts(1.0, 1.0, 1.0), (0, 1, 2), POLICY, 7).outcome


def test_launches_without_a_first_call_of_both_sides_are_left_out():
    before, now = [*firsts(1.0, 1.0), {}, *firsts(0.0, 1.0)], [{}, *firsts(2.0, 1.0, 1.0, 2.0)]
    found = first_call(before, now, range(5), POLICY, 1)
    assert found.comparison.launches == 2
    assert found.comparison.ratio.center == pytest.approx(2.0)
    assert first_call(firsts(0.0), firsts(1.0), [0], POLICY, 1) is None
    assert first_call(firsts(1.0), firsts(0.0), [0], POLICY, 1) is None


def test_the_absolute_tolerance_of_a_first_call_is_a_difference_of_medians():
    slack = POLICY.first_call_abs_tolerance
    before = firsts(1e-3, 1e-3, 1e-3)
    inside = first_call(before, firsts(*[1e-3 + slack * 0.99] * 3), range(3), POLICY, 1)
    text = f"within {slack * 1e3:.0f} ms either way: {slack * 990:+.1f} ms"
    assert (inside.outcome, inside.reason) == (Outcome.UNCHANGED, Reason("within-slack", text))
    at = first_call(firsts(*[slack] * 3), firsts(*[2 * slack] * 3), range(3), POLICY, 1)
    assert at.reason.code != "within-slack"
    less = first_call(firsts(*[1e-3 + slack * 0.99] * 3), before, range(3), POLICY, 1)
    assert less.reason.message.endswith(f"either way: {-slack * 990:+.1f} ms")


def of(name, *values):
    return [{name: value} for value in values]


@pytest.mark.parametrize("policy", ["quick", "standard", "strict"])
@pytest.mark.parametrize("metric", ["set_up", "warm_up"])
@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        ((0.01, 0.01, 0.01), (0.05, 0.05, 0.05), Outcome.UNCHANGED),  # within the seconds that do not matter
        ((0.50, 0.52, 0.51), (3.5, 3.6, 3.5), Outcome.REGRESSED),
        ((0.0, 0.0, 0.0), (5.0, 5.0, 5.0), Outcome.REGRESSED),
        ((3.5, 3.6, 3.5), (0.50, 0.52, 0.51), Outcome.IMPROVED),
    ],
)
def test_set_ups_and_warm_ups_are_decided_like_first_calls(metric, before, now, outcome, policy):
    pairs = (0, 1, 2)
    facts = of(metric, *before), of(metric, *now)
    row = of_launches(metric, CASE, *facts, preset(policy), 320, pairs)
    assert (row.outcome, row.metric, row.unit) == (outcome, metric, "s")


def test_a_launch_that_one_side_has_no_sample_of_does_not_count():
    before, now = [*of("set_up", 1.0, 1.0, 1.0), {}], [{}, *of("set_up", 1.0, 1.0, 1.0)]
    row = of_launches("set_up", CASE, before, now, POLICY, 1, (0, 1, 2, 3))
    assert (row.outcome, row.launches) == (Outcome.UNCHANGED, 2)
    assert of_launches("warm_up", CASE, before, now, POLICY, 1, (0, 1, 2, 3)) is None


@pytest.mark.parametrize(
    ("seconds", "mebibytes", "outcomes"),
    [
        (0.5, 50, ["unchanged", "unchanged"]),
        (0.7, 60, ["unchanged", "unchanged"]),  # within what does not matter
        (3.5, 50, ["regressed", "unchanged"]),
        (0.5, 370, ["unchanged", "regressed"]),
    ],
)
@pytest.mark.parametrize("pairs", [4, 6])
def test_imports_are_judged_from_the_pairs_of_zygotes_that_both_sides_have(seconds, mebibytes, outcomes, pairs):
    before = {pair: (0.5 + 0.01 * pair, 50 * MIB) for pair in range(pairs)}
    now = {pair: (seconds - 0.01 * pair, mebibytes * MIB) for pair in range(1, pairs + 1)}
    now[0] = seconds, mebibytes * MIB
    rows = imports(CASE, before, now, POLICY, 320)
    assert [row.metric for row in rows] == ["import", "import_memory"]
    assert [row.outcome for row in rows] == outcomes
    assert {row.launches for row in rows} == {pairs}


def test_two_pairs_of_zygotes_do_not_prove_a_change_of_imports_for_a_whole_suite():
    before, now = {0: (0.5, MIB), 1: (0.5, MIB)}, {0: (3.5, MIB), 1: (3.5, MIB)}
    assert [row.outcome for row in imports(CASE, before, now, POLICY, 320)] == ["inconclusive", "unchanged"]


def test_sides_without_a_common_pair_of_zygotes_have_no_rows_of_imports():
    assert imports(CASE, {0: (1.0, 1)}, {1: (1.0, 1)}, POLICY, 1) == []
