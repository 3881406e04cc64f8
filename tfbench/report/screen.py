"""The console that everything is printed with. It shows text of unknown origin without effect on terminals and runners."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from tfbench.untrusted import harmless


class Screen(Console):
    """A console on which only the styles of this program act: every piece of text passes through `harmless`."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **how})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `rich` does, and replace the text of each piece; codes for the cursor come from `rich` alone."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    def status(self, status: RenderableType, **how: Any) -> Status:
        """Show an activity on a terminal, without markup in its text."""
        return _Activity(_text(status), console=self, **how)


class _Activity(Status):
    def update(self, status: RenderableType | None = None, **how: Any) -> None:
        super().update(None if status is None else _text(status), **how)


def _text(status: RenderableType) -> RenderableType:
    return Text(status) if isinstance(status, str) else status


def say(text: str, *, error: bool = False) -> None:
    """Print a line, or print it as an error, without `rich`'s folding."""
    print(harmless(text), file=sys.stderr if error else sys.stdout)
