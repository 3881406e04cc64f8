"""Histories in a database, and the place that a history is kept in.

A row holds what a file of a history holds, under the same name, so both have one format and one reader. The name of a
run is unique: a job that is repeated is there once.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from platformdirs import user_cache_path

from tfbench.errors import HistoryError
from tfbench.model import AcceptedChange
from tfbench.storage.history import (
    Content,
    History,
    SessionRecord,
    accepted_document,
    read_document,
    run_document,
)
from tfbench.untrusted import brief

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table


# Keep a history in PostgreSQL, where many machines write at once. Needs the extra ``postgres``


Value = TypeVar("Value")

INSTALL = "pip install 'pytest-tfbench[postgres]'"
HEAD = "0002"
"""The newest migration."""
RETRY = 60.0
"""Seconds to retry while the database cannot be reached, such as during its restart: a lost run costs minutes."""
_BETWEEN = 1.0
_SCHEMES = ("postgresql://", "postgresql+psycopg://")
_ALEMBIC = threading.Lock()
"""Alembic keeps the migration that runs in a global variable."""
_MIGRATIONS = Path(__file__).with_name("migrations")


class DatabaseHistory:
    """The runs of a database. It creates and updates its tables when it is opened.

    Args:
        url: Such as ``postgresql://user@host/name``. A password may be in it, in ``~/.pgpass`` or in ``PGPASSWORD``.

    Raises:
        HistoryError: A library is not installed, the URL is wrong, the database cannot be reached, or a newer tfbench
            has changed its tables. The message does not contain the password.
    """

    def __init__(self, url: str) -> None:
        try:
            import sqlalchemy
        except ImportError:
            raise HistoryError(f"a history in PostgreSQL needs sqlalchemy: {INSTALL}") from None
        if missing := next((name for name in ("psycopg", "alembic") if find_spec(name) is None), ""):
            raise HistoryError(f"a history in PostgreSQL needs {missing}: {INSTALL}")
        self._sqlalchemy = sqlalchemy
        if not url.startswith(_SCHEMES):
            scheme = brief(url.partition("://")[0])
            raise HistoryError(f"a history in a database is postgresql://USER@HOST/NAME, not {scheme}://…")
        try:
            parsed = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise HistoryError(
                "the URL of the database cannot be read; write postgresql://USER@HOST:PORT/NAME, and %40 for an @"
            ) from None
        self._secrets = [str(one) for one in (parsed.password, parsed.query.get("password")) if one]
        self.place = f"postgresql://{parsed.username or ''}@{parsed.host or ''}:{parsed.port or 5432}/{parsed.database}"
        """The URL without its password."""
        key = hashlib.sha256(self.place.encode()).hexdigest()[:16]
        self.index_file = user_cache_path("tfbench") / "histories" / f"{key}.sqlite"
        self._engine: Engine = sqlalchemy.create_engine(
            parsed, poolclass=sqlalchemy.NullPool, connect_args={"connect_timeout": 10}, hide_parameters=True
        )
        self._table: Table = sqlalchemy.Table(
            "tfbench_document",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True),
            sqlalchemy.Column("name", sqlalchemy.Text),
            sqlalchemy.Column("content", sqlalchemy.Text),
        )
        self._do(self._migrate)

    def _do(self, action: Callable[[Connection], Value], wait: float = 0.0) -> Value:
        """Run an action in a transaction of its own; again for ``wait`` seconds while the database is away."""
        until = time.monotonic() + wait
        while True:
            try:
                with self._engine.begin() as connection:
                    return action(connection)
            except self._sqlalchemy.exc.OperationalError as error:
                if time.monotonic() >= until:
                    raise self._failure(error.orig or error) from None
            except self._sqlalchemy.exc.SQLAlchemyError as error:
                raise self._failure(getattr(error, "orig", None) or error) from None
            time.sleep(_BETWEEN)

    def _failure(self, error: BaseException) -> HistoryError:
        text = str(error).strip().splitlines()
        said = text[-1] if text else type(error).__name__
        for secret in self._secrets:
            said = said.replace(secret, "…")
        return HistoryError(f"the history in {self.place}: {brief(said)}")

    def _migrate(self, connection: Connection) -> None:
        """Create or update the tables. Alembic is loaded only if they are not the newest: that takes half a second."""
        text = self._sqlalchemy.text
        known = connection.execute(text("SELECT to_regclass('tfbench_version')")).scalar()
        if known is not None and connection.execute(text("SELECT version_num FROM tfbench_version")).scalar() == HEAD:
            return
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            with _ALEMBIC:
                command.upgrade(config, "head")
        except CommandError:
            raise HistoryError(
                f"the history in {self.place} has tables that this tfbench does not know: "
                "a newer one has changed them, so update tfbench"
            ) from None

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
        from sqlalchemy.dialects.postgresql import insert

        row: dict[str, Any] = {"name": name, "content": content}
        statement = insert(self._table).values(row).on_conflict_do_nothing(index_elements=["name"])
        self._do(lambda connection: connection.execute(statement), RETRY)
        return self.place

    # Reading

    def exists(self) -> bool:
        """Whether there may be runs: the tables exist as soon as the database is opened."""
        return True

    def stamps(self) -> dict[str, tuple[int, int]]:
        """Return the size and the number of each document, by name. Documents never change."""
        columns, length = self._table.c, self._sqlalchemy.func.length
        query = self._sqlalchemy.select(columns.name, length(columns.content), columns.id).order_by(columns.name)
        return self._do(lambda connection: {name: (size, number) for name, size, number in connection.execute(query)})

    def add_to(self, name: str, content: Content) -> None:
        """Add a document to the content."""
        query = self._sqlalchemy.select(self._table.c.content).where(self._table.c.name == name)
        text = self._do(lambda connection: connection.execute(query).scalar_one_or_none())
        if text is None:
            content.problems.append(f"{self.place}: {brief(name)} is gone")
        else:
            read_document(f"{self.place}: {brief(name)}", text, content)

    def read(self) -> tuple[list[SessionRecord], list[str]]:
        """Return every run once, oldest first, and one line per unreadable part."""
        found = Content()
        for name in self.stamps():
            self.add_to(name, found)
        return found.once(), found.problems


# Open a history by its place: a folder, or the URL of a database. Only here a database's library is loaded


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
        return DatabaseHistory(place)
    return History(Path(place))
