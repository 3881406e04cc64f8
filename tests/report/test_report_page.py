"""The page of a run: its content, and reports of any content give a page."""

import math

import pytest

from tests.fakes.run_report import HOSTILE, run_report, variants_report, versions
from tests.report.test_html_page import unpacked
from tests.report.test_render import rounds, verdict
from tfbench.errors import UsageError
from tfbench.model import Outcome, Ratio, Report
from tfbench.report import page
from tfbench.report.report_page import render

RUN = run_report(60)


def test_the_first_page_has_counts_changes_mean_and_differences():
    html = render(RUN)
    first = html.partition('<section id="case"')[0]
    for text in (
        "<b class=\"regressed\">3</b>", "mean ratio of 58 cases", "1.001 (0.994 to 1.007)",
        "numpy: 2.2 on baseline, 2.3 on contender", "Regressions (3)", "Inconclusive or incomparable (2)",
        "50 unchanged cases are in the table of all cases", "_FusedConv2D(BiasAdd, Relu)", "pytest --benchmark --against git:main",
    ):  # fmt: skip
        assert text in first
    assert first.count("data-interval=") == 8  # each change that has a ratio, and no unchanged case


def test_every_case_has_its_rounds_and_metrics():
    html = render(RUN)
    names = unpacked(html, "names")["names"]
    assert names == list(RUN.due)
    found = unpacked(html, "case-0")
    assert len(found) == len(names)
    stored = RUN.rounds[0]
    assert found[0]["rounds"]["baseline"]["steps"] == stored.steps
    assert [row[0] for row in found[0]["grids"][0]["rows"]] == ["graph_ops"]
    assert ["verdict", "unchanged", "outcome unchanged"] in found[0]["facts"]
    assert len(unpacked(html, "cases")["rows"]) == 60


def test_a_case_has_the_same_times_in_all_tables_of_the_page():
    both = (rounds("a", "baseline", 1e-3), rounds("a", "contender", 3e-3))
    html = render(Report({"name": "quick"}, {}, (verdict("a", Outcome.REGRESSED, 1.2),), rounds=both))
    assert 'data-label="new">1.20 ms</td>' in html
    ((_, _, *times, _, _, _, _),) = unpacked(html, "cases")["rows"]
    assert times == pytest.approx([1e-3, 1.2e-3])


def test_sections_without_data_are_left_out():
    assert 'id="versions"' not in render(RUN)
    ratios = {tuple(row[4]) for row in unpacked(render(variants_report()), "cases")["rows"] if row[4]}
    assert ratios == {
        (row.ratio.low, row.ratio.center, row.ratio.high) for row in variants_report().variant_results if row.ratio
    }
    assert 'id="versions"' in render(RUN, versions())


def test_no_text_of_a_report_is_markup():
    html = render(run_report(30, hostile=True), notes=[HOSTILE])
    assert "<img" not in html
    assert "</script><" not in html.replace("</script>\n<", "").replace("</script></body>", "")
    assert "\u202e" not in html
    assert "\x1b" not in html


@pytest.mark.parametrize(
    "report",
    [
        Report({"name": "x"}, {}),
        Report({}, {"baseline": {}, "contender": {}}, complete=False, interrupted=True),
        Report({"name": "x"}, {}, (verdict("a", Outcome.INCONCLUSIVE).changed(ratio=Ratio(1e9, 0.0, math.inf, 1.0)),)),
        Report({"name": "x"}, {}, (verdict("a", Outcome.MISSING).changed(ratio=None, values=(math.nan, math.inf)),)),
    ],
)
def test_a_report_of_any_content_gives_a_page(report):
    assert render(report).endswith("</html>\n")


def test_an_incomplete_report_says_so():
    assert "the report cannot be used: the run did not come to its end." in render(
        Report({"name": "x"}, {}, complete=False)
    )


def test_without_the_chart_library_the_fix_is_named(monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    page._library_file.cache_clear()
    with pytest.raises(UsageError, match=r"pip install bokeh jinja2"):
        render(RUN)
