"""Index the runs of a history in an SQLite database, which is rebuilt from them at any time.

The files are the truth. The index is a cache beside them: a damaged, old or foreign one is replaced, and a folder that
this user cannot write is indexed in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tfbench.errors import SideError
from tfbench.fs import locked
from tfbench.model import FLOOR, JSON, RATIO, AcceptedChange, EnvironmentInfo, IndexedRun, IndexedSeries, SeriesPoint
from tfbench.storage.database import opened
from tfbench.storage.history import Anchor, Content, SessionRecord

VERSION = 1
"""Raise it whenever the tables change."""
_TABLES = """
CREATE TABLE file (name TEXT PRIMARY KEY, size INTEGER, modified INTEGER);
CREATE TABLE problem (file TEXT, text TEXT);
CREATE TABLE machine (id INTEGER PRIMARY KEY, key TEXT UNIQUE, label TEXT, facts TEXT);
CREATE TABLE side (id INTEGER PRIMARY KEY, key TEXT UNIQUE, label TEXT, recipe TEXT);
CREATE TABLE run (
    id INTEGER PRIMARY KEY, session TEXT UNIQUE, hash TEXT, dirty INTEGER, policy TEXT, releases TEXT,
    machine INTEGER REFERENCES machine, side INTEGER REFERENCES side, anchor INTEGER REFERENCES side);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, name TEXT, metric TEXT, anchor INTEGER, machine INTEGER, newest TEXT DEFAULT '',
    UNIQUE (name, metric, anchor, machine));
CREATE TABLE point (
    series INTEGER, run INTEGER, value REAL, low REAL, high REAL, outcome TEXT,
    PRIMARY KEY (series, run)) WITHOUT ROWID;
