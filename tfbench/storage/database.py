"""Keep a history in PostgreSQL, where many machines write at once. Needs the extra ``postgres``.

A row holds what a file of a history holds, under the same name, so both have one format and one reader. The name of a
run is unique: a job that is repeated is there once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfbench.errors import HistoryError
from tfbench.model import AcceptedChange
from tfbench.storage.history import (
    AnyHistory,
    Content,
    History,
    SessionRecord,
    accepted_document,
    read_document,
    run_document,
)
from tfbench.untrusted import brief

if TYPE_CHECKING:
    from psycopg import Connection

Value = TypeVar("Value")

RETRY = 60.0
"""Seconds to retry while the database cannot be reached, such as during its restart: a lost run costs minutes."""
_BETWEEN = 1.0
_LOCK = 0x7F_BE_7C
"""Key of an advisory lock: two fleets may create the table at once."""
TABLE = "tfbench_history_1"
"""Table of the runs. Another form of it has another number."""
_CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    id bigint GENERATED ALWAYS AS IDENTITY, name text PRIMARY KEY, content text NOT NULL,
    written timestamptz NOT NULL DEFAULT now())
"""


def is_url(place: str | Path) -> bool:
    """Whether a place of a history is the URL of a database."""
    return isinstance(place, str) and "://" in place


def opened(place: str | Path) -> AnyHistory:
    """Open a history by its place: a folder, or the URL of a database, whose library only then is loaded.

    Raises:
        HistoryError: The database cannot be used.
    """
    return DatabaseHistory(str(place)) if is_url(place) else History(Path(place))


class DatabaseHistory:
    """The runs of a database. It creates its table when it is opened.

    Args:
        url: Such as ``postgresql://user@host/name``. A password may be in it, in ``~/.pgpass`` or in ``PGPASSWORD``.

    Raises:
        HistoryError: The library is not installed, the URL is wrong, or the database cannot be reached. The message
            does not contain the password.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise HistoryError(
                "a history in PostgreSQL needs psycopg: pip install 'pytest-tfbench[postgres]'"
            ) from None
        if not url.startswith("postgresql://"):
            scheme = brief(url.partition("://")[0])
            raise HistoryError(f"a history in a database is postgresql://USER@HOST/NAME, not {scheme}://…")
        try:
            known = psycopg.conninfo.conninfo_to_dict(url, connect_timeout=10)
            port = int(known.get("port") or 5432)
        except (psycopg.Error, ValueError):
            raise HistoryError(
                "the URL of the database cannot be read; write postgresql://USER@HOST:PORT/NAME, and %40 for an @"
            ) from None
        self._psycopg = psycopg
        self._known: dict[str, Any] = known
        user, host, name = (known.get(key) or "" for key in ("user", "host", "dbname"))
        self.place = f"postgresql://{user}@{host}:{port}/{name}"
        """The URL without its password."""
        self._do(self._create)

    @staticmethod
    def _create(connection: Connection) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(_CREATE)

    def _do(self, action: Callable[[Connection], Value], wait: float = 0.0) -> Value:
        """Run an action in a transaction of its own; again for ``wait`` seconds while the database is away."""
        until = time.monotonic() + wait
        while True:
            try:
                with self._psycopg.connect(**self._known) as connection:
                    return action(connection)
            except self._psycopg.OperationalError as error:
                if time.monotonic() >= until:
                    raise self._failure(error) from None
            except self._psycopg.Error as error:
                raise self._failure(error) from None
            time.sleep(_BETWEEN)

    def _failure(self, error: BaseException) -> HistoryError:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        password = self._known.get("password")
        said = lines[-1].replace(str(password), "…") if password else lines[-1]
        return HistoryError(f"the history in {self.place}: {brief(said)}")

    def record(self, record: SessionRecord) -> str:
        """Add a run, unless it is there; return the place.

        Raises:
            HistoryError: The database was away for longer than `RETRY`.
        """
        return self._add(*run_document(record))

    def accept(self, accepted: AcceptedChange) -> str:
        """Add an accepted change; return the place. Raises as `record`."""
        return self._add(*accepted_document(accepted))

    def _add(self, name: str, content: str) -> str:
        statement = f"INSERT INTO {TABLE} (name, content) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
        self._do(lambda connection: connection.execute(statement, (name, content)), RETRY)
        return self.place

    def content(self) -> Content:
        """Read every document.

        Raises:
            HistoryError: The database cannot be reached.
        """

        def rows(connection: Connection) -> Content:
            found = Content()
            with connection.cursor("tfbench") as cursor:  # of the server, which sends some rows at a time
                for name, text in cursor.execute(f"SELECT name, content FROM {TABLE} ORDER BY name"):
                    read_document(f"{self.place}: {brief(name)}", text, found)
            return found

        return self._do(rows)
