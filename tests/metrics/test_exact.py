"""Comparison of metrics without noise."""

from dataclasses import replace

import pytest

from tfbench.metrics.catalog import LEAK_BYTES
from tfbench.metrics.exact import ComparisonContext, apart, compare, differing
from tfbench.model import Case, MetricValues, Outcome, OutputSketch, Reason
from tfbench.model.formats import convert, plain
from tfbench.model.words import amount, named
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
POLICY = preset("standard")


def judged(before, now, context=None, policy=POLICY):
    rows, explained = compare(CASE, before, now, context or ComparisonContext(), policy)
    return {row.metric: row for row in rows}, explained


def counts(**metrics):
    return MetricValues(counts=metrics)


@pytest.mark.parametrize(
    ("metric", "before", "now", "outcome", "words"),
    [
        ("graph_ops", {"Relu": 1}, {"Relu": 1, "Cast": 2}, Outcome.REGRESSED, "1 before, 3 now: gained 2 Cast"),
        ("graph_ops", {"Relu": 3}, {"Relu": 1}, Outcome.IMPROVED, "3 before, 1 now: lost 2 Relu"),
        ("graph_ops", {"Relu": 1}, {"Elu": 1}, Outcome.INCONCLUSIVE, "lost Relu; gained Elu: neither better nor worse"),
        ("fused_ops", {"_FusedMatMul(BiasAdd)": 1}, {}, Outcome.REGRESSED, "1 before, 0 now: lost _FusedMatMul(BiasAdd)"),
        ("xla_algorithms", {"dot 1": 1}, {"dot 2": 1}, Outcome.INCONCLUSIVE, "neither better nor worse by itself"),
    ],
)  # fmt: skip
def test_any_difference_counts_within_one_environment(metric, before, now, outcome, words):
    rows, explained = judged(counts(**{metric: before}), counts(**{metric: now}))
    assert rows[metric].outcome is outcome
    assert words in rows[metric].reason.message
    assert (*rows[metric].values,) == (sum(before.values()), sum(now.values()))
    assert explained == []


def test_across_environments_a_change_explains_the_time_and_equal_metrics_have_rows():
    context = ComparisonContext(differences=["tensorflow 2.20.0 there, 2.21.0 here"])
    before, now = counts(fused_ops={"_F": 1}, casts={}), counts(fused_ops={}, casts={})
    rows, explained = judged(before, now, context)
    assert set(rows) == {"casts"}
    assert [str(note) for note in explained] == ["fused_ops 1 before, 0 now: lost _F"]
    rows, explained = judged(MetricValues(), now, context)
    assert ({row.outcome for row in rows.values()}, explained) == ({Outcome.NEW}, [])
    rows, explained = judged(before, now, context, preset("strict"))
    assert rows["fused_ops"].outcome is Outcome.REGRESSED
    assert explained == []


def test_onednn_and_the_processor_are_environments_too():
    before, now = (
        MetricValues(counts={"graph_ops": ops}, setting={"onednn": on})
        for ops, on in (({"A": 1}, "off"), ({"B": 1}, "on"))
    )
    rows, explained = judged(before, now)
    assert not rows
    assert explained
    assert judged(replace(before, setting={"other": "x"}), now)[0]  # unknown there
    other = ComparisonContext(machines=["features a there, b here"])
    rows, explained = judged(
        counts(xla_kernels={"a": 1}, casts={}), counts(xla_kernels={"a": 2}, casts={"b": 1}), other
    )
    assert set(rows) == {"casts"}  # a metric that the processor does not affect still gates
    assert rows["casts"].outcome is Outcome.REGRESSED


def test_an_absent_metric_never_passes():
    rows, _ = judged(counts(casts={}), MetricValues(absent={"casts": "an eager op"}))
    assert rows["casts"].outcome is Outcome.MISSING
    assert "an eager op" in rows["casts"].reason.message
    assert judged(MetricValues(), MetricValues())[0] == {}
    assert judged(MetricValues(numbers={"leaked_bytes": 0.0}), MetricValues())[0] == {}  # the step takes longer


def test_sizes_have_a_tolerance_and_counts_have_none():
    def size(value):
        return MetricValues(numbers={"artifact_bytes": value, "flops": value})

    rows, _ = judged(size(10_000), size(10_100))
    assert rows["artifact_bytes"].outcome is Outcome.UNCHANGED
    assert rows["flops"].outcome is Outcome.REGRESSED
    assert judged(size(10_000), size(10_101))[0]["artifact_bytes"].outcome is Outcome.REGRESSED
    rows, _ = judged(*(MetricValues(numbers={"live_bytes": value}) for value in (0, 4)))
    assert rows["live_bytes"].outcome is Outcome.REGRESSED


