"""The page of a history in a real browser."""

import pytest

from tests.fakes.histories import nightly, noise, step
from tests.report.test_html_browser import browser, files, scroll_through, until, visit  # noqa: F401, their fixtures
from tfbench.report.trends import Trends, render_history

pytestmark = pytest.mark.slow
SLOW, SAME = "b/test_x.py::test_slow[size=1]", "b/test_x.py::test_same[</script><img src=x onerror=alert(1)>]"


@pytest.fixture
def page_of_history(tmp_path):
    nightly(tmp_path, {SLOW: step(60, 50), SAME: noise(60, seed=1)}, release=40)
    trends = Trends(tmp_path)
    cases = map(trends.of_case, (SAME, SLOW))
    (tmp_path / "h.html").write_text(render_history(cases, 60, []))
    return tmp_path / "h.html"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_a_history_is_drawn_without_an_error_or_a_serious_fault_of_accessibility(
    visit,  # noqa: F811
    page_of_history,
    width,
    scheme,
):
    from axe_playwright_python.sync_playwright import Axe

    page = visit("", width, scheme, path=page_of_history)
    page.wait_for_selector("#case-view figure.chart[data-drawn=yes]")  # the case that got slower is shown first
    scroll_through(page)
    assert page.locator("#case-heading").inner_text() == SLOW
    assert page.locator("#case-view figure.chart").count() == 2
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
