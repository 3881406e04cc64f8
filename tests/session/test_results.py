"""Results of races of variants and of sides, of failures, and of contracts between the variants of a race."""

import errno
from dataclasses import replace
from statistics import median
from types import SimpleNamespace

import pytest

from tests.fakes.race import scripted_race, steady, variants_of
from tests.fakes.report import judged, variant
from tfbench.errors import BenchmarkError, BenchmarkSkipped, SideError, TfbenchError, WorkerDied, WorkerHung
from tfbench.metrics.catalog import MODEL_METRICS
from tfbench.model import (
    Case,
    Claim,
    Comparison,
    MetricValues,
    Note,
    Outcome,
    Ratio,
    Reason,
    ReasonCode,
    Run,
    Sample,
    Statistic,
    Verdict,
    because,
)
from tfbench.model.formats import plain
from tfbench.model.words import duration
from tfbench.policy import Policy, preset
from tfbench.race.confirmed import twice
from tfbench.session.request import CaseResult
from tfbench.session.results import (
    _typical_facts,
    claimed,
    failed,
    limited,
    new,
    not_collected,
    not_measured,
    of_sides,
    of_variant,
    percentiles,
    with_covered,
    with_facts,
    with_failure,
    with_model,
)
from tfbench.stats.alpha_spending import policy_of
from tfbench.stats.verdict import Decision

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")


def sample(rounds, iterations=1):
    seconds = tuple(1e-3 * (1 + number / rounds) for number in range(rounds))
    return Sample(CASE, (Run(seconds, iterations),))


@pytest.mark.parametrize(("probed", "later"), [(0, ""), (5000, "; a probe looked for slower calls up to 5,000")])
def test_an_unchanged_time_says_which_calls_it_covers(probed, later):
    def result(outcome, *covered):
        runs = tuple(Run((1e-3,), 1, {"covered": one} if one else {}) for one in covered)
        values = MetricValues(counts={"many_calls": {"calls": probed}})
        verdict = judged(CASE, outcome, Reason("code", "text"))
        return with_covered(CaseResult(CASE, verdict, sample=Sample(CASE, runs), metric_values=values))

    text = f"text; times are those of calls 14 to 1,460 of a process, in the first 1.80 s{later}"
    assert result(Outcome.UNCHANGED, [12, 460, 1.8], [14, 1460, 1.7], None).verdict.reason.message == text
    for unknown in (result(Outcome.REGRESSED, [12, 460, 1.8]), result(Outcome.UNCHANGED, None)):
        assert unknown.verdict.reason.message == "text"


@pytest.mark.parametrize(
    ("rounds", "iterations", "reported"),
    [(63, 1, {}), (64, 1, {"p90": 1.9e-3}), (1000, 1, {"p90": 1.9e-3}), (1000, 2, {})],
)
def test_a_percentile_needs_enough_rounds_of_single_iterations(rounds, iterations, reported):
    assert percentiles(sample(rounds, iterations)) == pytest.approx(reported, rel=2e-2)


def raced(*seconds, claims, cases=10, thresholds=(), traces=()):
    """The contract rows of the last variant in a race of a=0, a=1 …; `claims` maps other variants to factors.

    All variants have `thresholds`. Those numbered in `traces` trace a function in most calls.
    """
    entrants = variants_of(*map(str, range(len(seconds))))
    reported = tuple(
        Claim("faster_than" if factor else "as_fast", f"a={other}", (("a", other),), factor)
        for other, factor in claims.items()
    )
    entrants = [replace(entrant, case=replace(entrant.case, thresholds=thresholds)) for entrant in entrants]
    entrants[-1] = replace(entrants[-1], case=replace(entrants[-1].case, claims=reported))
    scripts = [value if callable(value) else steady(value) for value in seconds]
    race, _ = scripted_race(entrants, scripts, preset("quick"), range(6), cases, traces=traces)
    race.run()
    return claimed(race, len(seconds) - 1)


@pytest.mark.parametrize(
    ("seconds", "factor", "outcome"),
    [((3e-3, 1e-3), 2.0, Outcome.UNCHANGED), ((3e-3, 2.9e-3), 2.0, Outcome.REGRESSED), ((1e-3, 3e-3, 1e-3), 2.0, None)],
)
def test_a_variant_must_be_faster_than_the_other_by_the_factor(seconds, factor, outcome):
    (row,) = raced(*seconds, claims={"0": factor})
    assert row.outcome is (outcome or Outcome.REGRESSED)
    assert row.metric == "contract:faster_than"


