"""The Markdown of a report: the verdict first, no text of a report acts as markup, and it is cut by severity."""

from dataclasses import replace

import pytest

from tests.fakes.run_report import HOSTILE, run_report
from tests.report.test_comment import HOSTILE as TEXTS
from tfbench.model import Reason
from tfbench.report.markdown import LONGEST, render


def test_the_verdict_is_the_first_line_and_regressions_have_cause_and_command():
    lines = render(run_report(60)).splitlines()
    assert lines[0].startswith("**tfbench: regressed: 2 error, 3 regressed, 2 inconclusive, 3 improved, 50 unchanged**")
    at = lines.index("### Regressions (3)")
    assert lines[at + 2].startswith(
        "- `benchmarks/test_linear.py::test_matmul4[compiler=none,precision=mixed_bfloat16]`: regressed"
    )
    assert "  - profile: a step takes" in "\n".join(lines)
    assert "  - race it again: `pytest --benchmark --against git:main 'benchmarks" in "\n".join(lines)
    summaries = [line.partition("<summary>")[2].partition("<")[0] for line in lines if "<summary>" in line]
    assert summaries == [
        "2 inconclusive or incomparable",
        "3 improvements",
        "differences between the sides",
    ]


@pytest.mark.parametrize("text", [*TEXTS, HOSTILE])
def test_no_text_of_a_report_is_markup(text):
    report = run_report(24)
    rows = [one.changed(name=f"a::{text}{n}") for n, one in enumerate(report.verdicts)]
    rows = [one.changed(reason=Reason(one.reason.code, text)) for one in rows]
    sides = {"baseline": {"spec": text}, "contender": {"machine": {"processor": text}}}
    made = render(replace(report, verdicts=tuple(rows), sides=sides, policy={"name": text}, profiles=()))
    assert made.count("`") % 2 == 0
    outside = "".join(part for number, part in enumerate(made.split("`")) if number % 2 == 0)
    for bad in ("<script", "<img", "](http", "://", "@everyone", "@all", "\u202e", "\x1b", "\n# "):
        assert bad not in outside
    assert outside.count("</details>") == outside.count("<details>")


def test_it_is_cut_by_severity():
    report = run_report(4000, launches=1, rounds=2)
    text = render(report)
    assert len(text) <= LONGEST
    assert "more: see the report" in text
    assert text.count(": regressed") > 50
    assert text.count("<details>") == text.count("</details>")
    assert text.index("### Regressions (174)") < text.index("### Errors and missing cases (174)")
