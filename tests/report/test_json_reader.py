"""A report is read back as it was written, and a file that violates the schema is refused with the place."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.report import CODE, variant
from tfbench.errors import ReportError
from tfbench.model import (
    Case,
    Outcome,
    Ratio,
    Reason,
    Report,
    Run,
    Sample,
    Skip,
    StoredRounds,
    SuiteVerdict,
    Thresholds,
    Verdict,
)
from tfbench.policy import Policy
from tfbench.report import json_format, markdown, merge, terminal
from tfbench.ruling import GateDecision, Result, Ruling

CASE = Case("b/test_x.py::test_x[a=1]", "test_x", "b/test_x.py::test_x", (("a", "1"),))
TIMED = {"ratio": Ratio(1.052, 1.03, 1.07, 0.99), "launches": 7, "rounds": 280, "wall_seconds": 5.2}
MEAN = Ratio(1.004, 1.001, 1.006, 0.99)
REPORT = Report(
    policy=Policy().as_json(),
    sides={"contender": {"spec": "working tree", **CODE}},
    verdicts=(
        Verdict.of(CASE, Outcome.REGRESSED, Reason("slower", "5.2% slower"), **TIMED, rates={"items/s": (10.5, None)}),
        Verdict.of(CASE, Outcome.UNCHANGED, Reason("same", "the same"), "graph_ops"),
    ),
    variant_results=(variant(CASE, CASE.name, 1e-5, None, None, 3, 900, {"flops": 10}),),
    skips=(Skip.about(CASE, reason="no GPU"),),
    wall_seconds=12.5,
    seconds_by_phase={"preparing": 8.25, "other": 4.25},
    seconds_by_case={CASE.name: 7.5},
    seed=7,
    suite=SuiteVerdict(0.005, Outcome.INCONCLUSIVE, Reason("not-confirmed", "why"), 40, MEAN),
    rounds=(StoredRounds.of_sample(Sample(CASE, (Run((1e-5, 1.1e-5), 1), Run((9e-6,), 1))), "contender"),),
)


def content(**changes):
    return {**json.loads(json_format.render(REPORT)), **changes}


def refused(changed, match):
    with pytest.raises(ReportError, match=match):
        json_format.read(json.dumps(changed), "r.json")


def test_a_written_report_is_read_back():
    found = json_format.read(json_format.render(REPORT), "r.json")
    assert found.verdicts == REPORT.verdicts
    assert found.suite == REPORT.suite
    assert found.policy == json.loads(json.dumps(REPORT.policy))
    assert (found.wall_seconds, found.seed, found.interrupted) == (12.5, 7, False)
    assert found.seconds_by_phase == REPORT.seconds_by_phase
    assert found.seconds_by_case == REPORT.seconds_by_case
    assert found.variant_results[0].median_seconds == 1e-5
    assert found.skips[0].reason == "no GPU"
    assert found.rounds == REPORT.rounds


def test_rounds_that_do_not_fit_what_they_state_are_refused():
    row = content()["rounds"][0]
    refused(
        content(rounds=[{**row, "launches": [2, 2]}]),
        r"r.json is not a report .*: at rounds\[0\], it has not the 4 rounds that it states",
    )
    refused(content(rounds=[{**row, "steps": "AAAA!"}]), "its rounds are damaged")
    for key, value in (("side", "third"), ("median_seconds", 0), ("launches", [-1]), ("every", 0), ("case", 1)):
        refused(content(rounds=[{**row, key: value}]), rf"at rounds\[0\]\.{key}")
        refused(content(rounds=[{other: row[other] for other in row if other != key}]), f"missing .*`{key}`")
    refused(content(rounds={}), "at rounds")


def test_lists_are_there_even_if_they_are_empty_and_other_empty_fields_are_left_out():
    assert content()["due"] == content()["profiles"] == []
    assert "shard" not in content()
    assert json_format.read(json.dumps(content()), "r.json").due == ()


def test_own_thresholds_are_read_back_and_must_be_fractions():
    verdict = REPORT.verdicts[0].changed(thresholds=Thresholds(0.05, 0.1))
    text = json_format.render(replace(REPORT, verdicts=(verdict,)))
    assert json_format.read(text, "r.json").verdicts == (verdict,)
    refused(json.loads(text.replace('"tolerance":0.1', '"tolerance":7')), "tolerance")


@given(st.floats(0, 1e9), st.floats(0, 1), st.sampled_from(Outcome), st.integers(1, 10**9))
def test_every_verdict_survives(center, confidence, outcome, rounds):
    ratio = Ratio(center, 0.0, math.inf, confidence)
    verdict = Verdict.of(CASE, outcome, Reason("c", "m"), ratio=ratio, launches=3, rounds=rounds)
    text = json_format.render(Report(policy={"name": "quick"}, sides={}, verdicts=(verdict,)))
    assert json_format.read(text, "r").verdicts == (verdict,)


def test_the_place_of_a_violation_is_named():
    refused(content(schema="tfbench-report"), "at schema, expected 'tfbench-report/1', got 'tfbench-report'; ")
    refused(content(schema="tfbench-report/2"), "got 'tfbench-report/2': another version of tfbench wrote it")
    refused({}, "at schema, expected 'tfbench-report/1', got None")
    row = content()["verdicts"][0]
    refused(content(verdicts=[{**row, "outcome": "fine"}]), r"at verdicts\[0\]\.outcome, Invalid enum value 'fine'")
    refused(content(verdicts=[{**row, "ratio": {**row["ratio"], "low": "1"}}]), r"at verdicts\[0\]\.ratio\.low, ")
    refused(content(verdicts=[{**row, "launches": -1}]), r"at verdicts\[0\]\.launches, Expected `int` >= 0")
    refused(content(verdicts=[{k: v for k, v in row.items() if k != "reason"}]), r"at verdicts\[0\], .*field `reason`")
    refused([], "at schema")


def test_unknown_keys_of_a_ratio_are_ignored():
    row = content()["verdicts"][0]
    changed = content(verdicts=[{**row, "ratio": {**row["ratio"], "other": 1}}])
    assert json_format.read(json.dumps(changed), "r.json").verdicts == REPORT.verdicts[:1]


def test_two_verdicts_on_one_metric_are_refused():
    row = content()["verdicts"][0]
    refused(content(verdicts=[row, row]), "verdicts on the time of .* is there twice")


@pytest.mark.parametrize(
    ("text", "why"), [("", ": it is empty; write it again$"), ("{", ""), ('{"schema": NaN}', ""), ("[" * 100_000, "")]
)
def test_text_that_is_not_json_is_refused(text, why):
    with pytest.raises(ReportError, match=rf"^r\.json is not JSON{why}"):
        json_format.read(text, "r.json")


def test_text_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(json_format, "LARGEST", 10)
    with pytest.raises(ReportError, match="larger than"):
        json_format.read(" " * 11, "r.json")


def test_control_characters_are_removed():
    row = content()["verdicts"][0]
    hostile = {**row, "case": "x\x1b[2Jy", "reason": {"code": "c", "message": "a\rb\x9bc"}}
    found = json_format.read(json.dumps(content(verdicts=[hostile], rounds=[])), "r").verdicts[0]
    assert not {"\x1b", "\r", "\x9b"} & set(found.case.name + found.reason.message)


SIDE = {"spec": "x", **CODE, "python": "3.12", "packages": {"a": "1"}, "settings": {}, "machine": {}}
ODD_CONTENT = {
    "a side that is a list": {"sides": {"baseline": []}},
    "a version that is a number": {"sides": {"baseline": {**SIDE, "packages": {"a": 1}}}},
    "a processor that is a list": {"sides": {"contender": {**SIDE, "machine": {"processor": [1]}}}},
    "a specification without end": {"sides": {"baseline": {**SIDE, "spec": "x" * 20_001}}},
    "unknown facts of a side without end": {"sides": {"baseline": {**SIDE, "other": ["x" * 20_001]}}},
    "a policy whose name is a number": {"policy": {"name": 3}},
    "a policy with an object": {"policy": {"name": "quick", "looks": {"a": 1}}},
    "a policy with a text without end": {"policy": {"name": "quick", "x": "x" * 2001}},
    "a wall time of years": {"wall_seconds": 1e300},
    "phases without end": {"seconds_by_phase": {str(number): 1 for number in range(101)}},
    "a case that cost less than nothing": {"seconds_by_case": {"a::b": -1}},
    "a cost of a case without a name": {"seconds_by_case": {"": 1}},
    "a profile with a text without end": {"profiles": [{
        "schema": "tfbench-profile/1", "case": "a::b", "side": "baseline", "folder": "f", "why": [], "step": 1.0,
        "time": {"x" * 20_001: 1.0}}]},
}  # fmt: skip


@pytest.mark.parametrize("changes", ODD_CONTENT.values(), ids=ODD_CONTENT)
def test_odd_contents_of_sides_and_policy_are_refused(changes):
    refused(content(**changes), "is not a report of the schema")


@pytest.mark.parametrize(
    "changes", [{"median_seconds": 0}, {"median_seconds": 1e300}, {"facts": {"flops": "x"}}, {"facts": {"first_call": None}},
    {"facts": {"peak_host_memory": [1]}}, {"facts": {"other": "x" * 20_001}}, {"facts": []}],
)  # fmt: skip
def test_odd_contents_of_a_variant_result_are_refused(changes):
    row = {**content()["variant_results"][0], **changes}
    refused(content(variant_results=[row]), r"at variant_results\[0\]\.(median_seconds|facts)")


@pytest.mark.parametrize(
    "facts", [{}, {"packages": {}}, {"packages": {"a": "1"}, "spec": ""}, {"machine": {}}, {"other": {"a": [1]}}]
)
def test_a_side_that_lacks_facts_is_read_and_shown(facts):
    side = {"spec": "x", **CODE, **facts}
    report = json_format.read(json.dumps(content(sides={"baseline": side, "contender": SIDE})), "r.json")
    assert markdown.render_comment(report, GateDecision(Ruling(Result.REGRESSED, verdicts=report.verdicts)))
    assert terminal.render(report, width=80, colour=True)
    assert merge._sides(report)


@pytest.mark.parametrize(
    "change",
    [{"commit": "main"}, {"commit": None}, {"dirty": "no"}, {"tree": ""}, {"tree": "sources:1"}, {"tree": "session:"}],
)
def test_a_side_tells_its_code(change):
    refused(content(sides={"contender": {**SIDE, **change}}), rf"at sides\.contender\.{next(iter(change))}, ")
    refused(
        content(sides={"contender": {key: SIDE[key] for key in SIDE if key not in change}}), r"at sides\.contender, "
    )


def test_the_name_of_a_saved_baseline_can_be_an_argument():
    for name in ("-x", "a b", "../a", ""):
        refused(content(sides={"baseline": {**SIDE, "saved": name}}), r"at sides\.baseline\.saved, ")


@pytest.mark.parametrize("tree", ["sources:" + "a" * 64, "session:2026-11-26T18:40:06+00:00-ab12cd34", "f" * 40])
def test_a_tree_is_one_of_git_or_a_digest_of_sources_or_the_run_that_saved_it(tree):
    report = json_format.read(json.dumps(content(sides={"contender": {**SIDE, "tree": tree}})), "r.json")
    assert report.sides["contender"]["tree"] == tree


def test_a_refusal_is_one_short_line():
    with pytest.raises(ReportError) as caught:
        json_format.read(json.dumps({"schema": "\x1b[2J\n\u202e" * 1000}), "r\x1b.json")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()
