"""Open a history by its place: a folder, or the URL of a database. Only here a database's library is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tfbench.storage.history import AcceptedChange, Content, History, SessionRecord


class AnyHistory(Protocol):
    """A history in a folder or a database."""

    place: str
    """The folder, or the URL without its password."""
    index_file: Path
    """Where its index is kept."""

    def record(self, record: SessionRecord) -> Path | str: ...

    def accept(self, accepted: AcceptedChange) -> Path | str: ...

    def exists(self) -> bool: ...

    def stamps(self) -> dict[str, tuple[int, int]]: ...

    def add_to(self, name: str, content: Content) -> None: ...

    def read(self) -> tuple[list[SessionRecord], list[str]]: ...


def is_url(place: str | Path) -> bool:
    """Whether a place of a history is the URL of a database."""
    return isinstance(place, str) and "://" in place


def opened(place: str | Path) -> AnyHistory:
    """Open a history.

    Raises:
        HistoryError: The database cannot be used.
    """
    if isinstance(place, str) and is_url(place):
        from tfbench.storage.database import DatabaseHistory

        return DatabaseHistory(place)
    return History(Path(place))
