"""Cases by versions: as tables for the terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean, median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import JSON, Case, Outcome, VariantResult
from tfbench.report.differences import differences
from tfbench.report.style import table
from tfbench.report.units import duration, size, times

SCHEMA = "tfbench-versions/1"
Entries = Sequence[VariantResult | str]
Rows = Sequence[tuple[Case, Entries]]
Saved = Mapping[str, Mapping[str, float]]
"""What an earlier run is called -> case -> median seconds."""
_STYLE = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green", Outcome.INCONCLUSIVE: "yellow"}
_WORDS = {"slower": Outcome.REGRESSED, "faster": Outcome.IMPROVED, "the same": Outcome.UNCHANGED}


def sort_by_slowdown(rows: Rows) -> list[tuple[Case, Entries]]:
    """The case that lost most on any side first; what could not be timed last."""

    def worst(row: tuple[Case, Entries]) -> float:
        found = [one.ratio.center for one in row[1] if isinstance(one, VariantResult) and one.ratio]
        return max(found, default=0.0)

    return sorted(rows, key=worst, reverse=True)


def terminal(sides: Mapping[str, JSON], rows: Rows, saved: Saved, width: int) -> RenderableType:
    """A table of ratios, one of the sides, and why cases could not be timed.

    Args:
        saved: Seconds of earlier runs to be shown beside, which were not raced.
        width: Characters of a line; where it is too short for intervals, they are left out.
    """
    before = [Text(f"differs: {line}", "dim") for line in differences(sides)]
    short = _CASE + _CELL * len(sides) + _SAVED * len(saved) > width
    after = [
        Text("+ slower, - faster, ? inconclusive; intervals are in the reports, or in a wider window", "dim")
    ] * short
    after += [Text(note, "dim") for note in _notes(list(sides), rows)]
    return Group(*before, _ratios(list(sides), rows, saved, short), *after, _summary(sides, rows))


_CASE, _CELL, _SAVED = 40, 24, 16
"""Characters that a column takes."""
_SIGNS = {Outcome.REGRESSED: "+", Outcome.IMPROVED: "-", Outcome.UNCHANGED: " "}


def _ratios(labels: list[str], rows: Rows, saved: Saved, short: bool) -> Table:
    made = table(f"time, ratio to {labels[0]}")
    made.add_column("case", overflow="fold", min_width=_CASE // 2)
    for label in labels:
        made.add_column(label, justify="right", overflow="fold")
    for name in saved:
        made.add_column(f"{name}, not raced", justify="right", overflow="fold", style="dim")
    for case, entries in sort_by_slowdown(rows):
        beside = (duration(seconds) if (seconds := medians.get(case.name)) else "-" for medians in saved.values())
        made.add_row(Text(case.name.rpartition("::")[2]), *(_cell(entry, short) for entry in entries), *beside)
    return made


def _cell(entry: VariantResult | str, short: bool = False) -> Text:
    if isinstance(entry, str):
        return Text(entry.partition(":")[0], "dim")
    if entry.ratio is None:
        return Text(duration(entry.median_seconds))
    sign = _SIGNS.get(entry.outcome or Outcome.NEW, "?")
    text = f"{entry.ratio.center:.3f} {sign}" if short else times(entry.ratio)
    return Text(text, _STYLE.get(entry.outcome or Outcome.NEW, ""))


def _notes(labels: list[str], rows: Rows) -> list[str]:
    """Why cases could not be timed, each reason once."""
    found: dict[str, list[str]] = {}
    for case, entries in rows:
        for label, entry in zip(labels, entries, strict=True):
            if isinstance(entry, str) and ":" in entry:
                found.setdefault(f"on {label} {entry}", []).append(case.name.rpartition("::")[2])
    return [f"{cases[0]}{f' and {len(cases) - 1} more' * (len(cases) > 1)} {why}" for why, cases in found.items()]


def _summary(sides: Mapping[str, JSON], rows: Rows) -> Table:
    made = table("all cases together")
    made.add_column("", no_wrap=True)
    for label in sides:
        made.add_column(label, justify="right")
    for name, cells in _facts(sides, rows):
        made.add_row(name, *map(Text, cells))
    return made


def _facts(sides: Mapping[str, JSON], rows: Rows) -> list[tuple[str, list[str]]]:
    """What is told of each side: its name, and a cell for each side."""
    columns = [_of_side(index, side, rows) for index, side in enumerate(sides.values())]
    return [(name, [column.get(name, "-") for column in columns]) for name in columns[-1]]


def _of_side(index: int, side: JSON, rows: Rows) -> dict[str, str]:
    pairs = [(one[0], one[index]) for _, one in rows]
    both = [(a, b) for a, b in pairs if isinstance(a, VariantResult) and isinstance(b, VariantResult)]
    outcomes = [b.outcome for _, b in both if b.ratio]
    imported, packages = side["import_seconds"], side["packages"]
    found = {
        "TensorFlow": next((v for name, v in packages.items() if name.startswith(("tensorflow", "tf-nightly"))), "-"),
        "Python": side["python"],
        "Keras": packages.get("keras", "-"),
        "import of TensorFlow": duration(imported) if imported else "-",
        "cases": str(len(both)),
    }
    if index:
        found |= {word: str(outcomes.count(one)) for word, one in _WORDS.items()}
        found["inconclusive"] = str(len(outcomes) - sum(outcomes.count(one) for one in _WORDS.values()))
    ratios = [b.ratio.center for _, b in both if b.ratio]
    called = [(a.facts.get("first_call"), b.facts.get("first_call")) for a, b in both]
    first = [mine / reference for reference, mine in called if reference and mine]
    memory = [b.facts["peak_host_memory"] for _, b in both if "peak_host_memory" in b.facts]
    found["time, mean ratio"] = f"{_mean(ratios):.3f}" if ratios else "-"
    found["first call, mean ratio"] = f"{_mean(first):.2f}" if first and index else "-"
    found["memory of a case, median"] = size(median(memory)) if memory else "-"
    return found


def _mean(ratios: Sequence[float]) -> float:
    """Geometric, as ratios multiply."""
    return exp(fmean(map(log, ratios)))


def markdown(sides: Mapping[str, JSON], rows: Rows, saved: Saved) -> str:
    """The same tables for a page."""
    labels = list(sides)
    lines = [f"- differs: {line}" for line in differences(sides)] + [""]
    lines += [_line(["case", *labels, *(f"{name}, not raced" for name in saved)])]
    lines += [_line(["---", *["---:"] * (len(labels) + len(saved))])]
    for case, entries in sort_by_slowdown(rows):
        cells = [_mark(entry) for entry in entries]
        cells += [duration(seconds) if (seconds := medians.get(case.name)) else "-" for medians in saved.values()]
        lines.append(_line([f"`{case.name.rpartition('::')[2]}`", *cells]))
    lines += ["", *(f"- {note}" for note in _notes(labels, rows))]
    lines += ["", _line(["all cases together", *labels]), _line(["---", *["---:"] * len(labels)])]
    lines += [_line([name, *cells]) for name, cells in _facts(sides, rows)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _mark(entry: VariantResult | str) -> str:
    text = str(_cell(entry)).replace("|", "\\|")
    moved = isinstance(entry, VariantResult) and entry.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    return f"**{text}**" if moved else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(sides: Mapping[str, JSON], rows: Rows, saved: Saved, policy: JSON, seconds: float) -> str:
    """Everything, for programs."""
    content = {
        "schema": SCHEMA,
        "policy": policy,
        "reference": next(iter(sides)),
        "sides": dict(sides),
        "cases": [
            {
                "case": case.name,
                "sides": {
                    label: {"why": entry} if isinstance(entry, str) else entry.as_json()
                    for label, entry in zip(sides, entries, strict=True)
                },
            }
            for case, entries in rows
        ],
        "not_raced": {name: dict(medians) for name, medians in saved.items()},
        "wall_seconds": round(seconds, 3),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
