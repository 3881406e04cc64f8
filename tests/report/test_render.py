"""The exact output of reports."""

import math

import pytest

from tests.fakes.report import CODE, complete, judged, variant
from tfbench.model import Both, Case, Outcome, Ratio, Reason, Run, Sample, Skip, StoredRounds, Verdict
from tfbench.model.words import duration, rate, times
from tfbench.report import terminal


def case(level):
    name = f"benchmarks/test_linear.py::test_matmul[compiler={level}]"
    return Case(name, "test_matmul", "benchmarks/test_linear.py::test_matmul", (("compiler", level),), level == "none")


REASON = Reason("no-baseline", "measured")
VARIANT_RESULTS = (
    variant(case("xla"), case("none").name, 7.65e-4, Ratio(0.608, 0.598, 0.617, 0.99), Outcome.IMPROVED, 3, 300,
            {"flops": 1e8}),
    variant(case("none"), case("none").name, 1.26e-3, None, None, 3, 300, {"flops": 1e8}),
)  # fmt: skip
VERDICT = Verdict.of(case("xla"), Outcome.REGRESSED, Reason("slower", "5.2% slower"),
                     ratio=Ratio(1.052, 1.031, 1.074, 0.99), launches=7, rounds=280, wall_seconds=5.23)  # fmt: skip


def report(**changes):
    sides = {"contender": {"spec": "working tree"}}
    return complete(policy={"name": "standard"}, sides=sides, wall_seconds=12.4, **changes)


def test_variants_stand_below_their_reference():
    made = report(variant_results=VARIANT_RESULTS, verdicts=(Verdict.of(case("none"), Outcome.NEW, REASON),))
    text = terminal.render(made, width=80, colour=False)
    assert [line.rstrip() for line in text.splitlines()] == [
        "test_matmul",
        "",
        " compiler     time      ratio to reference  launches          rate",
        " ─────────────────────────────────────────────────────────────────",
        " none      1.26 ms               reference         3  79.4 GFLOP/s",
        " xla        766 µs  0.608 (0.598 to 0.617)         3   131 GFLOP/s",
        "",
        "not gated: 1 measured in 12 s (policy standard)",
    ]


def test_tables_of_one_name_have_the_class_or_the_file():
    names = ["a.py::TestA::test_call", "a.py::TestB::test_call", "a.py::test_other"]
    cases = [Case(name, name.rpartition("::")[2], name) for name in names]
    results = tuple(variant(one, one.name, 1e-3, None, None, 3, 300, {}) for one in cases)
    lines = terminal.render(report(variant_results=results), width=80, colour=False).splitlines()
    assert [line for line in lines if "test_" in line] == [*names[:2], "test_other"]


def test_a_time_never_contradicts_the_ratio_beside_it():
    noisy = VARIANT_RESULTS[0].changed(median_seconds=2.42e-3, ratio=Ratio(1.326, 1.2, 1.4, 0.99))
    reference = VARIANT_RESULTS[1].changed(median_seconds=4.93e-3)
    text = terminal.render(report(variant_results=(noisy, reference)), width=80, colour=False)
    assert "2.42 ms" not in text
    assert [row.split() for row in text.splitlines() if row.startswith(" xla")] == [
        ["xla", "6.54", "ms", "1.326", "(1.200", "to", "1.400)", "3", "15.3", "GFLOP/s"]
    ]


SIDES = {"baseline": {"spec": "git:main", **CODE}, "contender": {"spec": "working tree", **CODE}}


def lines_of(width=80, **changes):
    policy = {"name": "standard", "minimum_effect": 0.01}
    made = complete(policy=policy, sides=SIDES, wall_seconds=12.4, **changes)
    return [line.rstrip() for line in terminal.render(made, width=width, colour=False).splitlines()]


def rounds(level, side, *seconds):
    return StoredRounds.of_sample(Sample(case(level), (Run(seconds, 1),)), side)


