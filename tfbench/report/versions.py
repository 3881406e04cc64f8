"""Cases by versions: as tables for the terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean, median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.model import JSON, Case, Outcome, Standing
from tfbench.report.differences import differences
from tfbench.report.style import table
from tfbench.report.units import duration, size, times

SCHEMA = "tfbench-versions/1"
Entries = Sequence[Standing | str]
Rows = Sequence[tuple[Case, Entries]]
_STYLE = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green", Outcome.INCONCLUSIVE: "yellow"}
_WORDS = {"slower": Outcome.REGRESSED, "faster": Outcome.IMPROVED, "the same": Outcome.UNCHANGED}


def by_what_got_worse(rows: Rows) -> list[tuple[Case, Entries]]:
    """The case that lost most on any side first; what could not be timed last."""

    def worst(row: tuple[Case, Entries]) -> float:
        found = [one.ratio.center for one in row[1] if isinstance(one, Standing) and one.ratio]
        return max(found, default=0.0)

    return sorted(rows, key=worst, reverse=True)


def terminal(sides: Mapping[str, JSON], rows: Rows) -> RenderableType:
    """A table of ratios and one of the sides."""
    notes = [Text(f"differs: {line}", "dim") for line in differences(sides)]
    return Group(*notes, _ratios(list(sides), rows), _summary(sides, rows))


def _ratios(labels: list[str], rows: Rows) -> Table:
    made = table(f"time, ratio to {labels[0]}")
    made.add_column("case", overflow="fold")
    made.add_column(labels[0], justify="right", no_wrap=True)
    for label in labels[1:]:
        made.add_column(label, justify="right")
    for case, entries in by_what_got_worse(rows):
        made.add_row(Text(case.name.rpartition("::")[2]), *map(_cell, entries))
    return made


def _cell(entry: Standing | str) -> Text:
    if isinstance(entry, str):
        return Text(entry, "dim")
    if entry.ratio is None:
        return Text(duration(entry.median_seconds))
    return Text(times(entry.ratio), _STYLE.get(entry.outcome or Outcome.NEW, ""))


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
    both = [(a, b) for a, b in pairs if isinstance(a, Standing) and isinstance(b, Standing)]
    outcomes = [b.outcome for _, b in both if b.ratio]
    imported = side["import_seconds"]
    found = {
        "Python": side["python"],
        "Keras": side["packages"].get("keras", "-"),
        "import of TensorFlow": duration(imported) if imported else "-",
        "cases": str(len(both)),
    }
    if index:
        found |= {word: str(outcomes.count(one)) for word, one in _WORDS.items()}
        found["open"] = str(len(outcomes) - sum(outcomes.count(one) for one in _WORDS.values()))
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


def markdown(sides: Mapping[str, JSON], rows: Rows) -> str:
    """The same tables for a page."""
    labels = list(sides)
    lines = [f"- differs: {line}" for line in differences(sides)] + [""]
    lines += [_line(["case", *labels]), _line(["---", *["---:"] * len(labels)])]
    for case, entries in by_what_got_worse(rows):
        cells = [_mark(entry) for entry in entries]
        lines.append(_line([f"`{case.name.rpartition('::')[2]}`", *cells]))
    lines += ["", _line(["all cases together", *labels]), _line(["---", *["---:"] * len(labels)])]
    lines += [_line([name, *cells]) for name, cells in _facts(sides, rows)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _mark(entry: Standing | str) -> str:
    text = str(_cell(entry)).replace("|", "\\|")
    moved = isinstance(entry, Standing) and entry.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    return f"**{text}**" if moved else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(sides: Mapping[str, JSON], rows: Rows, policy: JSON, seconds: float) -> str:
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
        "wall_seconds": round(seconds, 3),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