def test_a_contract_can_name_a_variant_that_is_not_the_reference():
    rows = raced(1e-3, 6e-3, 2e-3, claims={"1": 2.0, "0": 2.0})
    assert {row.metric: row.outcome for row in rows} == {
        "contract:faster_than a=1": Outcome.UNCHANGED,
        "contract:faster_than a=0": Outcome.REGRESSED,
    }


LOOSE = (("minimum_effect", 0.3), ("tolerance", 0.6))


@pytest.mark.parametrize(
    ("seconds", "thresholds", "outcome"),
    [
        ((2e-3, 2e-3), (), "unchanged"), ((2e-3, 1e-3), (), "regressed"), ((1e-3, 2e-3), (), "regressed"),
        ((2e-3, 2.5e-3), (), "regressed"), ((2e-3, 2.5e-3), LOOSE, "unchanged"),
    ],
)  # fmt: skip
def test_a_negative_control_must_be_neither_faster_nor_slower_than_its_case_tolerates(seconds, thresholds, outcome):
    (row,) = raced(*seconds, claims={"0": 0.0}, thresholds=thresholds)
    assert (row.metric, row.outcome) == ("contract:as_fast", outcome)


def test_an_equal_speed_is_proved_by_what_proves_that_a_case_is_unchanged():
    """The interval that finds a change is wider, above all in a large suite, and the race ends without it."""
    alternating = lambda number, pair, rng: 2e-3 * (1.008 if number % 2 else 0.992)  # noqa: E731
    (row,) = raced(steady(2e-3, 0.0), alternating, claims={"0": 0.0}, cases=320)
    assert row.outcome is Outcome.UNCHANGED, row.reason
    assert "at 94% confidence, 2 launches" in row.reason.message


# Failures


@pytest.mark.parametrize(
    ("failure", "code", "message", "output"),
    [
        (BenchmarkError("it raised\nin line 1", "the end"), "broken", "it raised", "in line 1\nthe end"),
        (WorkerDied("killed by SIGKILL", "the end"), "died", "killed by SIGKILL", "the end"),
        (WorkerHung("no answer in 60 s"), "hung", "no answer in 60 s", ""),
        (SideError("it does not start\nlast\nwords"), "side", "it does not start", "last\nwords"),
        (TfbenchError("no\n"), "broken", "no", ""),
    ],
)
def test_a_failure_is_an_error_of_one_line_and_the_rest_is_output(failure, code, message, output):
    for side, text in (({}, message), ({"side": "baseline"}, f"on the baseline side: {message}")):
        verdict = Verdict.of(CASE, Outcome.ERROR, Reason(code, text))
        assert failed(CASE, failure, **side) == CaseResult(CASE, verdict, output=output)


def test_a_benchmark_that_cannot_run_here_is_skipped():
    assert failed(CASE, BenchmarkSkipped("no GPU"), side="baseline") == CaseResult(CASE, skip="no GPU")


@pytest.mark.parametrize("through_a_side", [False, True])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many"), "the limit of 24 open files is too low; raise it with ulimit -n 1024"),
        (MemoryError("4 MiB"), "too little memory is left for tfbench; "),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "too little memory is left for tfbench; "),
        (OSError(errno.EAGAIN, "Unavailable"), "no more processes and threads can be started; "),
        (RuntimeError("can't start new thread"), "no more processes and threads can be started; "),
    ],
)
def test_a_lack_of_files_memory_and_processes_is_no_fault_of_tfbench(monkeypatch, through_a_side, error, message):
    monkeypatch.setattr("os.sysconf", {"SC_OPEN_MAX": 24}.get)
    if through_a_side:
        cause, error = error, SideError("no temporary file can be written")
        error.__cause__ = cause
    found = failed(CASE, error)
    assert (found.verdict.outcome, found.verdict.reason.code, found.output) == (Outcome.ERROR, "broken", "")
    assert found.verdict.reason.message.startswith(message)


