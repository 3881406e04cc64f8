"""Render the changes of a case's graphs between two sides."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.report.style import add_columns, add_row, table

Rows = Sequence[tuple[str, ...]]


def render(title: str, changes: Rows, metrics: Rows, notes: Sequence[str]) -> RenderableType:
    """Render an explanation.

    Args:
        title: The two sides.
        changes: Place, change and description of each change.
        metrics: Metric, value before, value now, and description of the gain and loss.
        notes: Comparisons that were impossible, and other differences between the sides.
    """
    parts: list[RenderableType] = [Text(title, "bold")]
    for rows, left, right in ((changes, ("where", "change"), ()), (metrics, ("metric",), ("before", "now"))):
        if rows:
            made = table("")
            add_columns(made, *left)
            add_columns(made, *right, right=True)
            add_columns(made, "what", fold=True)
            for row in rows:
                add_row(made, *row)
            parts.append(made)
    if not changes and not metrics:
        parts.append(Text("nothing changed: the graphs, XLA's modules and every exact metric are the same"))
    parts += [Text(note) for note in notes]
    return Group(*parts)