CREATE TABLE annotation (name TEXT, reason TEXT, time TEXT, session TEXT, UNIQUE (name, time, session));
CREATE TABLE trend (series INTEGER PRIMARY KEY, key TEXT, content TEXT);
"""


class HistoryIndex:
    """The index of a folder of histories, brought up to date when it is opened.

    Args:
        place: The folder, or the URL of a database.
        rebuild: Whether to read all files again.

    Raises:
        OSError: A file of the folder cannot be listed.
        HistoryError: The database cannot be used.
    """

    def __init__(self, place: str | Path, *, rebuild: bool = False) -> None:
        self.history = opened(place)
        path = self.history.index_file
        try:
            if not self.history.exists():
                raise FileNotFoundError(place)
            with locked(path.with_suffix(".lock")):
                if rebuild or not self._updated(path):
                    self._rebuild(path)
                self.database = sqlite3.connect(path, timeout=60)
        except (
            OSError,
            SideError,
            sqlite3.OperationalError,
        ):  # the folder does not exist, or this user cannot write it
            self.database = self._in_memory()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # Updating

    def _updated(self, path: Path) -> bool:
        """Add new files to an existing index; false if it must be rebuilt."""
        if not path.exists():
            return False
        try:
            with closing(sqlite3.connect(path, timeout=60)) as database:
                if database.execute("PRAGMA user_version").fetchone() != (VERSION,):
                    return False
                known = {name: (size, time) for name, size, time in database.execute("SELECT * FROM file")}
                there = self.history.stamps()
                if any(there.get(name) != stamp for name, stamp in known.items()):
                    return False  # a file is gone or was changed
                new = [name for name in there if name not in known]
                with database:
                    self._insert(database, new, there)
                database.execute("SELECT 1 FROM point JOIN trend USING (series) LIMIT 1")
                return True
        except (sqlite3.DatabaseError, TypeError, ValueError):
            return False

    def _rebuild(self, path: Path) -> None:
        half = path.with_suffix(f".{os.getpid()}.half")
        half.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(half)) as database:
                database.execute("PRAGMA synchronous = OFF")
                self._create(database)
            os.replace(half, path)
        finally:
            half.unlink(missing_ok=True)
        for left in ("-journal", "-wal", "-shm"):  # of the index that was replaced
            Path(f"{path}{left}").unlink(missing_ok=True)

    def _in_memory(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:")
        self._create(database)
        return database

    def _create(self, database: sqlite3.Connection) -> None:
        database.executescript(_TABLES)
        database.execute(f"PRAGMA user_version = {VERSION}")
        stamps = self.history.stamps()
        with database:
            self._insert(database, list(stamps), stamps)

    def _insert(
        self, database: sqlite3.Connection, names: Iterable[str], stamps: Mapping[str, tuple[int, int]]
    ) -> None:
        inserter = _Inserter(database)
        for name in names:
            content = Content()
            self.history.add_to(name, content)
            for record in content.runs:
                inserter.add(record)
            rows = [(one.case, one.reason, one.when, one.session) for one in content.accepted]
            database.executemany("INSERT OR IGNORE INTO annotation VALUES (?, ?, ?, ?)", rows)
            for case, *_ in rows:
                database.execute("DELETE FROM trend WHERE series IN (SELECT id FROM series WHERE name = ?)", (case,))
            database.executemany("INSERT INTO problem VALUES (?, ?)", [(name, text) for text in content.problems])
            database.execute("INSERT INTO file VALUES (?, ?, ?)", (name, *stamps[name]))
        inserter.finish()

    # Queries

    def problems(self) -> list[str]:
        """Return one line per unreadable part of a file."""
        return [text for (text,) in self.database.execute("SELECT text FROM problem ORDER BY file, rowid")]

    def runs(self) -> int:
        """Return the number of runs."""
        return int(self.database.execute("SELECT count(*) FROM run").fetchone()[0])

    def series(self) -> list[IndexedSeries]:
        """Return every series, by case; of a case the ratios first, the one with the newest run first."""
        rows = self.database.execute(
            "SELECT series.id, name, metric, coalesce(side.label, ''), coalesce(machine.label, '') FROM series "
            "LEFT JOIN side ON side.id = series.anchor LEFT JOIN machine ON machine.id = series.machine "
            "ORDER BY name, metric DESC, newest DESC, series.id"
        )
        return [IndexedSeries(*row) for row in rows]

    def points(self, series: IndexedSeries) -> list[SeriesPoint]:
        """Return the points of a series in time order, up to the runs that were there at the first call."""
        rows = self.database.execute("SELECT run, value, low, high, outcome FROM point WHERE series = ?", (series.id,))
        runs = self._runs
        # Another process may have added runs since they were read.
        known = (row for row in rows if row[0] in runs)
        ordered = sorted((*runs[run], value, low, high, outcome) for run, value, low, high, outcome in known)
        return [
            SeriesPoint(run, value, low, math.inf if high is None else high, outcome)
            for _, run, value, low, high, outcome in ordered
        ]

    @cached_property
    def _runs(self) -> dict[int, tuple[int, IndexedRun]]:
        """Id of a run -> its place in time and the run."""
        rows = self.database.execute(
            "SELECT run.id, session, hash, dirty, releases, side.label, machine.label FROM run "
            "JOIN side ON side.id = side JOIN machine ON machine.id = run.machine ORDER BY session"
        )
        return {
            run: (place, IndexedRun(session, commit, bool(dirty), tuple(json.loads(releases)), side, machine))
            for place, (run, session, commit, dirty, releases, side, machine) in enumerate(rows)
        }

    def accepted(self, case: str) -> list[AcceptedChange]:
        """Return the accepted changes of a case, oldest first."""
        rows = self.database.execute(
            "SELECT name, reason, time, session FROM annotation WHERE name = ? ORDER BY time", (case,)
        )
        return [AcceptedChange(*row) for row in rows]

    # What is computed from the points

    def trends(self, key: str) -> dict[int, JSON]:
        """Return the saved results of series whose points are unchanged since.

        Args:
            key: What the results depend on besides the points.
        """
        rows = self.database.execute("SELECT series, content FROM trend WHERE key = ?", (key,))
        return {series: json.loads(content) for series, content in rows}

    def keep_trends(self, key: str, trends: Mapping[int, JSON]) -> None:
        """Save results for `trends`, as far as the index can be written."""
        rows = [(series, key, json.dumps(content)) for series, content in trends.items()]
        with suppress(sqlite3.OperationalError), self.database:
            self.database.executemany("INSERT OR REPLACE INTO trend VALUES (?, ?, ?)", rows)


class _Inserter:
    """Adds runs to a database, and gives each machine, side and series one id."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._ids: dict[tuple[object, ...], int] = {}
        self._newest: dict[int, str] = {}
        """Id of a series -> newest run that was added to it."""

    def add(self, record: SessionRecord) -> None:
        """Add a run with its points, unless it is there."""
        context, environment = record.context, record.context.environment
        known = self._database.execute("SELECT 1 FROM run WHERE session = ?", (context.session,)).fetchone()
        if known is not None:
            return
        machine = self._id("machine", *_machine(environment))
        side = self._id("side", *_side(environment))
        anchor = self._id("side", *_anchor(record.anchor)) if record.anchor else None
        values = (
            context.session, environment.commit, environment.dirty, context.policy,
            json.dumps(record.releases), machine, side, anchor,
        )  # fmt: skip
        columns = "session, hash, dirty, policy, releases, machine, side, anchor"
        run = self._database.execute(f"INSERT INTO run ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values).lastrowid
        points: list[tuple[int, int | None, float, float, float | None, str]] = []
        for case, floors in record.floors.items():
            floor = min(floors)
            outcome = str(record.outcomes.get(case, ""))
            # 0 stands for "no anchor" and "any machine", as NULLs are never equal.
            points.append((self._series(case, FLOOR, 0, machine), run, floor, floor, floor, outcome))
        for case, ratio in record.ratios.items():
            outcome, high = str(record.outcomes.get(case, "")), ratio.high if math.isfinite(ratio.high) else None
            points.append((self._series(case, RATIO, anchor or 0, 0), run, ratio.center, ratio.low, high, outcome))
        self._database.executemany("INSERT OR IGNORE INTO point VALUES (?, ?, ?, ?, ?, ?)", points)
        for series, *_ in points:
            self._newest[series] = max(context.session, self._newest.get(series, ""))

    def finish(self) -> None:
        """Note what was added to which series."""
        rows = [(session, series) for series, session in self._newest.items()]
        self._database.executemany("UPDATE series SET newest = max(newest, ?) WHERE id = ?", rows)
        self._database.executemany("DELETE FROM trend WHERE series = ?", [(series,) for series in self._newest])

    def _series(self, case: str, metric: str, anchor: int, machine: int) -> int:
        return self._lookup("series", {"name": case, "metric": metric, "anchor": anchor, "machine": machine}, {})

    def _id(self, table: str, key: str, label: str, content: JSON) -> int:
        column = "facts" if table == "machine" else "recipe"
        return self._lookup(table, {"key": key}, {"label": label, column: json.dumps(content)})

    def _lookup(self, table: str, unique: Mapping[str, object], more: Mapping[str, object]) -> int:
        """Return the id of the row with these values, which is added if there is none."""
        cached = (table, *unique.values())
        if cached not in self._ids:
            where = " AND ".join(f"{column} = ?" for column in unique)
            row = self._database.execute(f"SELECT id FROM {table} WHERE {where}", tuple(unique.values())).fetchone()
            if row is None:
                values = {**unique, **more}
                text = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
                row = (self._database.execute(text, tuple(values.values())).lastrowid,)
            self._ids[cached] = int(row[0])
        return self._ids[cached]


def _machine(environment: EnvironmentInfo) -> tuple[str, str, JSON]:
    """Return key, label and facts of the machine of a run, the number of threads included."""
    facts = {**environment.machine, "threads": str(environment.threads)}
    name = facts.get("gpus") or facts.get("processor") or "unknown processor"
    return json_digest(facts), f"{name}, {facts.get('processors', '?')} processors", facts


def _side(environment: EnvironmentInfo) -> tuple[str, str, JSON]:
    packages = environment.packages
    tensorflow = next((name for name in ("tensorflow", "tensorflow-cpu", "tf-nightly") if name in packages), "")
    recipe = {
        "python": environment.python, "packages": dict(packages), "settings": dict(environment.settings)
    }  # fmt: skip
    return (
        json_digest(recipe),
        f"{tensorflow} {packages[tensorflow]}" if tensorflow else f"Python {environment.python}",
        recipe,
    )


def _anchor(anchor: Anchor) -> tuple[str, str, JSON]:
    return f"anchor {anchor.key}", anchor.label, {}


def json_digest(content: JSON | list[Any]) -> str:
    """Return a short digest of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