def test_a_regression_has_old_and_new_time_ratio_cause_and_command():
    metric = Verdict.of(case("xla"), Outcome.REGRESSED, Reason("more", "12 before, 14 now: gained 2 Cast"), "graph_ops")
    both = (rounds("xla", "baseline", 1.26e-3), rounds("xla", "contender", 1.33e-3))
    skips = [Skip.about(case(level), reason="no GPU") for level in ("gpu", "tpu")]
    skips += [Skip.about(case("x"), reason="not here")]
    same = judged(case("none"), Outcome.UNCHANGED, Reason("within-tolerance", ""), ratio=Ratio(1, 0.99, 1.01, 0.9))
    assert lines_of(verdicts=(same, VERDICT, metric), rounds=both, skips=tuple(skips)) == [
        "regressions (1, by size above the threshold of 1.0%)",
        "  test_matmul[compiler=xla]  regressed",
        "    1.26 ms -> 1.33 ms  1.052 (1.031 to 1.074)",
        "    graph_ops: 12 before, 14 now: gained 2 Cast",
        "    pytest --benchmark --against git:main \\",
        "      'benchmarks/test_linear.py::test_matmul[compiler=xla]'",
        "",
        "skipped test_matmul[compiler=gpu] and 1 more: no GPU",
        "skipped test_matmul[compiler=x]: not here",
        "other metrics: 1 regressed",
        "regressed: 1 regressed, 1 unchanged, 3 skipped in 12 s (policy standard)",
    ]


def verdict(level, outcome, center=1.0, message="why", metric="time"):
    ratio = Ratio(center, center * 0.99, center * 1.01, 0.99)
    return judged(case(level), outcome, Reason("code", message), metric, ratio if metric == "time" else None)


def test_errors_come_first_then_regressions_by_size_then_inconclusive_then_improvements():
    verdicts = (
        verdict("a", Outcome.IMPROVED, 0.9), verdict("b", Outcome.INCONCLUSIVE, 1.02), verdict("c", Outcome.REGRESSED, 1.1),
        verdict("d", Outcome.ERROR), verdict("e", Outcome.REGRESSED, 1.3), verdict("f", Outcome.MISSING),
        verdict("g", Outcome.INCOMPARABLE), verdict("h", Outcome.UNCHANGED), verdict("i", Outcome.NEW),
    )  # fmt: skip
    found = [line.split("compiler=")[1] for line in lines_of(verdicts=verdicts) if line.startswith("  test_")]
    assert [one.split("]")[0] for one in found] == ["d", "f", "e", "c", "b", "g", "a"]


def test_every_line_fits_80_columns():
    long = "a cause that is described in rather many words, more than fit into a line of eighty columns by far"
    verdicts = tuple(verdict(level, Outcome.REGRESSED, 1.0 + n / 7, long) for n, level in enumerate("abcd", 1))
    why = ({"case": case("a").name, "side": "contender", "folder": "f", "why": [long, long]},)
    assert max(map(len, lines_of(verdicts=verdicts, profiles=why))) <= 80


def test_a_name_longer_than_a_line_is_whole_in_the_command():
    level = "a_level_with_a_name_that_is_longer_than_a_line_of_eighty_columns_has_room_for_by_far"
    lines = lines_of(verdicts=(verdict(level, Outcome.REGRESSED, 1.1),))
    assert f"      '{case(level).name}'" in lines


def test_the_new_time_is_the_old_one_times_the_ratio():
    both = (rounds("xla", "baseline", 1e-3), rounds("xla", "contender", 3e-3))
    assert "    1.00 ms -> 1.05 ms  1.052 (1.031 to 1.074)" in "\n".join(lines_of(verdicts=(VERDICT,), rounds=both))


