"""Verdicts on other metrics, explanations and demotions, with a scripted prober."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.report import judged as of_time
from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.metrics import exact
from tfbench.metrics.parity import LARGEST, Output, ProbeOutput
from tfbench.model import Both, Case, Claim, MetricValues, Outcome, Reason, ReasonCode, Run, Sample, Verdict, because
from tfbench.model.formats import convert, plain
from tfbench.policy import preset
from tfbench.race.launch import Entrant
from tfbench.session.request import CaseResult
from tfbench.session.results import PROBES, BaselineValues, MetricChecker
from tfbench.sides.spec import Side

REFERENCE = Case("w.py::w[a=x]", "w", "w.py::w", (("a", "x"),))
OTHER = Case("w.py::w[a=y]", "w", "w.py::w", (("a", "y"),), reference=False)
HERE, THERE = Side("contender", "python", Path("/")), Side("baseline", "python", Path("/"))
POLICY = preset("standard")
LIVE, LIVE_OTHER = (BaselineValues(entrant=Entrant(case, THERE)) for case in (REFERENCE, OTHER))


def probe_output(flops=10, outputs=(1.0, 2.0), later=None, **facts):
    named = outputs if isinstance(outputs, dict) else {"": outputs}
    last = () if later is None else (Output(np.array(later), "", "float64", call=6),)
    arrays = [Output(array := np.array(one), name, str(array.dtype)) for name, one in named.items()]
    return ProbeOutput(
        found={"flops": {"flops": flops}, "outputs": {}}, absent={}, facts=facts, results=(*arrays, *last)
    )


LEFT_OUT = "the other variant is skipped or not part of this run"
NOTHING = ProbeOutput({"flops": {"flops": 10}}, {"outputs": "the step returns no numbers"})


class Prober:
    """Answers from a table: (side, case) -> output of the probe, or a list of successive outputs."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.at_once = []
        self.pairs = []

    def probe(self, entrants, pairs=()):
        self.pairs.append(tuple(pairs))
        keys = [(entrant.side.name, entrant.case.name) for entrant in entrants]
        self.at_once.append(len(keys))
        self.asked += keys
        return [self._answer(key) for key in keys]

    def _answer(self, key):
        answer = self.answers.get(key, self.answers.get(key[0], probe_output()))
        return (answer.pop(0) if len(answer) > 1 else answer[0]) if isinstance(answer, list) else answer


def timed(case):
    verdict = of_time(case, Outcome.UNCHANGED, Reason("within-tolerance", "unchanged"))
    run = Run((1e-3,), 1, {"peak_host_memory": 10 << 20})
    return CaseResult(case, verdict, sample=Sample(case, (run,) * 3))


def judged(answers, baseline_values, case=REFERENCE, cases=(REFERENCE, OTHER)):
    prober = Prober(answers)
    result = MetricChecker(prober, POLICY, cases, 1).checked(timed(case), HERE, baseline_values)
    assert {row.name for row in result.metrics} <= {case.name}
    return result, {row.metric: row for row in result.metrics}, prober


def tuned(algorithm):
    call = f'%c = f32[8] custom-call(%a), custom_call_target="__cublas$gemm", backend_config={{"selected_algorithm":"{algorithm}"}}'
    output = probe_output()
    return replace(output, found={**output.found, "xla": {}}, modules=[f"ENTRY %f (a: f32[8]) -> f32[8] {{\n  {call}"])


@pytest.mark.parametrize(("again", "words"), [(5, "neither better nor worse by itself"), (18, "it is not exact here")])
def test_a_time_names_the_kernels_that_xla_has_tuned_otherwise(again, words):
    answers = {"contender": [tuned(5), tuned(again), tuned(again)], "baseline": tuned(18)}
    result, rows, _ = judged(answers, LIVE)
    assert rows["xla_algorithms"].outcome is Outcome.INCONCLUSIVE
    assert "other metrics: xla_algorithms 1 before, 1 now" in result.verdict.reason.message
    assert words in result.verdict.reason.message


def test_a_baseline_side_that_reads_a_changed_file_of_the_working_tree_is_incomparable():
    answers = {"baseline": probe_output(flops=20, native={"foreign": ["turns.txt"]})}
    result, rows, _ = judged(answers, LIVE)
    assert (result.verdict.outcome, rows) == (Outcome.INCOMPARABLE, {})
    assert "has loaded turns.txt of the working tree, so both sides run the same copy" in result.verdict.reason.message
    result, _, _ = judged({"baseline": probe_output(native={"own": ["fast.so"]})}, LIVE)
    assert result.verdict.outcome is Outcome.UNCHANGED


