"""The exact output of reports."""

import json
from dataclasses import replace

from tfbench.model import Case, Outcome, Ratio, Reason, Report, Skip, VariantResult, Verdict
from tfbench.report import json_writer, terminal
from tfbench.report.units import duration, rate, times


def case(level):
    name = f"benchmarks/test_linear.py::test_matmul[compiler={level}]"
    return Case(name, "test_matmul", "benchmarks/test_linear.py::test_matmul", (("compiler", level),), level == "none")


REASON = Reason("no-baseline", "measured")
VARIANT_RESULTS = (
    VariantResult(
        case("xla"),
        case("none").name,
        7.65e-4,
        Ratio(0.608, 0.598, 0.617, 0.99),
        Outcome.IMPROVED,
        3,
        300,
        {"flops": 1e8},
    ),
    VariantResult(case("none"), case("none").name, 1.26e-3, None, None, 3, 300, {"flops": 1e8}),
)
VERDICT = Verdict(
    case("xla"),
    Outcome.REGRESSED,
    Reason("slower", "5.2% slower"),
    "time",
    Ratio(1.052, 1.031, 1.074, 0.99),
    7,
    280,
    5.23,
)


def report(**changes):
    return Report({"name": "standard"}, {"contender": {"spec": "working tree"}}, wall_seconds=12.4, **changes)


def test_variants_stand_below_their_reference():
    text = terminal.render(
        report(variant_results=VARIANT_RESULTS, verdicts=(Verdict(case("none"), Outcome.NEW, REASON),)),
        width=80,
        colour=False,
    )
    assert [line.rstrip() for line in text.splitlines()] == [
        "test_matmul",
        "",
        " compiler   median      ratio to reference  launches          rate",
        " ─────────────────────────────────────────────────────────────────",
        " none      1.26 ms               reference         3  79.4 GFLOP/s",
        " xla        765 µs  0.608 (0.598 to 0.617)         3   131 GFLOP/s",
        "",
        "1 measured in 12 s (policy standard)",
    ]


def test_a_median_never_contradicts_the_ratio_beside_it():
    noisy = replace(VARIANT_RESULTS[0], median_seconds=2.42e-3, ratio=Ratio(1.326, 1.2, 1.4, 0.99))
    reference = replace(VARIANT_RESULTS[1], median_seconds=4.93e-3)
    text = terminal.render(report(variant_results=(noisy, reference)), width=80, colour=False)
    assert "2.42 ms" not in text
    assert [row.split() for row in text.splitlines() if row.startswith(" xla")] == [
        ["xla", "~6.54", "ms", "1.326", "(1.200", "to", "1.400)", "3", "15.3", "GFLOP/s"]
    ]
    assert "~ the median of the reference times the ratio" in text


def test_verdicts_and_skips():
    skips = (Skip(case("gpu"), "no GPU"),)
    text = terminal.render(report(verdicts=(VERDICT,), skips=skips), width=100, colour=False)
    assert "xla       regressed  1.052 (1.031 to 1.074)         7  5.2 s" in text
    assert "skipped benchmarks/test_linear.py::test_matmul[compiler=gpu]: no GPU" in text
    assert "1 regressed, 1 skipped in 12 s" in text


PHASES = {"starting": 2.0, "preparing": 16.4, "rounds": 12.0, "confirming": 0.1, "probing": 9.5, "other": 0.0}
COSTS = {f"t.py::test_a[{number}]": float(number) for number in (3, 9, 1, 27)}


def costs(scale=1.0, cases=COSTS):
    phases = {phase: scale * seconds for phase, seconds in PHASES.items()}
    text = terminal.render(
        report(seconds_by_phase=phases, seconds_by_case=cases, verdicts=(VERDICT,)), width=100, colour=False
    )
    return [line for line in text.splitlines() if line.startswith(("time: ", "most "))]


def test_the_costs_are_printed_in_descending_order_and_tiny_ones_not_at_all():
    assert costs() == ["time: 41% preparing, 30% rounds, 24% probing, 5% starting"]


def test_a_long_run_names_its_three_most_expensive_cases():
    assert costs(1.6)[1:] == ["most expensive cases: test_a[27] 27 s, test_a[9] 9 s, test_a[3] 3 s"]
    assert costs(1.6, {"t.py::test_a": 50.0})[1:] == []


