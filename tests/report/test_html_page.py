"""The shell of HTML pages: one file that trusts only its own scripts, and text that never becomes markup."""

import base64
import gzip
import json
import math
import re

import pytest

from tfbench.report.page import DataGrid, clean, one_line, pack, render_page

HOSTILE = "</script><img src=x onerror=alert(1)> @all [a](http://b) \u202egnp.exe \x1b[31m\n# \u2066"


def page_of(data=None, *, title="t", period=""):
    """Render a page of one section."""
    words = {"slower": 1, "drifted": 0, "period": period, "notes": [period], "problems": [period]}
    return render_page("history.html", {"overview": title}, data or {}, title=title, subtitle=title, **words)


def unpacked(html, name):
    (packed,) = re.findall(rf'id="data-{name}">([^<]*)<', html)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_it_trusts_its_own_scripts_alone_and_no_network():
    html = page_of()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert not re.findall(r'(?:src|href)="(?!#|data:)', html)


def test_hostile_text_is_neither_markup_nor_reordered():
    html = page_of(title=HOSTILE, period=HOSTILE)
    assert "<img" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", html)
    assert one_line("a\nb\t<") == "a b <"
    assert "&lt;/script&gt;" in html


def test_charts_and_tables_state_missing_numbers_as_null():
    chart = clean({"series": [{"x": (1.0, math.nan), "high": [-math.inf, 3.0]}]})
    assert chart["series"][0] == {"x": [1.0, None], "high": [None, 3.0]}
    grid = clean(DataGrid("caption", [("a", "interval")], [[(0.0, math.nan, math.inf)], [HOSTILE]]))
    assert grid["rows"][0] == [[0.0, None, None]]
    assert "\u202e" not in grid["rows"][1][0]
    json.dumps([chart, grid], allow_nan=False)


def test_data_comes_back_as_it_was_and_the_same_content_gives_the_same_file():
    made = page_of({"points": {"a": [1, None, "µ"]}})
    assert unpacked(made, "points") == {"a": [1, None, "µ"]}
    assert page_of({"points": {"a": [1, None, "µ"]}}) == made
    with pytest.raises(ValueError, match="JSON"):
        pack([math.nan])