def test_both_sides_are_probed_again_at_once_in_zygotes_of_the_race_and_then_in_others():
    _, _, prober = judged({"contender": probe_output(flops=20)}, LIVE)
    assert prober.pairs == [(), (1, 1, 2, 2), (3, 3, 4, 4, 5, 5)]
    _, _, prober = judged({"contender": probe_output(flops=9)}, LIVE)
    assert prober.pairs == [(), (1, 1, 2, 2)]


def test_the_memory_of_a_race_is_judged_once():
    """The race has paired launches and confirms a change. Unpaired facts must neither replace nor explain that."""
    raced = timed(REFERENCE)
    memory = Verdict.of(REFERENCE, Outcome.UNCHANGED, Reason("within-tolerance", ""), "peak_host_memory")
    raced = replace(raced, baseline=raced.sample, metrics=(memory,))
    saved = BaselineValues(
        metric_values=MetricValues(), facts=[{"peak_host_memory": 90 << 20}] * 3, differences=["Python 3.10 there"]
    )
    result = MetricChecker(Prober({}), POLICY, (REFERENCE,), 1).checked(raced, HERE, saved)
    assert [row for row in result.metrics if row.metric == "peak_host_memory"] == [memory]
    assert "memory" not in result.verdict.reason.message


def test_saved_memory_is_judged_in_one_stage_with_the_alpha_that_all_shards_share(monkeypatch):
    """It has no second race."""
    asked = []
    monkeypatch.setattr(exact, "memory", lambda case, before, now, policy, cases: asked.append((policy.confirm, cases)))
    saved = BaselineValues(metric_values=MetricValues(), facts=[{"peak_host_memory": 90 << 20}] * 3)
    MetricChecker(Prober({}), POLICY, (REFERENCE,), 320).checked(timed(REFERENCE), HERE, saved)
    assert asked == [(False, 320)]


def test_without_a_baseline_every_metric_is_new():
    result, rows, _ = judged({}, None)
    assert {(row.name, row.outcome) for row in rows.values()} == {(REFERENCE.name, Outcome.NEW)}
    assert (*rows["peak_host_memory"].values,) == (None, 10 << 20)
    assert {row.reason.code for row in rows.values()} == {"no-baseline"}
    assert (*rows["flops"].values,) == (None, 10)
    assert result.metric_values.numbers["flops"] == 10


def test_each_live_side_is_probed_once():
    baseline_values = BaselineValues(entrant=Entrant(REFERENCE, THERE), facts=[{"peak_host_memory": 10 << 20}] * 3)
    _, rows, prober = judged({}, baseline_values)
    assert prober.asked == [("contender", REFERENCE.name), ("baseline", REFERENCE.name)]
    assert prober.at_once == [2]
    assert {metric: row.outcome for metric, row in rows.items()} == {
        "flops": Outcome.UNCHANGED, "nonfinite": Outcome.UNCHANGED, "parity": Outcome.UNCHANGED,
        "peak_host_memory": Outcome.UNCHANGED,
    }  # fmt: skip


def test_a_change_that_only_the_first_three_zygotes_of_a_side_share_does_not_count():
    answers = {"contender": [*[probe_output(11)] * 4, probe_output(10)]}
    _, rows, _ = judged(answers, LIVE)
    assert (rows["flops"].outcome, rows["flops"].reason.code) == (Outcome.INCONCLUSIVE, ReasonCode.NOT_EXACT)


def test_a_variant_is_read_again_together_with_the_reference_of_its_zygote():
    """Numbers drawn at import differ between zygotes, and a variant's error within each does not."""
    drawn = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    answers = {
        (side, REFERENCE.name): [probe_output(outputs=(one, 1.0)) for one in drawn]
        for side in ("baseline", "contender")
    }
    answers["baseline", OTHER.name] = [probe_output(outputs=(one, 1.0)) for one in drawn]
    answers["contender", OTHER.name] = [probe_output(outputs=(one, 1.0 + one / 5)) for one in drawn]
    _, rows, _ = judged(answers, LIVE_OTHER, OTHER)
    assert (rows["parity"].outcome, rows["parity"].values.baseline) == (Outcome.REGRESSED, 0)


