"""Reports and accepted regressions as the gate reads them, and decisions as it writes them."""

import datetime

import pytest

from tests.fakes.report import complete, row
from tfbench import ruling
from tfbench.errors import ReportError, UsageError
from tfbench.model import Outcome
from tfbench.report import json_format
from tfbench.report.artifact import ACCEPTED, as_json, load_accepted, load_artifact, load_report
from tfbench.ruling import Entry, Result, decided

NAMES = ["b/test_x.py::test_a", "b/test_x.py::test_b"]
REPORT = complete([row(NAMES[0], Outcome.REGRESSED, values=(1.0, 1.05)), row(NAMES[1])])
TEXT = json_format.render(REPORT)
DAY = datetime.date(2027, 1, 31)
ENTRY = Entry(NAMES[0], "agreed", DAY, up_to=1.1)
GONE = Entry(NAMES[1], "deleted", DAY, gone=True)


def test_a_report_is_read_from_a_file_of_any_name_or_from_a_folder_with_it_alone(tmp_path):
    (tmp_path / "report").write_text(TEXT)
    assert load_report(tmp_path / "report").verdicts == REPORT.verdicts
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/r.json").write_text(TEXT)
    assert load_report(tmp_path / "folder").verdicts == REPORT.verdicts
    (tmp_path / "folder/s.json").write_text(TEXT)
    text = f"{tmp_path / 'folder'} has 2 reports, expected one; tfbench gate merges the reports of shards"
    for load in (load_report, load_artifact):
        with pytest.raises(ReportError) as caught:
            load(tmp_path / "folder")
        assert str(caught.value) == text


def test_a_bad_report_is_refused_by_its_name(tmp_path):
    (tmp_path / "report").write_text("{")
    with pytest.raises(ReportError, match=f"^{tmp_path / 'report'} is not JSON"):
        load_report(tmp_path / "report")
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(ReportError, match=r"^r\.json is not JSON"):
        load_artifact(tmp_path / "r.json")
    (tmp_path / "r.zip").write_text("no archive")
    with pytest.raises(ReportError, match=r"r\.zip"):
        load_report(tmp_path / "r.zip")


def artifact(folder, accepted=None, report=REPORT):
    (folder / "r.json").write_text(json_format.render(report))
    if accepted is not None:
        (folder / ACCEPTED).write_text(accepted)
    return load_artifact(folder)


def test_accepted_regressions_survive_an_artifact(tmp_path):
    others = [Entry(NAMES[0], "why not", DAY, metric="flops"), Entry(NAMES[0], "x", DAY, metric="casts", up_to=0)]
    entries = [ENTRY, GONE, *others]
    text = as_json(entries)
    assert text.endswith("}\n")
    assert text.startswith('{\n "accept": [')
    report, found = artifact(tmp_path, text)
    assert (report.verdicts, found) == (REPORT.verdicts, entries)
    assert artifact(tmp_path, as_json([])) == (report, [])
    (tmp_path / ACCEPTED).unlink()
    assert artifact(tmp_path)[1] == []


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("{", f"^{ACCEPTED} cannot be read: "),
        ("{}", f"^{ACCEPTED} cannot be read: at the top, Object missing required field `accept`$"),
        ('{"accept": [{"until": "soon"}]}', f"^{ACCEPTED} cannot be read: at accept\\[0\\].*, "),
    ],
)
def test_invalid_accepted_regressions_of_an_artifact_are_refused(tmp_path, text, reported):
    with pytest.raises(ReportError, match=reported):
        artifact(tmp_path, text)


def test_names_of_an_artifact_are_checked(tmp_path):
    with pytest.raises(ReportError, match=f"^{tmp_path} has a case named 'x y', .*: give its parameters ids without"):
        artifact(tmp_path, report=complete([row("x y")]))


def test_a_file_of_accepted_regressions_is_read(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(f'[[accept]]\ncase = "{NAMES[0]}"\nreason = "agreed"\nuntil = 2027-01-31\nup_to = 1.1\n')
    assert load_accepted(path) == [ENTRY]
    path.write_text("[[accept]")
    with pytest.raises(UsageError, match=f"^{path} is not TOML: Expected"):
        load_accepted(path)
    path.write_text("[[accept]]\n")
    with pytest.raises(UsageError, match=f"^{path}, entry 1: Object missing required field `case`"):
        load_accepted(path)


def test_an_acceptance_ends_with_its_day_in_utc(monkeypatch):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            assert zone is datetime.timezone.utc
            return cls(2027, 2, 1)

    monkeypatch.setattr(ruling.datetime, "datetime", Clock)
    late, in_time = decided(REPORT, [ENTRY]), decided(REPORT, [ENTRY], DAY)
    assert (late.ruling.result, in_time.ruling.result) == (Result.REGRESSED, Result.PASS)
    assert "expired on 2027-01-31" in late.problems[0]
    assert decided(REPORT).ruling.result is Result.REGRESSED


def test_the_share_that_must_be_compared_can_be_chosen():
    half = complete([row(NAMES[0]), row(NAMES[1], Outcome.NEW), row("b/test_x.py::test_c", Outcome.NEW)])
    assert decided(half).ruling.result is Result.INCOMPARABLE
    assert decided(half, min_compared=0.3).ruling.result is Result.PASS
