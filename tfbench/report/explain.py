"""What changed in a case's graphs between two sides, as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.report.style import table

Rows = Sequence[tuple[str, ...]]


def render(title: str, changes: Rows, metrics: Rows, notes: Sequence[str]) -> RenderableType:
    """The lines of an explanation.

    Args:
        title: What is compared with what.
        changes: Where, what and the change in words.
        metrics: Metric, value before, value now, what was gained and lost.
        notes: What could not be compared, or how the sides differ beside that.
    """
    parts: list[RenderableType] = [Text(title, "bold")]
    if changes:
        made = table("")
        for heading in ("where", "change"):
            made.add_column(heading, no_wrap=True)
        made.add_column("what", overflow="fold")
        for row in changes:
            made.add_row(*map(Text, row))
        parts.append(made)
    if metrics:
        made = table("")
        made.add_column("metric", no_wrap=True)
        for heading in ("before", "now"):
            made.add_column(heading, justify="right", no_wrap=True)
        made.add_column("what", overflow="fold")
        for row in metrics:
            made.add_row(*map(Text, row))
        parts.append(made)
    if not changes and not metrics:
        parts.append(Text("nothing changed: the graphs, XLA's modules and every exact metric are the same"))
    parts += [Text(note) for note in notes]
    return Group(*parts)