def test_a_later_failure_keeps_the_earlier_rows_and_output_and_a_fault_of_tfbench_its_traceback():
    row = Verdict.of(CASE, Outcome.UNCHANGED, Reason("same", "1"), "casts")
    for before, after in (("first", "first"), ("", "then")):
        earlier = CaseResult(CASE, metrics=(row,), output=before)
        found = with_failure(earlier, "probes", BenchmarkError("it raised", "then"))
        assert (found.metrics[0], found.metrics[1].metric, found.output) == (row, "probes", after)

    try:
        raise ValueError("gone\nmore")
    except ValueError as error:
        found = with_failure(CaseResult(CASE, output=""), "probes", error)
    (row,) = found.metrics
    assert (row.metric, row.outcome, row.reason.code) == ("probes", Outcome.ERROR, "internal")
    text = "the case was timed, then a later step failed: tfbench itself failed: ValueError: gone; please report it"
    assert row.reason.message == f"{text} with its traceback"
    assert found.output.startswith("Traceback (most recent call last):\n  File")
    assert found.output.endswith("ValueError: gone\nmore\n")


def test_a_case_without_a_measurement_is_an_error():
    reason = Reason("not-measured", "the run ended before this case was measured")
    assert not_measured(CASE) == CaseResult(CASE, Verdict.of(CASE, Outcome.ERROR, reason))
    assert not_measured(CASE, "Timeout").verdict.reason.message == "Timeout"


@pytest.mark.parametrize(
    ("error", "last"),
    [
        ("Traceback\nE   NameError: x\n\n", "NameError: x"),
        ("SyntaxError: E x \n", "SyntaxError: E x"),
        (" \n", "no reason given"),
    ],
)
def test_a_file_that_pytest_cannot_collect_is_an_error_in_the_place_of_its_cases(error, last):
    name = "a/b/test_x.py"
    case = Case(name, "test_x.py", name)
    reason = Reason("not-collected-here", f"pytest could not collect it, so its cases are unknown: {last}")
    expected = CaseResult(case, Verdict.of(case, Outcome.ERROR, reason), output=error)
    assert not_collected(name, error) == expected
    fixed = not_collected(name, error, fix="install x").verdict.reason
    assert fixed == Reason(reason.code, f"{reason.message}; install x")
    assert not_collected(name, error, "no TensorFlow") == CaseResult(case, skip="no TensorFlow")


# Two sides


RATIO = Ratio(1.05, 1.02, 1.08, 0.99)
DECISION = Decision(Outcome.REGRESSED, Reason("slower", "5% slower"), Comparison(RATIO, 6, 60))
FIRST = Decision(Outcome.IMPROVED, Reason("faster", "less"), Comparison(replace(RATIO, center=0.5), 6, 6))


RACE = {"unlike": None, "failures": {}, "races": [], "policy": Policy(), "decision": DECISION, "launches": 6, "rounds": 60,
        "wall_seconds": 2.5, "tail": None, "first_call": None, "sampled": [], "first": SimpleNamespace(usual=Policy().step_time, thresholds=lambda entrant: Policy().step_time),
        "runs": lambda side: [Run((1.0 + side,), 1)]}  # fmt: skip


def two_sides(*notes, **race):
    return of_sides(CASE, SimpleNamespace(**{**RACE, **race}), *notes)


def test_a_race_of_two_sides_gives_the_verdict_and_both_samples():
    found = two_sides()
    verdict = Verdict.of(CASE, Outcome.REGRESSED, DECISION.reason, ratio=RATIO, launches=6, rounds=60, wall_seconds=2.5)
    contender, baseline = (Sample(CASE, (Run((seconds,), 1),)) for seconds in (2.0, 1.0))
    assert found == CaseResult(CASE, verdict, sample=contender, baseline=baseline)
    noted = two_sides(because(Note.TOO_FEW_AGAIN), None).verdict.reason
    assert noted == Reason("slower", "5% slower; too few cases could be raced again to confirm it")
    slower = replace(DECISION, reason=because(ReasonCode.SLOWER, ratio=RATIO, launches=6))
    changed = two_sides(because(Note.BENCHMARK_CHANGED), decision=slower).verdict.reason
    assert changed.message == f"{because(Note.BENCHMARK_CHANGED)}; {slower.reason}"