def test_rounding_does_not_hide_a_wrong_result():
    wrong = (2.1, 2.0)
    answers = {"contender": [probe_output(outputs=one) for one in (wrong, (2.1 + 1e-15, 2.0), wrong)]}
    _, rows, _ = judged(answers, LIVE)
    assert rows["parity"].outcome is Outcome.REGRESSED
    random = {"contender": [probe_output(outputs=(value, 2.0)) for value in (2.1, 1.3, 0.2)]}
    _, rows, _ = judged(random, LIVE)
    assert (rows["parity"].outcome, rows["parity"].reason.code) == (Outcome.INCONCLUSIVE, "not-exact")


def test_a_change_that_cannot_be_read_again_is_an_error():
    answers = {"contender": [probe_output(11), BenchmarkError("it broke"), probe_output(11)]}
    with pytest.raises(BenchmarkError, match="it broke"):
        judged(answers, LIVE)


def test_values_to_be_saved_tell_what_differs_between_launches_of_their_side():
    prober = Prober({"contender": [probe_output(11), probe_output(12), probe_output(11)]})
    checker = MetricChecker(prober, POLICY, (REFERENCE,), 1)
    first = checker.checked(timed(REFERENCE), HERE, None).metric_values
    unstable = checker.stable(REFERENCE, HERE, first)
    assert set(unstable.unstable) == {"flops"}
    _, rows, _ = judged({"contender": probe_output(13)}, BaselineValues(metric_values=unstable))
    assert (rows["flops"].outcome, rows["flops"].reason.code) == (Outcome.INCONCLUSIVE, "not-exact")
    assert convert(MetricValues, plain(unstable)) == unstable


@pytest.mark.parametrize(
    "other", [{"differences": ["tensorflow 2.20 there, 2.21 here"]}, {"machines": ["another CPU"]}]
)
def test_saved_memory_of_another_machine_or_version_explains_and_does_not_gate(other):
    values = MetricValues(numbers={"flops": 9.0})
    saved = BaselineValues(metric_values=values, facts=[{"peak_host_memory": 90 << 20}] * 3, **other)
    result, rows, _ = judged({}, saved)
    assert "peak_host_memory" not in rows
    across = "differences" in other
    assert (("flops" in rows), ("flops 9 before, 10 now" in result.verdict.reason.message)) == (not across, across)
    assert "peak_host_memory 90.00 MiB before, 10.00 MiB now" in result.verdict.reason.message


def test_a_side_with_saved_metrics_is_not_probed():
    saved = MetricValues(numbers={"flops": 9.0}, counts={"nonfinite": {}})
    result, rows, prober = judged({}, BaselineValues(metric_values=saved))
    assert rows["flops"].outcome is Outcome.REGRESSED
    assert (rows["parity"].outcome, rows["parity"].values) == (Outcome.NEW, Both(None, 0.0))
    assert {side for side, _ in prober.asked} == {"contender"}
    assert result.verdict.outcome is Outcome.UNCHANGED


def test_outputs_of_a_variant_are_compared_with_its_reference_on_the_same_side():
    answers = {("contender", OTHER.name): probe_output(outputs=(1.0, 2.2)), ("baseline", OTHER.name): probe_output()}
    result, rows, _ = judged(answers, LIVE_OTHER, OTHER)
    assert rows["parity"].outcome is Outcome.REGRESSED
    assert (*rows["parity"].values,) == pytest.approx((0, 0.1))
    assert "differs from the reference variant by 0.1" in rows["parity"].reason.message
    assert result.metric_values.numbers["parity"] == pytest.approx(0.1)


def test_a_baseline_without_sketches_or_without_metrics_has_no_other_outputs():
    answers = {("contender", OTHER.name): probe_output(outputs=(1.0, 2.2))}
    _, rows, _ = judged(answers, BaselineValues(metric_values=MetricValues(numbers={"parity": 0.1})), OTHER)
    assert rows["parity"].outcome is Outcome.UNCHANGED
    _, rows, _ = judged({}, BaselineValues())
    assert {row.outcome for row in rows.values()} == {Outcome.NEW}


def test_a_wrong_result_of_a_later_call_is_a_regression():
    answers = {"contender": probe_output(later=(1.0, 2.2)), "baseline": probe_output(later=(1.0, 2.0))}
    _, rows, _ = judged(answers, LIVE)
    assert rows["parity"].outcome is Outcome.REGRESSED
    text = "differs from the baseline's result by 0.089 in call 6, by 0 before"
    assert rows["parity"].reason.message == text


