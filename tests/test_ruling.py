"""The ruling: a known regression counts, missing data never counts as a pass, and every reader says the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.report import CODE, complete, judged, row
from tfbench.metrics.catalog import DECISIVE
from tfbench.model import TIME, Case, Note, Outcome, Reason, ReasonCode, Run, Sample, Skip, SuiteVerdict, because
from tfbench.plugin.runner import end_test
from tfbench.report import markdown, terminal
from tfbench.report.markdown import headline_annotation
from tfbench.report.report_page import render as render_page
from tfbench.report.summary import summarize
from tfbench.ruling import GateDecision, Result, rule
from tfbench.session.request import CaseResult

SIDES = {"baseline": {"spec": "git:main"}, "contender": {"spec": "working tree"}}


def report(*outcomes, **changes):
    verdicts = tuple(
        judged(Case(f"f.py::t{number}", "t", "t"), Outcome(outcome), Reason("x", "why"))
        for number, outcome in enumerate(outcomes)
    )
    return complete(verdicts, **changes)


@pytest.mark.parametrize(
    ("outcomes", "gate"),
    [
        (["unchanged"], Result.PASS),
        (["unchanged", "improved", "new"], Result.PASS),
        (["unchanged", "regressed"], Result.REGRESSED),
        (["error", "regressed", "inconclusive"], Result.REGRESSED),
        (["unchanged", "inconclusive"], Result.INCONCLUSIVE),
        (["inconclusive", "incomparable"], Result.INCOMPARABLE),
        (["unchanged", "missing"], Result.INCOMPARABLE),
        (["error", "missing", "unchanged"], Result.ERROR),
        (["new", "new"], Result.NOT_GATED),
        ([], Result.NOT_GATED),
    ],
)
def test_the_most_severe_outcome_counts(outcomes, gate):
    assert rule(report(*outcomes)).result is gate


def with_same_code(compared, same):
    spared = [row(f"f.py::same{number}", "new") for number in range(same)]
    spared = [one.changed(reason=Reason(ReasonCode.SAME_CODE, "why")) for one in spared]
    return complete((*report(*compared).verdicts, *spared))


def test_cases_that_run_the_same_code_pass_beside_one_that_was_raced():
    decision = rule(with_same_code(["unchanged"], 9))
    assert (decision.result, decision.because) == (Result.PASS, "1 unchanged, 9 same code")
    assert rule(replace(with_same_code([], 9), sides=SIDES)).result is Result.INCOMPARABLE
    assert rule(with_same_code(["regressed"], 9)).result is Result.REGRESSED
    assert rule(with_same_code(["unchanged", *["new"] * 9], 3)).result is Result.INCOMPARABLE


def test_the_exit_codes_are_the_documented_ones():
    codes = {"pass": 0, "regressed": 1, "improved": 1, "inconclusive": 3, "incomparable": 4, "error": 5, "not gated": 4}
    assert {str(one): one.code for one in Result} == codes


@pytest.mark.parametrize("strict", [False, True])
def test_an_improvement_that_the_run_forbids_fails_it_after_a_regression_and_before_an_error(strict):
    case = Case("f.py::t", "t", "t")
    unwanted = judged(case, Outcome.IMPROVED, because(ReasonCode.FASTER, because(Note.UNWANTED)))
    ruling = rule(complete([*report("unchanged", "error").verdicts, unwanted]), strict=strict)
    assert (ruling.result, ruling.result.code, ruling.pytest_code) == (Result.IMPROVED, 1, 1)
    assert ruling.counts == "1 improved, 1 error"
    assert rule(complete([*report("regressed").verdicts, unwanted])).result is Result.REGRESSED
    assert rule(complete([unwanted]), problems=("expired",), strict=strict).result is Result.IMPROVED
    with pytest.raises(pytest.fail.Exception, match="improved: an improvement fails this run"):
        end_test(result_of(unwanted), strict)


SHARD = {"index": 1, "of": 2}


@pytest.mark.parametrize(
    ("found", "gate", "because"),
    [
        (report("unchanged", "new", "improved"), 0, "1 unchanged, 1 improved, 1 new"),
        (report("unchanged", interrupted=True), 5, "the run was interrupted, so its other cases are unknown"),
        (report("unchanged", shard=SHARD), 5,
         "the report is shard 1 of 2 alone; give tfbench gate all shards"),
        (report("unchanged", complete=False), 5, "the report cannot be used: the run did not come to its end"),
        (report(), 4, "no case was measured: run with --baseline NAME or --against SPEC"),
        (report("new", "new"), 4, "2 cases measured, none compared: run with --baseline NAME or --against SPEC"),
        (report("unchanged", "new", "new"), 4,
         "only 1 of 3 cases were compared (1 unchanged, 2 new); "
         "tfbench gate --min-compared lowers the limit of 50%"),
    ],
)  # fmt: skip
def test_a_decision_states_its_reason(found, gate, because):
    decision = rule(found)
    assert (decision.result.code, decision.because) == (gate, because)


def test_what_prevents_a_pass_is_counted_and_kept():
    decision = rule(report("unchanged", "missing", "error"))
    assert (decision.result, decision.because) == (Result.ERROR, "1 missing, 1 error")
    assert [verdict.outcome.value for verdict in decision.verdicts] == ["error", "missing"]
    found = rule(report("regressed", interrupted=True))
    assert found.result is Result.REGRESSED
    assert found.because == "1 regressed; the run was interrupted, so its other cases are unknown"
    (open_row,) = rule(report("unchanged", "inconclusive", interrupted=True)).verdicts
    assert open_row.outcome is Outcome.INCONCLUSIVE
    twice = complete([row("f.py::t", "inconclusive"), row("f.py::t", "regressed", "graph_ops")])
    assert rule(twice).because == "1 regressed"


def test_skipped_cases_are_counted():
    skips = [Skip.about(Case(name, "s", name), reason="no GPU") for name in ("f.py::s0", "f.py::s1")]
    rows = report("unchanged", "unchanged").verdicts
    assert rule(complete(rows, skips)).because == "2 unchanged, 2 skipped"
    assert rule(complete([], skips)).because.startswith("no case was measured, 2 skipped: run with")
    few = rule(complete(rows[:1], skips)).because
    assert few.startswith("only 1 of 3 cases were compared (1 unchanged, 2 skipped); tfbench gate --min-compared")


@pytest.mark.parametrize(("compared", "gate"), [(1, Result.INCOMPARABLE), (2, Result.PASS)])
def test_half_of_the_cases_suffices_by_default(compared, gate):
    assert rule(report(*["unchanged"] * compared, *["new"] * (4 - compared))).result is gate


def test_an_open_metric_other_than_time_does_not_fail_the_gate():
    good = report("unchanged")
    found = {
        metric: rule(
            replace(good, verdicts=(*good.verdicts, row.changed(metric=metric, outcome=Outcome.INCONCLUSIVE)))
        ).result
        for row in good.verdicts
        for metric in ("graph_ops", "peak_host_memory")
    }
    assert found == {metric: Result.INCONCLUSIVE if metric in DECISIVE else Result.PASS for metric in found}
    open_row = good.verdicts[0].changed(metric="graph_ops", outcome=Outcome.INCONCLUSIVE)
    assert rule(replace(good, verdicts=(*good.verdicts, open_row)), strict=True).result is Result.INCONCLUSIVE
    ungated = open_row.changed(metric="device_time", reason=Reason(ReasonCode.NOT_GATED, "why"))
    assert rule(replace(good, verdicts=(*good.verdicts, ungated)), strict=True).result is Result.PASS


def test_an_expired_acceptance_is_named_beside_the_counts():
    decision = rule(report("unchanged"), problems=("a", "b"))
    assert (decision.result, decision.because) == (Result.ERROR, "1 unchanged; 2 expired or unused acceptances")
    assert rule(report("regressed"), problems=("a",)).because == "1 regressed"
    assert rule(added("new"), problems=("a",)).because.endswith(
        "none has a baseline yet; 1 expired or unused acceptance"
    )


def test_an_acceptance_applies_to_its_case_and_metric_only():
    first, second = report("regressed", "unchanged"), report("regressed", "unchanged")
    accepted = [first.verdicts[0]]
    assert rule(second, accepted).result is Result.PASS  # an equal row of another object
    other_metric = second.verdicts[0].changed(metric="graph_ops")
    assert rule(replace(second, verdicts=(*second.verdicts, other_metric)), accepted).result is Result.REGRESSED


@pytest.mark.parametrize(
    ("suite", "outcomes", "gate"),
    [
        ("unchanged", ["unchanged"], Result.PASS),
        ("improved", ["unchanged"], Result.PASS),
        ("regressed", ["unchanged"], Result.REGRESSED),
        ("regressed", ["error"], Result.REGRESSED),
        ("inconclusive", ["unchanged"], Result.INCONCLUSIVE),
        ("inconclusive", ["missing"], Result.INCOMPARABLE),
        ("incomparable", ["inconclusive"], Result.INCOMPARABLE),
        ("error", ["inconclusive"], Result.ERROR),
        ("unchanged", ["regressed"], Result.REGRESSED),
    ],
)
def test_the_verdict_on_the_mean_of_the_suite_counts_too(suite, outcomes, gate):
    verdict = SuiteVerdict(0.005, Outcome(suite), Reason("x", "the mean is so"), 3)
    decision = rule(report(*outcomes, suite=verdict))
    assert decision.result is gate
    if outcomes == ["unchanged"] and gate is not Result.PASS:
        assert decision.because == f"the suite is {suite}: the mean is so"


# Every reader of the table


def ended(result, strict):
    try:
        end_test(result, strict)
    except pytest.skip.Exception:
        return "skipped"
    except pytest.fail.Exception:
        return "failed"
    return "passed"


def test_the_text_of_a_failed_test_holds_no_sequence_for_the_terminal():
    case = row("f.py::t", Outcome.ERROR)
    with pytest.raises(pytest.fail.Exception) as caught:
        end_test(CaseResult(case.case, case, output="\x1b[2J of the step"), strict=False)
    assert "\N{REPLACEMENT CHARACTER}[2J of the step" in str(caught.value)


@st.composite
def runs(draw):
    """Draw a gated run: the outcomes of its cases, each with the outcome of another metric, and missing cases."""
    rows = draw(st.lists(st.tuples(st.sampled_from(MEASURED), st.sampled_from([None, *MEASURED])), max_size=6))
    found = []
    for number, (outcome, other) in enumerate(rows):
        name = f"f.py::t{number}"
        found.append(row(name, outcome))
        found += [row(name, other, metric="graph_ops")] if other else []
    gone = [row(f"f.py::gone{number}", Outcome.MISSING) for number in range(draw(st.integers(0, 1)))]
    return complete([*found, *gone], sides=SIDES)


MEASURED = [one for one in Outcome if one is not Outcome.MISSING]


@pytest.fixture(scope="module")
def compiled_templates():
    """The first page of a process imports Bokeh and compiles templates, which takes longer than an example may."""
    render_page(report("unchanged", sides=SIDES))


def headlines(found, strict):
    """Return what each reader calls the run, which is a single word."""
    page = render_page(found, strict=strict)
    words = {
        terminal.render(found, width=200, colour=False, strict=strict).splitlines()[-1].partition(": ")[0],
        markdown.render(found, strict=strict).partition("**tfbench: ")[2].partition(": ")[0],
        page.partition('<p class="headline">')[2].partition(": ")[0],
    }
    if not strict:
        decision = GateDecision(rule(found))
        words.add(markdown.render_comment(found, decision).partition("### tfbench: ")[2].partition("\n")[0])
        words.add(headline_annotation(decision.ruling).partition("tfbench%3A ")[2].partition("::")[0])
    return words


def result_of(row, *metrics):
    return CaseResult(row.case, row, sample=Sample(row.case, (Run((1e-3,), 1),)), metrics=metrics)


@pytest.mark.usefixtures("compiled_templates")
@given(runs(), st.booleans())
def test_pytest_the_gate_and_all_headlines_agree(found, strict):
    ruling = rule(found, strict=strict)
    assert headlines(found, strict) == {str(ruling.result)}
    cases = {name: [one for one in found.verdicts if one.case.name == name] for name in found.due}
    tests = [ended(result_of(*rows), strict) for rows in cases.values()]
    times = [one for one in found.verdicts if one.metric == TIME]
    decided = [one for one in times if one.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)]
    enough = bool(decided) and len(decided) >= len(found.due) / 2
    expected = {"passed": 0, "failed": 1, "skipped": int(strict or not enough)}[ruling.result.test]
    assert ruling.pytest_code == expected
    assert ruling.pytest_code or (enough and "failed" not in tests)
    assert (ruling.result is Result.PASS) == (ruling.result.code == 0)
    if ruling.result is Result.PASS:
        assert enough
        assert set(tests) == {"passed"}
    assert ("failed" in tests) <= (ruling.pytest_code == 1)


@pytest.mark.parametrize("outcome", ["inconclusive", "incomparable", "new"])
def test_a_gated_run_that_compared_nothing_fails_in_pytest_too(outcome):
    ruling = rule(report(*[outcome] * 3, sides=SIDES))
    assert ruling.pytest_code == 1
    assert ruling.result.code != 0
    assert ruling.because.endswith("3 cases measured, none compared")


def test_pytest_tolerates_open_cases_if_half_of_all_were_compared():
    assert rule(report("unchanged", "improved", "inconclusive", "incomparable", sides=SIDES)).pytest_code == 0
    assert rule(report("unchanged", "inconclusive", "inconclusive", sides=SIDES)).pytest_code == 1
    assert rule(report("unchanged", "improved", "inconclusive", sides=SIDES), strict=True).pytest_code == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_run_that_names_no_other_side_is_no_gate(strict):
    ruling = rule(report("new", "new"), strict=strict)
    assert (ruling.result, ruling.pytest_code, ruling.result.code) == (Result.NOT_GATED, 0, 4)
    saved = replace(report("new"), due=(), complete=False)
    assert rule(saved, strict=strict).result is Result.NOT_GATED
    assert rule(report("new", "regressed"), strict=strict).pytest_code == 1
    other = complete([row("f.py::t", "new"), row("f.py::t", "incomparable", "first_call")])
    assert rule(other, strict=strict).pytest_code == int(strict)
    assert rule(replace(added("new"), sides={}), strict=strict).result is Result.NOT_GATED


def test_a_shard_is_ruled_by_its_own_cases_until_the_gate_sees_it():
    found = report("unchanged", "inconclusive", sides=SIDES, shard=SHARD)
    assert rule(found, part=True).result is Result.INCONCLUSIVE
    assert summarize(found).headline == "shard 1 of 2: inconclusive: 1 inconclusive, 1 unchanged"
    assert rule(found).result is Result.ERROR


def added(*outcomes, others=()):
    """A report with a baseline whose cases are new there, besides some others."""
    rows = [row(f"b/t.py::added{number}", outcome) for number, outcome in enumerate(outcomes)]
    rows = [one.changed(reason=Reason(ReasonCode.ADDED, "why")) for one in rows]
    return complete(
        [*rows, *others], sides={"baseline": {"spec": "git:main", **CODE}, "contender": {"spec": "x", **CODE}}
    )


@pytest.mark.parametrize(
    ("outcomes", "others", "result", "pytest_code"),
    [
        (["new"] * 2, [], Result.PASS, 0),  # the change that adds the first benchmarks
        (["new"] * 9, ["unchanged"], Result.PASS, 0),
        (["new"] * 2, ["missing"], Result.INCOMPARABLE, 1),
        (["new"] * 2, ["incomparable"], Result.INCOMPARABLE, 1),
        (["new"] * 2, ["error"], Result.ERROR, 1),
        (["new"] * 9, ["inconclusive"], Result.INCONCLUSIVE, 1),
        (["new"] * 9, ["unchanged", "missing"], Result.INCOMPARABLE, 1),
    ],
)
def test_cases_that_were_added_are_not_due_and_others_are(outcomes, others, result, pytest_code):
    ruling = rule(added(*outcomes, others=[row(f"b/t.py::{outcome}", outcome) for outcome in others]))
    assert (ruling.result, ruling.pytest_code) == (result, pytest_code)
    assert others or ruling.because == "2 new; every benchmark is new, so none has a baseline yet"


def test_the_headline_counts_first_what_fails_the_run_if_no_time_does():
    why = Reason(ReasonCode.CONTRACT_BROKEN, "why")
    broken = row("b/t.py::x", "regressed", "contract:expect_ops").changed(reason=why)
    found = complete([row("b/t.py::x"), broken, row("b/t.py::y", "inconclusive")])
    assert summarize(found).headline.startswith("regressed: 1 contract broken; 1 ")
    slower = complete([row("b/t.py::x", "regressed"), broken])
    assert summarize(slower).headline == "regressed: 1 regressed"


def test_cases_that_are_gone_for_an_accepted_reason_are_not_due():
    """A change renames all parameters of a benchmark, and says so."""
    cases = report("unchanged", "missing", "missing", "new", "new")
    added = [row.changed(reason=Reason(ReasonCode.ADDED, "why")) for row in cases.verdicts[3:]]
    cases = complete((*cases.verdicts[:3], *added), sides=SIDES)
    assert rule(cases).result is Result.INCOMPARABLE
    assert rule(cases, cases.verdicts[1:2]).result is Result.INCOMPARABLE
    assert rule(cases, cases.verdicts[1:3]).result is Result.PASS
    cases = report("unchanged", *["incomparable"] * 3, sides=SIDES)
    assert rule(cases, cases.verdicts[1:]).result is Result.PASS
    cases = report("regressed", "new", sides=SIDES)  # compared, and so due
    assert rule(cases, cases.verdicts[:1]).result is Result.PASS
    cases = report("unchanged", "new", "new", sides=SIDES)
    others = [new.changed(metric="graph_ops", outcome=Outcome.INCOMPARABLE) for new in cases.verdicts[1:]]
    assert rule(replace(cases, verdicts=(*cases.verdicts, *others)), others).result is Result.INCOMPARABLE