@pytest.mark.parametrize(("before", "slacks", "outcome"), [
    (0, 1, Outcome.UNCHANGED), (0, 1.1, Outcome.REGRESSED), (100, 1, Outcome.UNCHANGED), (100, 1.5, Outcome.REGRESSED),
])  # fmt: skip
def test_growth_may_differ_by_its_slack_or_by_the_tolerance(before, slacks, outcome):
    old = before * LEAK_BYTES
    then, now = (MetricValues(numbers={"leaked_bytes": value}) for value in (old, old + slacks * LEAK_BYTES))
    assert judged(then, now)[0]["leaked_bytes"].outcome is outcome


def test_a_metric_that_differs_between_launches_of_a_side_is_inconclusive():
    launches = [counts(casts={"a": 1}), counts(casts={"a": 1}), counts(casts={"a": 2})]
    unstable = differing(launches, POLICY)
    assert set(unstable) == {"casts"}
    assert "gained a" in unstable["casts"]
    rows, _ = judged(launches[0], launches[2], ComparisonContext(unstable=unstable))
    assert rows["casts"].outcome is Outcome.INCONCLUSIVE
    assert rows["casts"].reason.code == "not-exact"
    assert differing([launches[0], launches[1]], POLICY) == {}


@pytest.mark.parametrize(
    ("before", "now", "outcome", "code", "text"),
    [
        (counts(casts={}), MetricValues(), "missing", "not-read",
         "0 in the baseline, unavailable now: the probing launch did not report it"),
        (MetricValues(absent={"casts": "an eager op"}), counts(casts={"a": 2}), "new", "not-in-baseline",
         "2; no value in the baseline: an eager op"),
        (MetricValues(), counts(casts={"a": 2}), "new", "not-in-baseline",
         "2; no value in the baseline: it was saved without this metric"),
    ],
)  # fmt: skip
def test_a_reason_states_both_values(before, now, outcome, code, text):
    row = judged(before, now)[0]["casts"]
    assert (row.outcome, row.reason) == (Outcome(outcome), Reason(code, text))


def numbers(**metrics):
    return MetricValues(numbers=metrics)


@pytest.mark.parametrize(
    ("launches", "found"),
    [
        ([numbers(flops=value) for value in (2.0, 1.0, 2.0)], {"flops": ", with the values 1 and 2"}),
        ([numbers(live_bytes=one) for one in (1024, 2048)], {"live_bytes": ", with the values 1.00 KiB and 2.00 KiB"}),
        ([numbers(artifact_bytes=1024), numbers(artifact_bytes=1030)], {}),
        ([counts(casts={}), MetricValues()], {"casts": ", with the values 0 and none"}),
        ([counts(casts={"a": 1}), counts(casts={})], {"casts": ": lost a"}),
    ],
)
def test_launches_that_differ_are_described_by_their_values_or_by_their_ops(launches, found):
    assert differing(launches, POLICY) == {
        name: f"launches of the same side differ{text}" for name, text in found.items()
    }


@pytest.mark.parametrize(
    ("some", "text"),
    [
        ({}, ""),
        ({"e": 1, "d": 1, "c": 1, "b": 1}, "b, c, d, e"),
        ({"f": 2, "e": 1, "d": 1, "c": 3, "b": 1, "a": 1}, "3 c, 2 f, a, b and 2 more"),
    ],
)
def test_counts_are_described_by_their_most_frequent_entries(some, text):
    assert named(some) == text


def test_amounts_have_a_unit_that_suits_them():
    assert amount(12345, "") == "12,345"
    assert amount(0.25, "") == "0.25"
    assert amount(0.12345, "") == "0.123"
    assert [amount(1 << shift, "B") for shift in (30, 20, 10)] == ["1.00 GiB", "1.00 MiB", "1.00 KiB"]
    assert amount(-3 << 20, "B") == "-3.00 MiB"
    assert amount(1023, "B") == "1,023 B"
    assert amount(100, "B") == "100 B"
    assert amount(None, "B") == "none"


def test_metric_values_survive_a_file():
    sketch = (OutputSketch("[0]", "float32", (2, 3), 6, 1.0, (1.0, 2.0)), OutputSketch("[1]", "int64", (), 0, 0.0, ()))
    metric_values = MetricValues({"casts": {"a": 1}}, {"flops": 3.0}, {"parity": "no"}, {"onednn": "on"}, sketch)
    assert convert(MetricValues, plain(metric_values)) == metric_values


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((0.0, 0.0, 0.1), (0.5, 1.9, 0.8), {"afterwork"}),
        ((0.5, 1.9, 0.8), (0.0, 0.0, 0.1), {"afterwork"}),
        ((0.0, 0.0, 0.6), (0.5, 1.9, 0.8), set()),
        ((0.0,), (0.04,), set()),  # within what does not matter
    ],
)
def test_launches_may_scatter_as_long_as_the_sides_are_apart(before, now, expected):
    sides = [[MetricValues(numbers={"afterwork": value, "flops": value}) for value in side] for side in (before, now)]
    assert apart(sides) == expected
    assert apart(sides[:1]) == set()