@pytest.mark.parametrize(
    "of_tail", [{"statistic": Statistic.TAIL}, {"reason": Reason(ReasonCode.TAIL_NOT_DECIDED, "x")}, {}]
)
def test_a_decision_about_slow_calls_describes_the_calls(of_tail):
    runs = [Run((1e-3,) * 9 + (slow,), 1) for slow in (1e-3, 2e-3)]
    decision = replace(DECISION, **of_tail)
    verdict = two_sides(decision=decision, tail=RATIO, runs=lambda side: [runs[side]]).verdict
    before, now = verdict.calls
    assert (before.slow, now.slow, verdict.tail) == (0, pytest.approx(0.1), RATIO)
    assert verdict.reason == decision.reason.noted(because(Note.CALLS, before=before, now=now) if of_tail else None)


def test_the_verdict_says_who_took_the_times_and_how_calls_found_the_cache():
    runs = [Run((1.0,), 1, {"reported": True, "cache": "cold"})]
    assert two_sides(runs=lambda side: runs).verdict.reason.message == (
        "5% slower; one time per launch, as the benchmark takes and reports it itself; cold cache"
    )


def test_own_thresholds_and_throughput_are_part_of_the_verdict():
    own = replace(CASE, thresholds=(("minimum_effect", 0.05), ("tolerance", 0.1)))
    used = policy_of(Policy(), own).step_time
    race = {**RACE, "first": SimpleNamespace(usual=Policy().step_time, thresholds=lambda entrant: used),
            "runs": lambda side: [Run((1.0,), 1, {"items": 10 * (1 + side)})]}  # fmt: skip
    verdict = of_sides(own, SimpleNamespace(**race)).verdict
    assert verdict.reason.message == (
        "5% slower; per item: a call had 10, and has 20 now; own thresholds: minimum effect 5.0%, tolerance 10.0%"
    )
    assert plain(verdict)["thresholds"] == {"minimum_effect": 0.05, "tolerance": 0.1}
    assert plain(verdict)["rates"] == {"items/s": {"baseline": 10, "contender": pytest.approx(10 / 1.05)}}


def test_the_verdict_has_the_thresholds_that_were_used():
    loose = replace(CASE, thresholds=(("minimum_effect", 0.45), ("tolerance", 0.9)))
    found = of_sides(loose, SimpleNamespace(**RACE))
    assert found.case == loose  # the next baseline has what the benchmark declares
    assert "thresholds" not in plain(found.verdict)
    assert found.verdict.reason.message == (
        "5% slower; its own thresholds (minimum effect 45.0%, tolerance 90.0%) are looser than the baseline's, "
        "so the stricter ones count"
    )


def test_a_step_of_two_speeds_says_how_many_calls_are_slow_on_each_side():
    fast, slow = (0.06, 0.061, 0.062, 0.063), (0.142, 0.143, 0.144, 0.145)
    runs = [Run(fast * 2 + slow[:1], 9), Run(fast + slow, 8)]
    found = two_sides(runs=lambda side: runs[side : side + 1]).verdict.reason.message
    assert found == (
        "5% slower; calls take 61.5 ms or 143 ms: 11% of the baseline's were slow, and 50% of the contender's"
    )


def test_the_first_call_and_the_memory_have_rows_of_their_own():
    memory = Verdict.of(CASE, Outcome.UNCHANGED, Reason("same", "1"), "peak_host_memory")
    found = two_sides(first_call=FIRST, sampled=[memory])
    first = Verdict.of(CASE, Outcome.IMPROVED, FIRST.reason, "first_call", **FIRST.comparison.columns)
    assert found.metrics == (first, memory)
    assert two_sides(first_call=replace(FIRST, outcome=None)).metrics == ()


def test_the_failure_of_the_contender_is_reported_before_that_of_the_baseline():
    old, new = BenchmarkError("old"), BenchmarkError("new")
    assert two_sides(failures={1: new, 0: old}).verdict.reason.message == "on the contender side: new"
    found = two_sides(failures={0: old})
    assert found == failed(CASE, old, side="baseline")
    assert found.verdict.reason.message == "on the baseline side: old"


def test_a_case_that_one_side_cannot_run_is_incomparable():
    skip = BenchmarkSkipped("no GPU")
    found = two_sides(failures={0: skip})
    reason = Reason("skipped-on-one-side", "the baseline side cannot run it: no GPU")
    assert found == CaseResult(CASE, Verdict.of(CASE, Outcome.INCOMPARABLE, reason))
    assert two_sides(failures={0: skip, 1: skip}).skip == "no GPU"


