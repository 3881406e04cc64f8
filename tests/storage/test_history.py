"""Sessions are read oldest first, and unreadable files are named and left unchanged."""

import json
import math
import re
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


def test_the_file_of_a_session_has_its_time_and_its_floors(tmp_path):
    floors = {**RECORD.floors, "b/größer.py::y": (2e-5,)}
    path = History(tmp_path).record(replace(RECORD, floors=floors))
    assert path == tmp_path / "2026-01-01T000000+0000-a.json"
    text = path.read_text()
    assert text.startswith('{\n "schema"')
    assert text.endswith("\n}\n")
    assert json.loads(text) == {
        "schema": "tfbench-session/1",
        "recipe": CONTEXT.environment.as_json(),
        "session": CONTEXT.session,
        "tree": CONTEXT.tree,
        "policy": CONTEXT.policy,
        "way": CONTEXT.way,
        "cases": {
            "b/x.py::x": {"source": "abc", "floors": [1e-5, 1.1e-5]},
            "b/größer.py::y": {"source": "", "floors": [2e-5]},
        },
    }


def test_a_number_that_json_lacks_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        History(tmp_path).record(replace(RECORD, floors={"x": (math.inf,)}))
    assert list(tmp_path.iterdir()) == []


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
    (line,) = strange
    assert line.startswith(f"{tmp_path / 'strange.json'} is not a session that tfbench can read (")
    assert re.search(r"\((JSONDecodeError|TypeError|ValueError): .+\)$", line)
    assert (tmp_path / "strange.json").read_text() == text


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"cases": []}, "ValueError: cases is a list instead of an object"),
        ({"cases": {"x": 1}}, "ValueError: x is 1 instead of an object"),
        ({"cases": {"x": {"floors": 1, "source": ""}}}, "ValueError: floors is 1 instead of a list"),
        ({"cases": {"x": {"floors": [1e-5], "source": 1}}}, "ValueError: source is 1 instead of a text"),
        ({"cases": {"x": {"floors": [1e-5]}}}, "KeyError: 'source'"),
        ({"schema": "x"}, "ValueError: schema 'x' instead of 'tfbench-session/1'"),
        ({"session": 1}, "ValueError: session is 1 instead of a text"),
        ({"tree": "--help"}, "ValueError: '--help' is no tree of git"),
        ({"tree": "a" * 65}, f"ValueError: '{'a' * 65}' is no tree of git"),
    ],
)
def test_a_damaged_session_is_named_with_its_fault(tmp_path, change, fault):
    path = History(tmp_path).record(RECORD)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert History(tmp_path).read() == ([], [f"{path} is not a session that tfbench can read ({fault})"])


def test_a_session_without_usable_times_is_refused(tmp_path):
    history = History(tmp_path)
    path = history.record(RECORD)
    content = json.loads(path.read_text())
    content["cases"]["b/x.py::x"]["floors"] = [0.0]
    path.write_text(json.dumps(content))
    fault = "ValueError: b/x.py::x has no usable times: 0.0"
    assert history.read() == ([], [f"{path} is not a session that tfbench can read ({fault})"])


def test_git_ignores_the_folders_that_nobody_commits(tmp_path):
    Layout(tmp_path / "a").write_gitignore()
    assert "history/" in (tmp_path / "a/.gitignore").read_text()
    (tmp_path / "a/.gitignore").write_text("mine\n")
    Layout(tmp_path / "a").write_gitignore()
    assert (tmp_path / "a/.gitignore").read_text() == "mine\n"