def test_a_later_result_that_differs_between_launches_of_a_side_is_noted():
    answers = {
        side: [probe_output(later=(value, 2.0)) for value in values]
        for side, values in {"contender": (1.0, 1.1, 0.9), "baseline": (1.2, 0.9, 1.0)}.items()
    }
    _, rows, _ = judged(answers, LIVE)
    assert rows["parity"].outcome is Outcome.UNCHANGED
    text = "in call 6, by 0 before, but the metric is not exact here: launches of the same side differ by"
    assert text in rows["parity"].reason.message


@pytest.mark.parametrize(("value", "outcome"), [(2.3, Outcome.INCONCLUSIVE), (2.6, Outcome.REGRESSED)])
def test_a_result_that_differs_between_launches_of_a_side_regresses_by_more_than_that_alone(value, outcome):
    answers = {
        side: [probe_output(outputs=(one,)) for one in values]
        for side, values in {"contender": (value, value, value), "baseline": (1.0, 1.0, 1.15)}.items()
    }
    _, rows, _ = judged(answers, LIVE)
    assert rows["parity"].outcome is outcome


def test_a_variant_may_drift_from_its_reference_in_later_calls():
    answers = {
        ("contender", OTHER.name): probe_output(later=(1.0, 2.2), contracts={"parity": 1e-3}),
        ("contender", REFERENCE.name): probe_output(later=(1.0, 2.0)),
    }
    _, rows, _ = judged(answers, None, OTHER)
    assert rows["contract:parity"].outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("without", "why"),
    [(NOTHING, "the step returns no numbers"), (probe_output(outputs={}), "the step has no output")],
)
def test_a_result_that_only_the_baseline_has_is_named_beside_the_time(without, why):
    result, _, _ = judged({"contender": without}, LIVE)
    said = f"other metrics: the result is missing ({why}), and the baseline's step returns numbers"
    assert said in result.verdict.reason.message


def test_another_digest_of_the_benchmark_leaves_its_metrics_gated():
    answers = {"contender": probe_output(11, (3.0, 2.0), source="new"), "baseline": probe_output(source="old")}
    _, rows, _ = judged(answers, LIVE)
    assert rows["flops"].outcome is Outcome.REGRESSED
    assert rows["parity"].outcome is Outcome.REGRESSED


def test_outputs_of_another_shape_than_the_reference_variants_break_the_contract():
    answers = {("contender", OTHER.name): probe_output(outputs=(1.0, 2.0, 3.0), contracts={"parity": 1e-3})}
    _, rows, _ = judged(answers, None, OTHER)
    text = "differs from the reference variant: the output has the shape (3,) instead of (2,)"
    assert (*rows["parity"].values,) == (None, LARGEST)
    assert rows["contract:parity"].outcome is Outcome.REGRESSED
    assert rows["contract:parity"].reason.message == f"{text}, 0.001 allowed"


def test_a_variant_may_have_another_shape_than_its_reference_as_long_as_both_sides_agree():
    wide = probe_output(outputs=(1.0, 2.0, 3.0))
    _, rows, _ = judged({("contender", OTHER.name): wide, ("baseline", OTHER.name): wide}, LIVE_OTHER, OTHER)
    assert rows["parity"].outcome is Outcome.UNCHANGED
    _, rows, _ = judged({("contender", OTHER.name): wide}, LIVE_OTHER, OTHER)
    assert rows["parity"].outcome is Outcome.REGRESSED
    text = "differs from the baseline's result: the output has the shape (3,) instead of (2,)"
    assert rows["parity"].reason.message == text


@pytest.mark.parametrize(("whole", "outcome"), [((500, 1000), Outcome.UNCHANGED), ((501, 1000), Outcome.REGRESSED)])
def test_a_wrong_whole_number_of_a_variant_is_found_beside_its_rounding(whole, outcome):
    def step(rounded, whole=(500, 1000)):
        return probe_output(outputs={"['loss']": (1.0, rounded), "['ids']": whole})

    answers = {
        ("contender", REFERENCE.name): step(2.0), ("baseline", REFERENCE.name): step(2.0),
        ("contender", OTHER.name): step(2.015, whole), ("baseline", OTHER.name): step(2.01),
    }  # fmt: skip
    _, rows, _ = judged(answers, LIVE_OTHER, OTHER)
    assert rows["parity"].outcome is outcome
    assert ("['ids']" in rows["parity"].reason.message) == (outcome is Outcome.REGRESSED)