def test_a_race_that_was_given_up_is_inconclusive():
    calm = SimpleNamespace(abort_reason="")
    aborted = SimpleNamespace(abort_reason="a busy neighbour", disturbed=[1, 2], launches=[1, 2, 3], wall_seconds=1.5)
    reason = Reason("disturbed", "not decided, as 2 launches were discarded: a busy neighbour")
    verdict = Verdict.of(CASE, Outcome.INCONCLUSIVE, reason, launches=3, wall_seconds=1.5)
    assert two_sides(races=[calm, aborted]) == CaseResult(CASE, verdict)


def test_a_race_of_other_native_code_is_incomparable():
    verdict = Verdict.of(CASE, Outcome.INCOMPARABLE, Reason("other-native-code", "loaded x.so"), wall_seconds=2.5)
    assert two_sides(unlike=verdict.reason) == CaseResult(CASE, verdict)


@pytest.mark.parametrize("decision", [None, replace(DECISION, outcome=None)])
def test_a_race_without_a_decision_is_an_error(decision):
    with pytest.raises(BenchmarkError) as caught:
        two_sides(decision=decision)
    assert str(caught.value) == "w.py::test_w: the race ended without a decision"


# Variants


def race_of(*seconds, cases=10):
    variants = variants_of(*map(str, range(len(seconds))))
    race, _ = scripted_race(variants, [steady(value) for value in seconds], preset("quick"), range(6), cases)
    race.run()
    return race


def test_a_variant_is_compared_with_the_reference_and_has_no_baseline():
    race = race_of(1e-3, 2e-3)
    reference, found = of_variant(race, 0), of_variant(race, 1)
    runs = race.runs(1)
    reason = Reason("no-baseline", "measured; compared with the other variants only, as the run has no baseline")
    assert found.sample == Sample(found.case, tuple(runs))
    assert found.verdict == Verdict.of(
        found.case, Outcome.NEW, reason, launches=len(runs), rounds=race.rounds(1), wall_seconds=race.wall_seconds
    )
    result = found.variant_result
    assert (result.name, result.reference) == (race.entrants[1].case.name, race.entrants[0].case.name)
    assert result.median_seconds == median(found.sample.seconds)
    assert (result.outcome, result.ratio) == (Outcome.REGRESSED, race.decisions[1].comparison.ratio)
    assert (result.launches, result.rounds) == (len(runs), race.rounds(1))
    assert result.facts["first_call"] == 0.1
    assert (reference.variant_result.outcome, reference.variant_result.ratio) == (None, None)
    assert reference.variant_result.reference == reference.case.name


def test_a_variant_that_broke_or_was_disturbed_has_no_sample():
    race = race_of(1e-3, 2e-3)
    race.failures[1] = BenchmarkError("it raised")
    assert of_variant(race, 1) == failed(race.entrants[1].case, race.failures[1])
    disturbing = SimpleNamespace(entrants=race.entrants, failures={}, abort_reason="noise", disturbed=[1], launches=[],
                                 wall_seconds=1.0)  # fmt: skip
    for found in (of_variant(disturbing, 1), new(CASE, disturbing, 1, Reason("x", "y"))):
        assert (found.verdict.outcome, found.verdict.reason.code, found.sample) == (
            Outcome.INCONCLUSIVE, "disturbed", None,
        )  # fmt: skip


def test_facts_that_vary_are_medians_and_the_others_those_of_the_first_launch():
    varying = ("first_call", "peak_host_memory", "dispatch_time", "gpu_clock")
    runs = [Run((1.0,), 1, {**dict.fromkeys(varying, value), "flops": value}) for value in (1.0, 9.0, 2.0)]
    assert _typical_facts([*runs, Run((1.0,), 1)]) == {**dict.fromkeys(varying, 2.0), "flops": 1.0}
    assert _typical_facts([Run((1.0,), 1, {"flops": 1})]) == {"flops": 1}


def test_facts_of_the_model_are_added_to_the_variant():
    values = MetricValues(numbers={**dict.fromkeys(MODEL_METRICS, 0.5), "flops": 3.0})
    timed = variant(CASE, CASE.name, 1.0, None, None, 1, 1, {"flops": 1.0})
    result = CaseResult(CASE, variant_result=timed, metric_values=values)
    assert with_model(result).variant_result.facts == {"flops": 1.0, **dict.fromkeys(MODEL_METRICS, 0.5)}
    assert with_model(replace(result, metric_values=None)).variant_result == result.variant_result
    assert with_model(replace(result, variant_result=None)).variant_result is None
    assert with_facts(result, {"flops": 2.0}).variant_result.facts == {"flops": 2.0}


