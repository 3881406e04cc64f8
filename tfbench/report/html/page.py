"""Render a page: one HTML file with its styles, scripts, chart library and compressed data, and no access to a network.

The page of a run and the page of a history share this shell. A caller gives sections of HTML, and data for the charts
and tables in them::

    sections = [PageSection("drift", "Drift", paragraph("…") + chart_place("drift") + table_place("points"))]
    render_page("History", sections, {"drift": Chart(…).as_json(), "points": DataGrid(…).as_json()})

The browser decompresses data and chart library when a chart or table is scrolled into view.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Any

from tfbench.errors import UsageError
from tfbench.model import JSON
from tfbench.untrusted import printable

SHELL = "page.js"
"""The script of every page: data, tables, charts, theme."""
_ASSETS = "tfbench.report.html"
_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
"""Files of the chart library, in the order in which they are loaded."""
_LEVEL = 6
"""Level of gzip. 9 takes three times as long for 1% less."""
_CHUNK = 200
"""Cases per block of data: a few hundred kilobytes, which the browser decodes in some milliseconds."""
_BREAKS = str.maketrans({"\n": " ", "\t": " "})


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of a page, with an entry in its navigation."""

    id: str
    """Letters and hyphens: the fragment of the section's address."""
    title: str
    html: str
    """HTML of this program. Text of another origin in it has passed `text`."""


def render_page(
    title: str,
    sections: Sequence[PageSection],
    data: Mapping[str, Any] | None = None,
    *,
    scripts: Sequence[str] = (),
    subtitle: str = "",
) -> str:
    """Render a page.

    Args:
        data: Name -> JSON value, without NaN and infinities. A script gets it with ``await tfbench.data(name)``.
        scripts: Files of this package's ``assets`` that run after the shell, such as ``report.js``.
        subtitle: A line below the title.

    Raises:
        UsageError: The chart library is not installed.
    """
    codes = [_asset(name) for name in (SHELL, *scripts)]
    library = [_library_file(name) for name in _LIBRARY]
    blocks = [_block(f"data-{name}", pack(value)) for name, value in (data or {}).items()]
    blocks += [_block(f"library-{number}", packed) for number, (packed, _) in enumerate(library)]
    trusted = " ".join([*map(_digest, codes), *(digest for _, digest in library)])
    links = "".join(f'<li><a href="#{one.id}">{text(one.title)}</a></li>' for one in sections)
    parts = "".join(
        f'<section id="{one.id}" aria-labelledby="{one.id}-title"><h2 id="{one.id}-title">{text(one.title)}</h2>'
        f"{one.html}</section>\n"
        for one in sections
    )
    return _TEMPLATE.format(
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {trusted}",
        title=text(title),
        subtitle=f'<p class="subtitle">{text(subtitle)}</p>' if subtitle else "",
        style=_asset("page.css"),
        links=links,
        sections=parts,
        blocks="\n".join(blocks),
        scripts="".join(f"<script>{code}</script>\n" for code in codes),
    )


# Texts and places


def text(value: object) -> str:
    """Return text of any origin as one line of HTML: no markup, and no control or bidirectional character."""
    return html.escape(printable(str(value)).translate(_BREAKS))


def paragraph(value: str, style: str = "") -> str:
    """Return a paragraph of plain text, with an optional class of the style sheet."""
    return f'<p class="{style}">{text(value)}</p>' if style else f"<p>{text(value)}</p>"


def chart_place(name: str) -> str:
    """Return the place of a chart. ``data[name]`` is the result of `tfbench.report.html.charts.Chart.as_json`."""
    return f'<figure class="chart" data-chart="{name}"></figure>'


def table_place(name: str) -> str:
    """Return the place of a sortable, filterable table. ``data[name]`` is the result of `charts.DataGrid.as_json`."""
    return f'<div class="grid" data-grid="{name}"></div>'


def case_section(names: Sequence[str], cases: Sequence[JSON], first: str, data: dict[str, Any]) -> PageSection:
    """Return the section that shows one case, and add the data of all cases in chunks: ``case-0``, ``case-1`` …

    A script of the page says what is shown: ``tfbench.oneCase(show)``.

    Args:
        names: Of the cases, in the same order.
        first: Case that is shown before a reader chooses one, ``""`` for none.
        data: Of the page.
    """
    data["names"] = {"names": names, "first": first, "chunk": _CHUNK}
    data.update({f"case-{at // _CHUNK}": cases[at : at + _CHUNK] for at in range(0, len(cases), _CHUNK)})
    place = (
        '<div class="controls"><label for="case-name">Case</label>'
        '<input class="case-choice" id="case-name" list="case-names" autocomplete="off" spellcheck="false">'
        '<datalist id="case-names"></datalist></div><div id="case-view"></div>'
    )
    return PageSection("case", "One case", place)


# Data


def pack(value: Any) -> str:
    """Compress a JSON value for a page: gzip, then base64. ``NaN`` raises ValueError: use None instead."""
    return _packed(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, _LEVEL, mtime=0)).decode()


def _block(name: str, packed: str) -> str:
    return f'<script type="application/gzip" id="{name}">{packed}</script>'


def _digest(code: str) -> str:
    """Return the source that lets a browser run exactly this script and no other (Content Security Policy 3)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return resources.files(_ASSETS).joinpath(f"assets/{name}").read_text(encoding="utf-8")


def check_library() -> None:
    """Check before a run that its page can be written.

    Raises:
        UsageError: The chart library is not installed.
    """
    if find_spec("bokeh") is None:
        raise UsageError("an HTML report needs the chart library: pip install 'tfbench[report]'")


@cache
def _library_file(name: str) -> tuple[str, str]:
    """Return a file of the chart library, compressed, and its digest."""
    check_library()
    code = resources.files("bokeh").joinpath(f"server/static/js/{name}").read_text(encoding="utf-8")
    return _packed(code.encode()), _digest(code)


_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="tfbench">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<div><h1>{title}</h1>{subtitle}</div>
<button type="button" id="theme" hidden>Theme: system</button>
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="main" tabindex="-1">
<noscript><p class="warning">Charts and tables of this page need JavaScript. The figures above them do not.</p></noscript>
{sections}</main>
<footer><p>Written by tfbench. This file loads nothing from a network.</p></footer>
{blocks}
{scripts}</body>
</html>
"""
