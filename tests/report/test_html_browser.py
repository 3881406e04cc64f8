"""Pages in a real browser: no error, no request, quick, and usable with a keyboard, by touch and on paper."""

import importlib.util
import shutil
import time

import pytest

from tests.fakes.report import decoded
from tests.fakes.run_report import HOSTILE, run_report, variants_report, versions
from tfbench.model import Report
from tfbench.report.report_page import render

pytestmark = pytest.mark.slow
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    if importlib.util.find_spec("playwright") is None or importlib.util.find_spec("axe_playwright_python") is None:
        pytest.skip("no driver: pip install playwright axe-playwright-python")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "run": render(run_report(60), versions()),
        "variants": render(variants_report()),
        "hostile": render(run_report(30, hostile=True), notes=[HOSTILE]),
        "empty": render(Report({"name": "quick"}, {}, complete=False)),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


@pytest.fixture
def visit(browser, files):
    """Open a page; at the end, it must have reported no error and sent no request."""
    opened, faults = [], []

    def visit(name, width=1400, scheme="light", fragment="", path=None):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        address = f"file://{path or files / f'{name}.html'}"
        page.on("console", lambda one: faults.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda one: faults.append(str(one)))
        page.on("request", lambda one: faults.append(one.url) if not one.url.startswith(("file:", "blob:")) else None)
        page.on("dialog", lambda one: faults.append(one.message))
        opened.append(context)
        page.goto(f"{address}{fragment}")
        return page

    yield visit
    for context in opened:
        context.close()
    assert faults == []


def until(page, expression):
    """Wait until an expression of the page is true. The page's policy forbids playwright's own way, which evaluates text."""
    deadline = time.monotonic() + 10
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)


def scroll_through(page):
    page.evaluate("for (const one of document.querySelectorAll('section')) one.scrollIntoView()")
    for section in page.locator("section").all():
        section.scroll_into_view_if_needed()
        page.wait_for_timeout(150)
    until(
        page,
        "[...document.querySelectorAll('figure.chart')].every(one => one.dataset.drawn === 'yes' || !one.querySelector('.drawing'))",
    )


@pytest.mark.parametrize("name", ["run", "variants", "hostile", "empty"])
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_every_section_is_drawn_without_an_error_a_request_or_a_serious_fault_of_accessibility(
    visit, name, width, scheme
):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(name, width, scheme)
    scroll_through(page)
    assert page.locator("img").count() == 0, "text of the report is markup"
    assert ("onerror" in page.locator("#cases").inner_text()) == (name == "hostile")
    found = Axe().run(page).response["violations"]
    grave = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
    assert grave == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def test_the_table_of_all_cases_sorts_and_filters(visit):
    page = visit("run")
    section = page.locator("#cases")
    section.scroll_into_view_if_needed()
    ratio = section.get_by_role("button", name="ratio")
    ratio.click()
    assert section.locator("th[aria-sort=descending]").inner_text().startswith("ratio")
    first = section.locator("tbody tr").first.inner_text()
    assert "regressed" in first
    ratio.click()
    assert "improved" in section.locator("tbody tr").first.inner_text()
    section.get_by_label("Verdict", exact=True).select_option("inconclusive")
    assert {one.inner_text() for one in section.locator("tbody .outcome").all()} == {"inconclusive"}
    section.get_by_label("Verdict", exact=True).select_option("")
    section.get_by_label("Filter", exact=True).fill("matmul3 xla float32")
    assert section.locator("tbody tr").count() == 1
    section.get_by_label("Filter", exact=True).fill("no such case")
    assert "no row matches" in section.inner_text()


def test_a_keyboard_is_enough(visit):
    page = visit("run")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    section = page.locator("#cases")
    section.scroll_into_view_if_needed()
    section.get_by_role("button", name="launches").focus()
    page.keyboard.press("Enter")
    assert section.locator("th[aria-sort=descending]").count() == 1
    section.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'case-heading'")


def test_a_case_opens_by_its_address_with_rounds_metrics_and_profile(visit):
    report = run_report(60)
    name = next(one.case.name for one in report.verdicts if one.outcome.value == "regressed")
    page = visit("run", fragment=f"#case={name}")
    page.wait_for_selector("#case-view figure[data-drawn=yes] >> nth=1")
    text = page.locator("#case").inner_text()
    assert "fused_ops" in text
    figure = page.locator("#case-view figure").first
    figure.get_by_text("The numbers").click()
    page.wait_for_selector("#case-view figure tbody tr")
    assert "1 to 50 of 480" in figure.inner_text()  # 2 sides, 6 launches, 40 rounds
    cells = figure.locator("tbody tr").first.locator("td").all_inner_texts()
    assert cells[1] == "baseline, launch 1, round 1"
    value, unit = cells[3].split()
    stored = next(one for one in report.rounds if one.case == name)
    assert float(value) * {"ms": 1e-3, "µs": 1e-6}[unit] == pytest.approx(decoded(stored)[0][0], rel=6e-3)
    page.get_by_text("Profile of the contender").click()
    assert "time per step: host compute" in page.locator("#case").inner_text()


@pytest.mark.alone
def test_ten_thousand_cases_are_written_in_ten_seconds_and_seen_in_two(visit, tmp_path, record_property):
    report = run_report(10_000, launches=5, rounds=20)
    began = time.process_time()
    path = tmp_path / "big.html"
    path.write_text(render(report))
    written, size = time.process_time() - began, path.stat().st_size
    page = visit("big", path=path)
    seen = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1e3
    page.locator("#cases").scroll_into_view_if_needed()
    page.wait_for_selector("#cases tbody tr")
    assert "1 to 50 of 10,000" in page.locator("#cases").inner_text()
    record_property("figure", f"10,000 cases: page of {size / 1e6:.1f} MB in {written:.1f} s, first view {seen:.1f} s")
    assert written < 10
    assert size < 15e6
    assert seen < 2
