"""What a summary counts, and the command that it gives for a case."""

import math
from dataclasses import replace

import pytest

from tests.report.test_json_reader import CASE, REPORT
from tests.report.test_render import case, rounds, verdict
from tfbench.model import Note, Outcome, Ratio, Reason, ReasonCode, Report, because
from tfbench.report.report_page import render
from tfbench.report.summary import Group, code_of_side, command_words, minimum_effect, summarize

REGRESSED = REPORT.verdicts[0]
SELF, AGAINST_SELF = {"spec": "self"}, ["--against", "self"]


def made(*verdicts, **changes):
    return Report({"name": "standard"}, {}, verdicts, **changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "commit 111111111111 (tree 222222222222)"),
        ({"dirty": True}, "commit 111111111111, changed (tree 222222222222)"),
        ({"commit": ""}, "tree 222222222222"),
        ({"tree": f"sources:{'5' * 64}", "commit": ""}, "sources 555555555555"),
        ({"tree": "session:2026-a", "commit": ""}, "run 2026-a"),
        ({"tree": "", "commit": ""}, "absent"),
    ],
)
def test_the_code_of_a_side_has_a_name(change, words):
    assert code_of_side({"commit": "1" * 40, "tree": "2" * 40, **change}) == words


def test_the_mean_is_geometric_and_over_compared_cases():
    changes = [(Outcome.REGRESSED, 2.0), (Outcome.IMPROVED, 0.5), (Outcome.ERROR, 1.0)] * 2
    rows = [verdict(str(number), *change) for number, change in enumerate(changes)]
    found = summarize(made(*rows))
    assert (found.mean.center, found.compared) == (pytest.approx(1.0), 6)
    broken = verdict("c", Outcome.NEW).changed(ratio=Ratio(math.nan, 0.0, math.inf, 0.9))
    assert summarize(made(*rows[:4], broken)).mean is None


def test_counts_start_with_the_gravest():
    outcomes = ["missing", "error", "regressed", "inconclusive", "improved", "unchanged"]
    found = summarize(made(*(verdict(one, Outcome(one)) for one in sorted(outcomes))))
    assert list(found.counts) == outcomes


def test_a_case_stands_once_where_its_gravest_verdict_belongs():
    metric = verdict("a", Outcome.REGRESSED, message="2 before, 3 now", metric="graph_ops").changed(values=(2, 3))
    found = summarize(made(verdict("a", Outcome.UNCHANGED), metric, verdict("b", Outcome.IMPROVED, 0.8)))
    assert [len(found.findings[group]) for group in Group] == [0, 1, 0, 0, 1]
    (one,) = found.findings[Group.REGRESSIONS]
    assert one.causes == ("graph_ops: 2 before, 3 now",)
    assert one.unexplained == ()


def test_a_case_that_is_slower_is_a_regression_whatever_its_other_metrics():
    summary = summarize(made(verdict("a", Outcome.REGRESSED, 9.0), verdict("a", Outcome.MISSING, metric="flops")))
    (finding,) = summary.findings[Group.REGRESSIONS]
    assert (finding.what, finding.why) == ("regressed", ["flops: why"])
    assert not summary.findings[Group.ERRORS]


def test_the_ratio_of_another_metric_does_not_stand_beside_times():
    ratio = verdict("a", Outcome.REGRESSED, 2.0).changed(metric="first_call")
    (finding,) = summarize(made(verdict("a", Outcome.UNCHANGED), ratio)).findings[Group.REGRESSIONS]
    assert (finding.what, finding.ratio) == ("regressed first_call", None)


def test_the_cause_is_that_of_the_profile_then_of_the_other_metrics():
    changes = [
        because(Note.METRIC, because(ReasonCode.MORE, before=before, now=before + 1, unit=""), metric=metric)
        for metric, before in (("casts", 0), ("flops", 1))
    ]
    slow = verdict("a", Outcome.REGRESSED, 1.2, "20% slower")
    slow = slow.changed(reason=slow.reason.noted(because(Note.OTHER_METRICS, *changes)))
    assert slow.reason.message == "20% slower; other metrics: casts 0 before, 1 now; flops 1 before, 2 now"
    why = {"case": case("a").name, "side": "contender", "folder": "f", "why": ["a kernel"]}
    (one,) = summarize(made(slow, profiles=(why,))).findings[Group.REGRESSIONS]
    assert one.causes == ("a kernel", "casts 0 before, 1 now", "flops 1 before, 2 now")


