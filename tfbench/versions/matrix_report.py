"""Report cases by versions: tables for the terminal, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import JSON, Outcome, VariantResult
from tfbench.report.differences import differences
from tfbench.report.style import add_columns, add_row, table
from tfbench.report.units import duration, size, times
from tfbench.versions.matrix import Entry, Matrix, Row, Untimed

SCHEMA = "tfbench-versions/1"
Saved = Mapping[str, Mapping[str, float]]
"""Name of an earlier run -> case -> median seconds."""
_STYLE = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green", Outcome.INCONCLUSIVE: "yellow"}
_SIGNS = {Outcome.REGRESSED: "+", Outcome.IMPROVED: "-", Outcome.UNCHANGED: " "}
_WORDS = {"slower": Outcome.REGRESSED, "faster": Outcome.IMPROVED, "the same": Outcome.UNCHANGED}
_CASE, _CELL, _SAVED = 40, 24, 16
"""Characters that a column takes."""
_TOTAL = "all cases together"


def terminal(matrix: Matrix, saved: Saved, width: int) -> RenderableType:
    """Return a table of ratios, a table of the sides, and why cases could not be timed.

    Times of earlier runs, which were not raced, have columns of their own. On lines of too few characters, the table
    leaves out the intervals.
    """
    before = [Text(f"differs: {line}", "dim") for line in differences(matrix.sides)]
    short = _CASE + _CELL * len(matrix.sides) + _SAVED * len(saved) > width
    legend = "+ slower, - faster, ? inconclusive; reports and wider terminals show the intervals"
    after = [Text(line, "dim") for line in [*[legend] * short, *_notes(matrix)]]
    return Group(*before, _ratios(matrix, saved, short), *after, _summary(matrix))


def _ratios(matrix: Matrix, saved: Saved, short: bool) -> Table:
    reference, *_ = matrix.labels
    made = table(f"time, ratio to {reference}")
    made.add_column("case", overflow="fold", min_width=_CASE // 2)
    add_columns(made, *matrix.labels, right=True, fold=True)
    for name in saved:
        made.add_column(f"{name}, not raced", justify="right", overflow="fold", style="dim")
    for row in matrix.by_slowdown:
        add_row(made, row.case.short_name, *(_cell(entry, short) for entry in row.entries), *_saved_cells(row, saved))
    return made


def _cell(entry: Entry, short: bool = False) -> Text:
    if isinstance(entry, Untimed):
        return Text(entry.why.partition(":")[0], "dim")
    if entry.ratio is None:
        return Text(duration(entry.median_seconds))
    outcome = entry.outcome or Outcome.NEW
    text = f"{entry.ratio.center:.3f} {_SIGNS.get(outcome, '?')}" if short else times(entry.ratio)
    return Text(text, _STYLE.get(outcome, ""))


def _saved_cells(row: Row, saved: Saved) -> list[str]:
    found = (medians.get(row.case.name) for medians in saved.values())
    return [duration(seconds) if seconds else "-" for seconds in found]


def _notes(matrix: Matrix) -> list[str]:
    """Return why cases could not be timed, each reason once."""
    found: dict[str, list[str]] = {}
    for row in matrix.rows:
        for label, entry in zip(matrix.sides, row.entries, strict=True):
            if isinstance(entry, Untimed) and ":" in entry.why:
                found.setdefault(f"on {label} {entry.why}", []).append(row.case.short_name)
    return [f"{cases[0]}{f' and {len(cases) - 1} more' * (len(cases) > 1)} {why}" for why, cases in found.items()]


def _summary(matrix: Matrix) -> Table:
    made = table(_TOTAL)
    add_columns(made, "")
    for label in matrix.labels:
        made.add_column(label, justify="right")
    for name, *cells in _facts(matrix):
        add_row(made, name, *cells)
    return made


def _facts(matrix: Matrix) -> list[list[str]]:
    """Return the rows of the summary: a name, and a cell for each side."""
    columns = [_of_side(index, side, matrix.rows) for index, side in enumerate(matrix.sides.values())]
    return [[name, *(column.get(name, "-") for column in columns)] for name in columns[-1]]


def _of_side(index: int, side: JSON, rows: Sequence[Row]) -> dict[str, str]:
    pairs = [(row.entries[0], row.entries[index]) for row in rows]
    both = [(a, b) for a, b in pairs if isinstance(a, VariantResult) and isinstance(b, VariantResult)]
    outcomes = [b.outcome for _, b in both if b.ratio]
    imported, packages = side["import_seconds"], side.get("packages", {})
    found = {
        "TensorFlow": next((v for name, v in packages.items() if name.startswith(("tensorflow", "tf-nightly"))), "-"),
        "Python": side.get("python", "-"),
        "Keras": packages.get("keras", "-"),
        "import of TensorFlow": duration(imported) if imported else "-",
        "cases": str(len(both)),
    }
    if index:
        found |= {word: str(outcomes.count(one)) for word, one in _WORDS.items()}
        found["inconclusive"] = str(sum(one not in _WORDS.values() for one in outcomes))
    ratios = [b.ratio.center for _, b in both if b.ratio]
    called = [(a.facts.get("first_call"), b.facts.get("first_call")) for a, b in both]
    first = [mine / reference for reference, mine in called if reference and mine]
    memory = [b.facts["peak_host_memory"] for _, b in both if "peak_host_memory" in b.facts]
    found["time, mean ratio"] = f"{geometric_mean(ratios):.3f}" if ratios else "-"
    found["first call, mean ratio"] = f"{geometric_mean(first):.2f}" if first and index else "-"
    found["memory of a case, median"] = size(median(memory)) if memory else "-"
    return found


def markdown(matrix: Matrix, saved: Saved) -> str:
    """Return the same tables as Markdown."""
    lines = [f"- differs: {line}" for line in differences(matrix.sides)] + [""]
    lines += _head(["case", *matrix.labels, *(f"{name}, not raced" for name in saved)])
    for row in matrix.by_slowdown:
        lines.append(_line([f"`{row.case.short_name}`", *map(_mark, row.entries), *_saved_cells(row, saved)]))
    lines += ["", *(f"- {note}" for note in _notes(matrix)), "", *_head([_TOTAL, *matrix.labels])]
    lines += map(_line, _facts(matrix))
    return "\n".join(lines).lstrip("\n") + "\n"


def _mark(entry: Entry) -> str:
    text = str(_cell(entry)).replace("|", "\\|")
    moved = isinstance(entry, VariantResult) and entry.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    return f"**{text}**" if moved else text


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), _line(["---", *["---:"] * (len(cells) - 1)])]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(matrix: Matrix, saved: Saved, policy: JSON) -> str:
    """Return all results as JSON."""
    entries = [
        [{"why": one.why} if isinstance(one, Untimed) else one.as_json() for one in row.entries] for row in matrix.rows
    ]
    content = {
        "schema": SCHEMA,
        "policy": policy,
        "reference": matrix.labels[0],
        "sides": dict(matrix.sides),
        "cases": [
            {"case": row.case.name, "sides": dict(zip(matrix.sides, sides, strict=True))}
            for row, sides in zip(matrix.rows, entries, strict=True)
        ],
        "not_raced": {name: dict(medians) for name, medians in saved.items()},
        "wall_seconds": round(matrix.seconds, 3),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
