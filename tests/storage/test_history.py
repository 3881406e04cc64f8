"""Sessions are read oldest first, and unreadable files are named and left unchanged."""

import json
from dataclasses import replace

import pytest

from tests.storage.test_baselines import CONTEXT
from tfbench.storage.history import History, SessionRecord
from tfbench.storage.layout import Layout

RECORD = SessionRecord(CONTEXT, {"b/x.py::x": (1e-5, 1.1e-5)}, {"b/x.py::x": "abc"})


def test_sessions_come_back_oldest_first(tmp_path):
    history = History(tmp_path)
    later = replace(RECORD, context=replace(CONTEXT, session="2026-02-02T00:00:00+00:00-b"))
    history.record(later)
    history.record(RECORD)
    assert history.read() == ([RECORD, later], [])


def test_a_missing_folder_has_no_sessions(tmp_path):
    assert History(tmp_path / "none").read() == ([], [])


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": "x"}', '{"schema": "tfbench-session/1", "cases": {"a": {"source": "", "floors": []}}}'],
)
def test_an_unreadable_file_is_named_and_left_unchanged(tmp_path, text):
    history = History(tmp_path)
    history.record(RECORD)
    (tmp_path / "strange.json").write_text(text)
    found, strange = history.read()
    assert found == [RECORD]
    assert "strange.json is not a session" in strange[0]
    assert (tmp_path / "strange.json").read_text() == text


def test_a_session_without_usable_times_is_refused(tmp_path):
    history = History(tmp_path)
    path = history.record(RECORD)
    content = json.loads(path.read_text())
    content["cases"]["b/x.py::x"]["floors"] = [0.0]
    path.write_text(json.dumps(content))
    assert "no usable times" in history.read()[1][0]


def test_git_ignores_the_folders_that_nobody_commits(tmp_path):
    Layout(tmp_path / "a").write_gitignore()
    assert "history/" in (tmp_path / "a/.gitignore").read_text()
    (tmp_path / "a/.gitignore").write_text("mine\n")
    Layout(tmp_path / "a").write_gitignore()
    assert (tmp_path / "a/.gitignore").read_text() == "mine\n"
