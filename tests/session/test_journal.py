"""The finished cases of a run: kept, taken over by a run with the same identity, deleted at the end."""

import json
import math
from contextlib import contextmanager

import pytest

from tfbench.session.resume import Journal

CODE = {"the code": "1"}


@contextmanager
def run(tmp_path, identity=CODE, resume=True, complete=False):
    journal = Journal(tmp_path / "journal.jsonl", identity, resume)
    yield journal
    journal.close(complete)


def interrupted(tmp_path, *cases):
    with run(tmp_path, resume=False) as first:
        for case in cases:
            first.add({"case": case, "what": [1.5]})
    return tmp_path / "journal.jsonl"


def resumed(tmp_path, identity=CODE):
    with run(tmp_path, identity) as journal:
        return journal


def test_the_cases_of_an_interrupted_run_are_taken_over_and_kept(tmp_path):
    interrupted(tmp_path, "a", "b")
    with run(tmp_path) as second:
        assert second.entries["b"] == {"case": "b", "what": [1.5]}
        second.add({"case": "c"})
    assert list(resumed(tmp_path).entries) == ["a", "b", "c"]


def test_a_case_is_on_disk_before_the_next_one(tmp_path):
    with run(tmp_path, resume=False) as journal:
        journal.add({"case": "größer", "what": 1})
        head, line = (tmp_path / "journal.jsonl").read_text().splitlines()
        assert json.loads(head) == {"schema": "tfbench-journal/1", "identity": CODE}
        assert json.loads(line) == {"case": "größer", "what": 1}
    assert journal.note == ""


def test_a_number_that_json_lacks_is_not_written(tmp_path):
    with run(tmp_path, resume=False) as journal:
        with pytest.raises(ValueError, match="not JSON compliant"):
            journal.add({"case": "a", "what": math.nan})
        journal.add({"case": "b"})
    assert list(resumed(tmp_path).entries) == ["b"]


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_a_number_that_tfbench_does_not_write_ends_the_journal(tmp_path, number):
    path = interrupted(tmp_path, "a", "b")
    path.write_text(path.read_text()[::-1].replace("5.1", number[::-1], 1)[::-1])
    assert list(resumed(tmp_path).entries) == ["a"]


def test_without_resume_an_earlier_run_is_forgotten(tmp_path):
    interrupted(tmp_path, "a")
    assert interrupted(tmp_path, "b").exists()
    assert list(resumed(tmp_path).entries) == ["b"]


def test_the_journal_of_a_complete_run_is_deleted(tmp_path):
    interrupted(tmp_path, "a")
    with run(tmp_path, complete=True):
        pass
    last = resumed(tmp_path)
    assert last.entries == {}
    assert last.note == "--resume: there is no interrupted run, so every case is measured"


def test_what_changed_is_named(tmp_path):
    interrupted(tmp_path, "a")
    found = resumed(tmp_path, {"the code": "2", "the machine": {}})
    assert found.entries == {}
    assert found.note == "--resume: the code and the machine changed since that run, so every case is measured"
    assert resumed(tmp_path).entries == {}  # the earlier cases are gone


def test_a_run_that_knows_more_about_itself_is_another_run(tmp_path):
    with run(tmp_path, {**CODE, "the machine": None}, resume=False) as first:
        first.add({"case": "a"})
    assert list(resumed(tmp_path, {**CODE, "the machine": None}).entries) == ["a"]


def test_a_line_that_was_cut_off_is_ignored(tmp_path):
    path = interrupted(tmp_path, "a", "b")
    path.write_text(path.read_text()[:-9])
    assert list(resumed(tmp_path).entries) == ["a"]


def test_another_file_is_not_taken_for_a_journal(tmp_path):
    for text in ("", "[]\n", "{}\n", "nonsense\n", '{"schema": "other", "identity": {}}\n'):
        (tmp_path / "journal.jsonl").write_text(text)
        found = resumed(tmp_path)
        assert found.entries == {}
        start, end = ("--resume: ", "so every case is measured")
        assert (found.note[: len(start)], found.note[-len(end) :]) == (start, end)
    (tmp_path / "journal.jsonl").write_text("[]\n")
    fault = "ValueError: the first line is a list instead of an object"
    assert f"cannot be read ({fault}), so" in resumed(tmp_path).note
    (tmp_path / "journal.jsonl").write_text("{}\n")
    path = tmp_path / "journal.jsonl"
    assert resumed(tmp_path).note == f"--resume: {path} cannot be read ('schema' is missing), so every case is measured"


def test_a_journal_of_another_version_is_not_used(tmp_path):
    path = interrupted(tmp_path, "a")
    path.write_text(path.read_text().replace("tfbench-journal/1", "tfbench-journal/2"))
    assert resumed(tmp_path).entries == {}
    path.write_text('{"schema": "tfbench-journal/1", "identity": 1}\n')
    assert "(ValueError: identity is 1 instead of an object)" in resumed(tmp_path).note


def test_a_journal_that_was_removed_is_no_error_at_the_end(tmp_path):
    with run(tmp_path, resume=False, complete=True):
        (tmp_path / "journal.jsonl").unlink()


def test_a_second_run_in_the_folder_goes_without(tmp_path):
    with run(tmp_path, resume=False) as first:
        with run(tmp_path, complete=True) as second:
            assert second.note == "another run is using this folder, so this run cannot be resumed"
            second.add({"case": "x"})
        first.add({"case": "a"})
    assert list(resumed(tmp_path).entries) == ["a"]
