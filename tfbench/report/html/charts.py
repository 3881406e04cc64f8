"""Describe charts and tables for a page. The script of the page draws them, each chart with its numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfbench.model import JSON
from tfbench.untrusted import printable

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
