"""A history in a real PostgreSQL: the same content as in files, written once, by many writers, without a password."""

from __future__ import annotations

import importlib.util
import re
import threading
import time
import traceback
from dataclasses import replace

import pytest

from tests.fakes.histories import nightly
from tests.storage.servers import PASSWORD, WITHOUT_POSTGRES, postgres
from tests.storage.test_history import ACCEPTED, FULL, LATER
from tfbench.cli import main
from tfbench.storage.history import TABLE, History, opened

WITHOUT = WITHOUT_POSTGRES or (
    "" if importlib.util.find_spec("psycopg") else "psycopg is missing; pip install 'psycopg[binary]'"
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WITHOUT), reason=WITHOUT)]


@pytest.fixture(scope="module")
def server():
    with postgres() as found:
        yield found


@pytest.fixture
def url(server):
    """Return the URL of an empty database."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    return server.url


def test_a_database_reads_back_what_a_folder_does(url, tmp_path):
    folder, database = History(tmp_path / "history"), opened(url)
    for one in (folder, database):
        one.record(LATER)
        one.record(FULL)
        one.accept(ACCEPTED)
    assert database.content().once() == folder.content().once() == [FULL, LATER]
    assert database.content().accepted == [ACCEPTED]


def test_many_writers_write_a_run_once_and_lose_none(url):
    records = [
        replace(FULL, context=replace(FULL.context, session=f"2026-01-01T00:00:00+00:00-{n:08x}")) for n in range(20)
    ]
    failures = []

    def write():
        try:
            history = opened(url)  # creates the tables, as the others do
            for record in records:
                history.record(record)
        except Exception:
            failures.append(traceback.format_exc())

    writers = [threading.Thread(target=write) for _ in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    assert len(opened(url).content().runs) == 20


def test_a_run_is_recorded_while_the_database_restarts(server, url):
    history = opened(url)
    server.stop()
    starter = threading.Thread(target=lambda: (time.sleep(1), server.start()))
    starter.start()
    history.record(FULL)
    starter.join()
    assert len(history.content().runs) == 1


def test_the_command_shows_a_database(url, tmp_path, capsys):
    nightly(tmp_path / "history", {"b/t.py::x": [0.0] * 9 + [0.1] * 8})
    database = opened(url)
    for record in History(tmp_path / "history").content().once():
        database.record(record)
    assert main(["history", "--folder", url]) == 1
    printed = capsys.readouterr()
    assert "slower: +10.5%" in printed.out
    assert PASSWORD not in printed.out + printed.err


@pytest.mark.parametrize(
    ("wrong", "right", "text"),
    [
        (PASSWORD, "not-" + PASSWORD, "password authentication failed"),
        ("/bench$", "/nothing", 'database "nothing" does not exist'),
        ("@127.0.0.1:", "@127.0.0.1:1", ""),
        ("postgresql:", "mysql:", "is postgresql://USER@HOST/NAME, not mysql://"),
        ("@127.0.0.1:", "@127.0.0.1:port", "the URL of the database cannot be read"),
    ],
)
def test_a_wrong_url_is_one_line_without_the_password(url, capsys, wrong, right, text):
    given = re.sub(wrong, right, url)
    assert main(["history", "--folder", given]) == 5
    printed = capsys.readouterr()
    assert text in printed.err
    assert len(printed.err.splitlines()) == 1
    assert PASSWORD not in printed.out + printed.err