def test_a_run_that_measured_no_case_and_an_earlier_report_print_no_costs():
    assert costs(cases={}) == []
    assert "time: " not in terminal.render(report(seconds_by_case=COSTS), width=100, colour=False)


def test_cases_of_a_function_share_a_table_whatever_their_parameters():
    cases = [Case(f"t.py::test_a[{n}]", "test_a", f"t.py::test_a[{n}]") for n in (1, 2)]
    verdicts = tuple(Verdict(one, Outcome.INCONCLUSIVE, Reason("not-decided", "")) for one in cases)
    lines = [line.split() for line in terminal.render(report(verdicts=verdicts), width=80, colour=False).splitlines()]
    assert ["1", "inconclusive"] in [line[:2] for line in lines]
    assert lines.count(["test_a"]) == 1


def test_a_reason_is_printed_for_each_open_verdict_with_its_metric():
    open_time = Verdict(case("none"), Outcome.INCONCLUSIVE, Reason("not-decided", "could hide 3%"))
    metric = Verdict(case("xla"), Outcome.INCOMPARABLE, Reason("not-read", "no value here\nand a trace"), "graph_ops")
    settled = Verdict(case("xla"), Outcome.UNCHANGED, Reason("equal", "boring"), "retraces")
    lines = terminal.render(
        report(verdicts=(VERDICT, open_time, metric, settled)), width=100, colour=False
    ).splitlines()
    assert "inconclusive test_matmul[compiler=none]: could hide 3%" in lines
    assert "incomparable graph_ops of test_matmul[compiler=xla]: no value here" in lines
    assert not [line for line in lines if "boring" in line or "5.2% slower" in line]


def test_there_are_at_most_ten_reasons():
    names = [f"t.py::test_a[{number}]" for number in range(13)]
    verdicts = tuple(
        Verdict(Case(name, "test_a", name), Outcome.INCONCLUSIVE, Reason("not-decided", "why")) for name in names
    )
    lines = terminal.render(report(verdicts=verdicts), width=100, colour=False).splitlines()
    assert len([line for line in lines if line.endswith(": why")]) == 10
    assert "and 3 more: --report-json has them all" in lines


def test_colour_is_used_only_on_request():
    assert "\x1b[" in terminal.render(report(verdicts=(VERDICT,)), width=80, colour=True)
    assert "\x1b[" not in terminal.render(report(verdicts=(VERDICT,)), width=80, colour=False)


def test_the_report_has_the_fields_of_the_schema():
    content = json.loads(json_writer.render(report(verdicts=(VERDICT,))))
    assert content["schema"] == "tfbench-report/1"
    assert content["verdicts"] == [
        {
            "case": "benchmarks/test_linear.py::test_matmul[compiler=xla]",
            "workload": "test_matmul",
            "variant": {"compiler": "xla"},
            "metric": "time",
            "outcome": "regressed",
            "reason": {"code": "slower", "message": "5.2% slower"},
            "ratio": {"center": 1.052, "low": 1.031, "high": 1.074, "confidence": 0.99},
            "launches": 7,
            "rounds": 280,
            "wall_seconds": 5.23,
        }
    ]


def test_an_unbounded_interval_is_null_in_json():
    ratio = Ratio(1.0, 0.0, float("inf"), 0.99)
    assert ratio.as_json()["high"] is None
    assert times(ratio) == "1.000 (0.000 to ∞)"


def test_numbers_have_three_significant_digits_and_a_unit():
    assert [duration(s) for s in (2.5, 0.0412, 1.26e-3, 7.654e-7, 3e-10)] == [
        "2.50 s",
        "41.2 ms",
        "1.26 ms",
        "765 ns",
        "0.30 ns",
    ]
    assert [rate(r, "FLOP/s") for r in (1.5e12, 90.06e9, 12)] == ["1.50 TFLOP/s", "90.1 GFLOP/s", "12.0 FLOP/s"]
    assert times(Ratio(176.46, 158.1, 197.0, 0.99)) == "176.5 (158.1 to 197.0)"