def test_times_that_a_benchmark_takes_itself_have_no_unit():
    slower = verdict("a", Outcome.REGRESSED, 1.1)
    both = rounds("a", "baseline", 17256.0), rounds("a", "contender", 18981.6)
    notes = {(): "17256 s -> 18982 s", (because(Note.OWN_TIMES),): "17,256 -> 18,982"}
    notes[(Reason("own-times", "of a file"),)] = "17,256 -> 18,982"
    for more, words in notes.items():
        row = slower.changed(reason=slower.reason.noted(*more))
        (finding,) = summarize(made(row, rounds=both)).findings[Group.REGRESSIONS]
        assert finding.sides() == words
        assert f'data-label="old">{words.partition(" ->")[0]}</td>' in render(made(row, rounds=both))


@pytest.mark.parametrize("policy", [{}, {"minimum_effect": "x"}, {"minimum_effect": 0}, {"minimum_effect": 1e9}])
def test_a_policy_of_unknown_form_gets_the_default_threshold(policy):
    assert minimum_effect(policy) == 0.01


@pytest.mark.parametrize(
    ("sides", "policy", "words"),
    [
        ({}, "standard", []),
        ({"baseline": {"spec": "git:main"}}, "standard", ["--against", "git:main"]),
        ({"baseline": {"spec": "git:main"}}, "quick", ["--against", "git:main", "--policy", "quick"]),
        ({"baseline": {"spec": "baseline 'a' of 2026-01-01", "saved": "a"}}, "standard", ["--baseline", "a"]),
        ({"baseline": SELF, "contender": {"slowdown": 0.05}}, "standard", [*AGAINST_SELF, "--inject-slowdown", "0.05"]),
    ],
)
def test_the_command_races_the_same_sides_again(sides, policy, words):
    report = replace(REPORT, sides=sides, policy={"name": policy})
    assert list(command_words(report, REGRESSED)) == ["pytest", "--benchmark", *words, CASE.name]


@pytest.mark.parametrize("name", ["b.py::test_x[scale=huge]", "b.py::test_x[a=1-scale=huge]"])
def test_the_command_has_the_scale_that_the_name_of_the_case_contains(name):
    for specs, words in ((["git:main"], ["--against", "git:main"]), (["keras==3.5.0", "keras==3.6.0"], [])):
        sides = {side: {"spec": spec} for side, spec in zip(("baseline", "contender"), specs, strict=False)}
        found = command_words(replace(REPORT, sides=sides), REGRESSED.changed(name=name))
        assert list(found[2:]) == [*(words or specs), "--scale", "huge", name]


def test_no_command_of_others_has_a_path_or_a_variable():
    for spec in ("python:/tmp/x", "env:LD_PRELOAD=x", "git:main; id"):
        report = replace(REPORT, sides={"baseline": {"spec": spec}})
        assert command_words(report, REGRESSED) == ()
        assert command_words(report, REGRESSED, "../")[-1] == f"../{CASE.name}"  # it is the reader's own report
    assert command_words(REPORT, REGRESSED.changed(outcome=Outcome.MISSING)) == ()
    assert command_words(REPORT, REGRESSED.changed(name="--x")) == ()


def test_a_case_of_two_versions_is_raced_again_on_both():
    def again(*specs):
        sides = {name: {"spec": spec} for name, spec in zip(("baseline", "contender"), specs, strict=True)}
        return command_words(replace(REPORT, sides=sides), REGRESSED)

    assert list(again("tensorflow==2.19.1", "tf-nightly")) == [
        "tfbench", "versions", "tensorflow==2.19.1", "tf-nightly", CASE.name,
    ]  # fmt: skip
    assert list(again("tf-nightly", "tf-nightly"))[2:4] == ["tf-nightly", "self"]
    assert again("env:A=1", "tf-nightly") == again("self", "python:/x") == ()


def test_a_case_with_options_of_the_project_has_no_command():
    for settings, known in (({"TF_X": "1"}, True), ({"TF_X": "1", "PYTEST_OPTION_calls": "3"}, False)):
        sides = {"baseline": {"spec": "git:main"}, "contender": {"settings": settings}}
        assert bool(command_words(replace(REPORT, sides=sides), REGRESSED)) == known


def test_the_headline_counts_cases_that_fail_by_another_metric_only():
    rows = [verdict("a", Outcome.REGRESSED, 2.0), verdict("b", Outcome.UNCHANGED, 1.0)]
    also = [rows[0].changed(metric="parity"), rows[1].changed(metric="parity", outcome=Outcome.REGRESSED)]
    assert (
        summarize(made(*rows, *also)).headline == "regressed: 1 regressed, 1 unchanged; 1 more failed by other metrics"
    )
    assert summarize(made(*rows, also[0])).headline == "regressed: 1 regressed, 1 unchanged"
    assert summarize(made(rows[1], also[1])).headline == "regressed: 1 parity regressed; 1 unchanged"
