"""The Markdown of a report: the verdict first, and it is cut by severity. See test_comment.py for markup in texts."""

from tests.fakes.run_report import run_report
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
    assert summaries == ["2 inconclusive or incomparable", "3 improvements", "differences between the sides"]


def test_it_is_cut_by_severity():
    report = run_report(4000, launches=1, rounds=2)
    text = render(report)
    assert len(text) <= LONGEST
    assert "more: see the report" in text
    assert text.count(": regressed") > 50
    assert text.count("<details>") == text.count("</details>")
    assert text.index("### Regressions (174)") < text.index("### Errors and missing cases (174)")
