"""The shell of every page, its parts and its charts.

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
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Any

from tfbench.errors import UsageError
from tfbench.model import JSON, VariantResult
from tfbench.untrusted import printable

# Render a page: one HTML file with its styles, scripts, chart library and compressed data, and no access to a network


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
    """Return the place of a chart. ``data[name]`` is the result of `tfbench.report.html.page.Chart.as_json`."""
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
        raise UsageError("an HTML report needs the chart library: pip install 'pytest-tfbench[report]'")


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


# Describe charts and tables for a page. The script of the page draws them, each chart with its numbers as a table


LINEAR, LOG, CATEGORIES = "linear", "log", "categories"
SECONDS, RATIO, PLAIN = "s", "ratio", ""
"""Units of an axis. Seconds are shown in the unit that fits the values, such as ms."""

Values = Sequence[float | None] | Sequence[str]


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis of a chart."""

    label: str
    unit: str = PLAIN
    scale: str = LINEAR
    """``linear``, ``log`` or ``categories``. Values on an axis of categories are texts."""
    categories: Sequence[str] = ()
    bounds: tuple[float, float] | None = None
    """Values at both ends; otherwise all data fit."""

    def as_json(self) -> JSON:
        return {
            "bounds": self.bounds and list(self.bounds),
            "label": printable(self.label), "unit": self.unit, "scale": self.scale,
            "categories": [printable(one) for one in self.categories],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a chart. ``x``, ``y`` and the optional columns have the same length."""

    name: str
    x: Values
    y: Values
    style: str = "points"
    """``points``, ``line``, ``step`` or ``bars``."""
    colour: str = "first"
    """A colour of the style sheet: ``first``, ``second``, ``good``, ``bad``, ``open`` or ``quiet``."""
    low: Sequence[float | None] = ()
    """Lower ends of the intervals of ``y``; of a line, they form a band."""
    high: Sequence[float | None] = ()
    labels: Sequence[str] = ()
    """Names of the points, for their tool tips and the table of numbers."""

    def as_json(self) -> JSON:
        columns = {"x": _values(self.x), "y": _values(self.y), "low": _values(self.low), "high": _values(self.high)}
        return {
            "name": printable(self.name), "style": self.style, "colour": self.colour, **columns,
            "labels": [printable(one) for one in self.labels],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across a chart, such as a threshold."""

    name: str
    value: float
    axis: str = "y"
    colour: str = "quiet"

    def as_json(self) -> JSON:
        return {"name": printable(self.name), "value": self.value, "axis": self.axis, "colour": self.colour}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its caption, which says what the reader should see in it."""

    caption: str
    x: ChartAxis
    y: ChartAxis
    series: Sequence[Series]
    limits: Sequence[Limit] = ()
    height: int = 320

    def as_json(self) -> JSON:
        return {
            "caption": printable(self.caption), "x": self.x.as_json(), "y": self.y.as_json(), "height": self.height,
            "series": [one.as_json() for one in self.series], "limits": [one.as_json() for one in self.limits],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataGrid:
    """A table that a reader sorts by any column, filters and pages through.

    ``columns`` are ``(heading, kind)``. Kinds: ``text``, ``case`` (a name that links to the case), ``outcome``,
    ``number``, ``seconds``, ``ratio``, ``heat`` (a ratio whose cell is coloured by its size) and ``interval``
    (a list of low, centre and high, drawn as a bar).
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[object]]
    page: int = 50
    sort: tuple[int, bool] | None = None
    """Column to sort by at first, and whether to sort downwards."""
    limits: Sequence[float] = field(default=())
    """Ratios that intervals are drawn with, such as the thresholds of the policy."""

    def as_json(self) -> JSON:
        return {
            "caption": printable(self.caption), "columns": [list(one) for one in self.columns], "page": self.page,
            "sort": list(self.sort) if self.sort else None, "limits": list(self.limits),
            "rows": [[_cell(value) for value in row] for row in self.rows],
        }  # fmt: skip


def number(value: float | None) -> float | None:
    """Return a number as JSON can state it: NaN and infinities become ``None``."""
    return value if value is not None and math.isfinite(value) else None


def _values(values: Values) -> list[float | str | None]:
    return [printable(one) if isinstance(one, str) else number(one) for one in values]


def _cell(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (list, tuple)):
        return [_cell(one) for one in value]
    return number(value) if isinstance(value, float) else value


# Draw the roofline: what cases reach of the machine's ceilings (Williams, Waterman & Patterson 2009, CACM 52)


_CEILING = "ceiling"
_POINTS = 40
"""Points of a ceiling's line."""


def roofline(results: Sequence[VariantResult]) -> Chart | None:
    """Return the chart; ``None`` without ceilings, or without a case that states both its operations and bytes."""
    cases = [one for one in results if one.facts.get("flops") and one.facts.get("bytes") and _CEILING not in one.facts]
    ceilings = list(_ceilings(results))
    bandwidth = max((value for kind, _, value in ceilings if kind == "bytes"), default=0.0)
    peaks = {name: value for kind, name, value in ceilings if kind == "flops"}
    if not cases or not bandwidth or not peaks:
        return None
    intensities = [one.facts["flops"] / one.facts["bytes"] for one in cases]
    reached = [one.facts["flops"] / one.median_seconds for one in cases]
    low = min(*intensities, *(peak / bandwidth for peak in peaks.values())) / 4
    high = max(*intensities, *(peak / bandwidth for peak in peaks.values())) * 4
    xs = [low * (high / low) ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    colours = ("second", "bad", "open", "quiet")
    lines = [
        Series(f"ceiling, {name}", xs, [min(peak, x * bandwidth) for x in xs], "line", colours[index % len(colours)])
        for index, (name, peak) in enumerate(sorted(peaks.items(), key=lambda one: -one[1]))
    ]
    points = Series("cases", intensities, reached, labels=[one.case.short_name for one in cases])
    caption = (
        "Operations per second of each case over its operations per byte. The lines are the ceilings that the same run "
        "measured: memory on the left, arithmetic on the right. A point far below its line leaves time unused."
    )
    axes = ChartAxis("operations per byte", scale=LOG), ChartAxis("operations per second", scale=LOG)
    return Chart(caption, *axes, [*lines, points], height=400)


def _ceilings(results: Sequence[VariantResult]) -> Iterator[tuple[str, str, float]]:
    """Yield kind, name and height of each ceiling; of several cases of one kind and precision, the highest."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in results:
        kind = one.facts.get(_CEILING)
        if kind in ("flops", "bytes") and one.facts.get(kind):
            levels = one.case.levels
            name = ", ".join(filter(None, (levels.get("precision", "float32"), levels.get("device", ""))))
            key = (kind, name if kind == "flops" else "")
            found[key] = max(found[key], one.facts[kind] / one.median_seconds)
    for (kind, name), value in found.items():
        yield kind, name, value