# Contracts


def test_a_contract_of_a_variant_that_broke_cannot_be_checked():
    case = replace(CASE, claims=(Claim("faster_than", "a=0", (("a", "0"),), 2.0),))
    race = SimpleNamespace(entrants=[SimpleNamespace(case=case)], failures={0: BenchmarkError("it raised")})
    (row,) = claimed(race, 0)
    assert row.outcome is Outcome.ERROR
    assert row.reason.message == "the benchmark broke in a race against a=0: it raised"


@pytest.mark.parametrize(("traces", "outcome"), [((0,), "unchanged"), ((1,), "inconclusive")])
def test_a_variant_that_traces_again_in_most_calls_is_not_called_faster(traces, outcome):
    (row,) = raced(3e-3, 1e-3, claims={"0": 2.0}, traces=traces)
    assert row.outcome == outcome
    assert ("most calls of this variant trace a function again" in row.reason.message) == (outcome != "unchanged")


def test_a_contract_without_a_comparison_says_why():
    (row,) = raced(3e-3, 1e-3, claims={"9": 2.0})
    assert row.reason.message == "a=9: 2x is claimed; that variant is not part of this run, or broke"
    race = race_of(1e-3, 2e-3)
    claim = Claim("faster_than", "a=0", (("a", "0"),), 2.0)
    race.entrants[1] = replace(race.entrants[1], case=replace(race.entrants[1].case, claims=(claim,)))
    race._raced = [(replace(launch, runs=(launch.runs[0], None)), stopped) for launch, stopped in race._raced]
    (row,) = claimed(race, 1)
    assert row.outcome is Outcome.INCONCLUSIVE
    assert row.reason.message == "a=0: 2x is claimed; the two variants have no launch in common"


OPEN = "a first race said: slow; fresh launches did not confirm it: "


@pytest.mark.parametrize(
    ("second", "outcome", "code", "message"),
    [
        (None, "inconclusive", "not-confirmed", f"{OPEN}no launch has measured it"),
        ("unchanged", "inconclusive", "not-confirmed", f"{OPEN}then"),
        ("regressed", "regressed", "second", "then; found twice, the first time as slow"),
        ("error", "error", "second", "then"),
    ],
)
def test_a_broken_contract_is_raced_twice(second, outcome, code, message):
    first = Verdict.of(CASE, Outcome.REGRESSED, Reason("first", "slow"), "contract:faster_than")
    again = second and Verdict.of(CASE, Outcome(second), Reason("second", "then"), "contract:faster_than")
    assert twice(first, again) == first.changed(outcome=Outcome(outcome), reason=Reason(code, message))


@pytest.mark.parametrize(
    ("name", "seconds", "outcome"),
    [
        ("at_most", 1.5e-3, "unchanged"), ("at_most", 1.02e-3, "inconclusive"), ("at_most", 0.5e-3, "regressed"),
        ("at_least", 0.5e-3, "unchanged"), ("at_least", 0.98e-3, "inconclusive"), ("at_least", 1.5e-3, "regressed"),
    ],
)  # fmt: skip
def test_a_limit_in_seconds_is_judged_by_all_launches_and_a_near_one_is_open(name, seconds, outcome):
    case = replace(CASE, claims=(Claim(name, name.replace("_", " "), (), seconds, "call_seconds"),))
    runs = tuple(Run((level * 1e-3,) * 30, 1) for level in (1.0, 1.01, 0.99, 1.005))
    result = limited(CaseResult(case, sample=Sample(case, runs)), Policy(), 1)
    (row,) = result.metrics
    assert (row.metric, row.outcome) == (f"contract:{name}", Outcome(outcome))
    assert "1.00 ms (" in row.reason.message
    assert row.reason.message.endswith(f"4 launches), {name.replace('_', ' ')} {duration(seconds)} is stated")


def test_times_that_neighbours_may_have_shortened_leave_an_upper_limit_open():
    case = replace(CASE, claims=(Claim("at_most", "at most", (), 1.5e-3, "call_seconds"),))
    runs = tuple(Run((1e-3,) * 30, 1, facts={"doubt": 0.5}) for _ in range(4))
    (row,) = limited(CaseResult(case, sample=Sample(case, runs)), Policy(), 1).metrics
    assert row.outcome is Outcome.INCONCLUSIVE
