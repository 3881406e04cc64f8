"""The shell of every page, its data and its charts.

A page is a template of `assets` that extends ``page.html`` with one block for each section. A caller gives the titles
of the sections, the variables of the template, and data for the charts and tables::

    data = {"changes": DataGrid(…)}
    render_page("history.html", {"changes": "Changes"}, data, title="History")

The browser decompresses data and chart library when a chart or table is scrolled into view. All text, in templates and
in data, passes `one_line`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tfbench.errors import UsageError
from tfbench.untrusted import plural, printable

if TYPE_CHECKING:
    from jinja2 import Environment

_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
"""Files of the chart library, in the order in which they are loaded."""
_LEVEL = 6
"""Level of gzip. 9 takes three times as long for 1% less."""
_CHUNK = 200
"""Cases per block of data: a few hundred kilobytes, which the browser decodes in some milliseconds."""
_BREAKS = str.maketrans({"\n": " ", "\t": " "})

# Render a page: one HTML file with its styles, scripts, chart library and compressed data, and no access to a network


def render_page(
    template: str,
    sections: Mapping[str, str],
    data: Mapping[str, Any],
    *,
    scripts: Sequence[str] = (),
    **variables: object,
) -> str:
    """Render a page. Raises `UsageError` if the chart library is not installed.

    Args:
        template: File of this package's ``assets``.
        sections: Block of the template -> title of the section, in the order of the page.
        data: Name -> value for JSON, such as a `DataGrid`. A script gets it with ``await tfbench.data(name)``.
        scripts: Files of ``assets`` that run after the shell, such as ``report.js``.
        variables: Of the template: ``title``, ``subtitle`` and those of its blocks.
    """
    library = [_library_file(name) for name in _LIBRARY]
    blocks = {f"data-{name}": pack(clean(value)) for name, value in data.items()}
    blocks |= {f"library-{number}": packed for number, (packed, _) in enumerate(library)}
    codes = [_asset(name) for name in ("page.js", *scripts)]
    digests = [*map(_digest, codes), *(digest for _, digest in library)]
    shell = {"sections": sections, "style": _asset("page.css"), "scripts": codes, "digests": digests, "blocks": blocks}
    return _templates().get_template(template).render(shell | variables)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(__package__, "assets"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=True, finalize=lambda value: one_line(value) if type(value) is str else value,
    )  # fmt: skip
    # The parts of a name, between which lines may break.
    parts = re.compile(r"(?<=::|.[\[,/\]])").split
    made.filters |= {"line": one_line, "plural": plural, "parts": lambda name: filter(None, parts(name))}
    return made


def one_line(text: str) -> str:
    """Return text of any origin as one line without control and bidirectional characters."""
    return printable(text).translate(_BREAKS)


def check_library() -> None:
    """Check before a run that its page can be written.

    Raises `UsageError` if the chart library or the template engine is not installed.
    """
    if find_spec("bokeh") is None or find_spec("jinja2") is None:
        raise UsageError("an HTML report needs bokeh and jinja2: pip install bokeh jinja2")


@cache
def _library_file(name: str) -> tuple[str, str]:
    """Return a file of the chart library, compressed, and its digest."""
    check_library()
    code = resources.files("bokeh").joinpath(f"server/static/js/{name}").read_text(encoding="utf-8")
    return _packed(code.encode()), _digest(code)


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _digest(code: str) -> str:
    """Return the source that lets a browser run exactly this script and no other (Content Security Policy 3)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


# Data of charts and tables. The script of the page draws them, each chart with its numbers as a table


def case_data(names: Sequence[str], cases: Sequence[object], first: str) -> dict[str, object]:
    """Return the data of the section that shows one case, in chunks: ``case-0``, ``case-1`` …

    A script of the page says what is shown: ``tfbench.oneCase(show)``.
    ``first`` is the case that is shown before a reader chooses one, ``""`` for none.
    """
    chunks = {f"case-{at // _CHUNK}": cases[at : at + _CHUNK] for at in range(0, len(cases), _CHUNK)}
    return {"names": {"names": names, "first": first, "chunk": _CHUNK}, **chunks}


def clean(value: Any) -> Any:
    """Return a value as JSON that a page can show: text through `one_line`, and ``None`` for NaN and infinities."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value):
        return clean(vars(value))
    if isinstance(value, Mapping):
        return {one_line(key): clean(child) for key, child in value.items()}
    return [clean(child) for child in value] if isinstance(value, (list, tuple)) else value


def pack(value: Any) -> str:
    """Compress a JSON value for a page: gzip, then base64. ``NaN`` raises ValueError: use `clean`."""
    return _packed(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, _LEVEL, mtime=0)).decode()


@dataclass(frozen=True)
class DataGrid:
    """A table that a reader sorts by any column, filters and pages through.

    ``columns`` are ``(heading, kind)``. Kinds: ``text``, ``case`` (a name that links to the case), ``outcome`` and
    ``choice`` (words that a reader can select), ``number``, ``seconds``, ``ratio``, ``heat`` (a ratio whose cell is
    coloured by its size) and ``interval`` (a list of low, centre and high, drawn as a bar).
    """

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[object]]
    sort: tuple[int, bool] | None = None
    """Column to sort by at first, and whether to sort downwards."""
    limits: Sequence[float] = ()
    """Ratios that intervals are drawn with, such as the thresholds of the policy."""