@pytest.mark.parametrize(
    ("case", "cases", "outcome"),
    [
        (OTHER, (REFERENCE, OTHER), Outcome.REGRESSED),
        (OTHER, (OTHER,), Outcome.INCONCLUSIVE),
        (REFERENCE, (REFERENCE, OTHER), Outcome.UNCHANGED),
    ],
)
def test_the_parity_contract_needs_the_reference_variant(case, cases, outcome):
    wrong = probe_output(outputs=(1.0, 2.2), contracts={"parity": 1e-3})
    answers = {"contender": probe_output(contracts={"parity": 1e-3}), ("contender", OTHER.name): wrong}
    _, rows, _ = judged(answers, None, case, cases)
    assert rows["contract:parity"].outcome is outcome


@pytest.mark.parametrize(
    ("reference", "mine", "cases", "outcome", "why"),
    [
        (
            BenchmarkError("no"),
            probe_output(),
            (REFERENCE, OTHER),
            Outcome.ERROR,
            "the reference variant could not be probed",
        ),
        (probe_output(outputs={}), probe_output(), (REFERENCE, OTHER), Outcome.ERROR, "the step has no output"),
        (probe_output(), NOTHING, (REFERENCE, OTHER), Outcome.ERROR, "the step returns no numbers"),
        (probe_output(), probe_output(), (OTHER,), Outcome.INCONCLUSIVE, LEFT_OUT),
        (BenchmarkSkipped("no GPU"), probe_output(), (REFERENCE, OTHER), Outcome.INCONCLUSIVE, LEFT_OUT),
    ],
)
def test_a_parity_contract_without_a_comparison_is_an_error_unless_its_reference_is_left_out(
    reference, mine, cases, outcome, why
):
    mine = replace(mine, facts={"contracts": {"parity": 1e-3}})
    answers = {("contender", REFERENCE.name): reference, ("contender", OTHER.name): mine}
    _, rows, _ = judged(answers, None, OTHER, cases)
    row = rows["contract:parity"]
    assert (row.outcome, row.reason.message) == (outcome, f"the result has no comparison: {why}")


THIRD = Case("w.py::w[a=z]", "w", "w.py::w", (("a", "z"),), reference=False,
             claims=(Claim("smaller_than", "a=y", (("a", "y"),), 2.0, "flops"),))  # fmt: skip


@pytest.mark.parametrize(
    ("other", "cases", "outcome", "why"),
    [
        (probe_output(20), (REFERENCE, OTHER, THIRD), Outcome.UNCHANGED, ""),
        (probe_output(19), (REFERENCE, OTHER, THIRD), Outcome.REGRESSED, ""),
        (BenchmarkError("gone"), (REFERENCE, OTHER, THIRD), Outcome.ERROR, "its probe failed: gone"),
        (BenchmarkSkipped("no"), (REFERENCE, OTHER, THIRD), Outcome.INCONCLUSIVE, LEFT_OUT),
        (probe_output(20), (REFERENCE, THIRD), Outcome.INCONCLUSIVE, LEFT_OUT),
    ],
)
def test_a_contract_on_another_metric_reads_the_other_variant_on_the_side_of_the_change(other, cases, outcome, why):
    answers = {("contender", OTHER.name): other, "baseline": probe_output(30 if outcome is Outcome.REGRESSED else 10)}
    result, rows, _ = judged(answers, BaselineValues(entrant=Entrant(THIRD, THERE)), THIRD, cases)
    row = rows["contract:smaller_than"]
    assert (row.name, row.outcome) == (THIRD.name, outcome)
    assert not why or row.reason.message == f"a=y: {why}"
    assert result.metrics.count(row) == 1


def test_the_code_of_a_case_whose_probe_fails_is_unknown():
    prober = Prober({"contender": probe_output(source="new"), "baseline": BenchmarkError("no")})
    checker = MetricChecker(prober, POLICY, (REFERENCE,), 1)
    here, there = checker.executed(Entrant(REFERENCE, HERE), Entrant(REFERENCE, THERE))
    assert (here.source, there, prober.at_once) == ("new", None, [2])


@pytest.mark.parametrize(("side", "timed"), [("contender", "the case"), ("baseline", "the baseline side")])
def test_a_case_whose_probe_fails_is_an_error(side, timed):
    result, rows, _ = judged({side: BenchmarkError("while it was probed: no")}, LIVE)
    reason = because(ReasonCode.NOT_PROBED, timed=timed, error="while it was probed: no")
    assert rows[PROBES] == Verdict.of(REFERENCE, Outcome.ERROR, reason, PROBES)
    assert result.failures == [rows[PROBES]]