def test_an_inconclusive_case_says_what_could_hide_and_other_metrics_are_counted():
    open_time = verdict("none", Outcome.INCONCLUSIVE, 1.02, "could hide 3%\nand a trace")
    metric = verdict("xla", Outcome.INCONCLUSIVE, message="noisy", metric="first_call")
    lines = lines_of(verdicts=(open_time, metric))
    assert "    could hide 3%" in lines
    assert "other metrics: 1 inconclusive" in lines
    assert not [line for line in lines if "noisy" in line or "trace" in line]


def test_a_group_of_findings_has_at_most_twenty():
    lines = lines_of(verdicts=tuple(verdict(str(number), Outcome.INCONCLUSIVE) for number in range(23)))
    assert len([line for line in lines if line.startswith("  test_")]) == 20
    assert "  and 3 more: --report-html and --report-json have all" in lines


def test_cases_that_an_ended_run_did_not_measure_have_one_entry():
    ended = Reason("not-measured", "the run ended before")
    open_cases = [verdict(str(number), Outcome.ERROR).changed(reason=ended) for number in range(40)]
    lines = lines_of(verdicts=(verdict("broken", Outcome.ERROR, message="no data"), *open_cases))
    assert len([line for line in lines if line.startswith("  test_")]) == 2
    assert "    no data" in lines
    assert "    40 cases: the run ended before" in lines
    assert not [line for line in lines if "more: --report-html" in line]


@pytest.mark.parametrize("ratio", [Ratio(math.nan, 0.0, math.inf, 0.9), Ratio(1, 1, 1, 0), Ratio(1e9, 1e-9, 1e9, 1)])
def test_an_unusable_interval_is_printed(ratio):
    assert lines_of(verdicts=(VERDICT.changed(ratio=ratio),))


def test_an_empty_report_says_so():
    assert lines_of() == ["no case was measured", "incomparable: no cases in 12 s (policy standard)"]


def test_throughput_stands_below_the_ratio():
    rates = {"items/s": Both(1.2e6, 1.14e6), "B/s": Both(5.0, 5.0)}
    row = VERDICT.changed(rates=rates)
    text = terminal.render(report(verdicts=(row,)), width=100, colour=False)
    assert "1.20 Mitems/s -> 1.14 Mitems/s" in text
    other = row.changed(rates={"items/s": Both(900, 1100)})
    assert "900 items/s -> 1.10 kitems/s" in terminal.render(report(verdicts=(other,)), width=100, colour=False)


PHASES = {"starting": 2.0, "preparing": 16.4, "rounds": 12.0, "confirming": 0.1, "probing": 9.5, "other": 0.0}


def test_the_costs_are_printed_in_descending_order_and_tiny_ones_not_at_all():
    made = report(seconds_by_phase=PHASES, seconds_by_case={"t.py::test_a": 27.0}, verdicts=(VERDICT,))
    text = terminal.render(made, width=100, colour=False)
    assert "\ntime: 41% preparing, 30% rounds, 24% probing, 5% starting\n" in text


def test_numbers_have_three_significant_digits_and_a_unit():
    seconds = {2.5: "2.50 s", 0.0412: "41.2 ms", 1.26e-3: "1.26 ms", 7.654e-7: "765 ns", 3e-10: "0.30 ns"}
    assert {one: duration(one) for one in seconds} == seconds
    assert [rate(r, "FLOP/s") for r in (1.5e12, 90.06e9, 12)] == ["1.50 TFLOP/s", "90.1 GFLOP/s", "12.0 FLOP/s"]
    assert times(Ratio(176.46, 158.1, 197.0, 0.99)) == "176.5 (158.1 to 197.0)"
    assert times(Ratio(1.0, 0.0, math.inf, 0.99)) == "1.000 (0.000 to ∞)"


def test_colour_is_used_only_on_request():
    assert "\x1b[" in terminal.render(report(verdicts=(VERDICT,)), width=80, colour=True)
    assert "\x1b[" not in terminal.render(report(verdicts=(VERDICT,)), width=80, colour=False)
