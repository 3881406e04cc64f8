"""The command that shows a history and accepts changes."""

import json
import math
import sys
import time

import numpy as np
import pytest

from tests.fakes.histories import commit, nightly, noise, step
from tests.length import WHOLE
from tests.report.test_html_page import unpacked
from tfbench import cli

SLOW, SAME = "b/test_x.py::test_slow[size=1]", "b/test_x.py::test_same[size=1]"
HOSTILE = "b/test_x.py::test_\x1b[31m\u202egnp[</script><img src=x>]"


@pytest.fixture
def folder(tmp_path):
    nightly(tmp_path, {SLOW: step(60, 50), SAME: noise(60, seed=1)}, release=40)
    return tmp_path


@pytest.fixture(autouse=True)
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def history(folder, *words):
    return cli.main(["history", "--folder", str(folder), *words])


def test_changed_cases_have_a_line_and_the_others_are_counted(folder, capsys):
    assert history(folder) == 1
    out = capsys.readouterr().out
    assert "history: 60 runs, 2 cases" in out
    assert "test_slow[size=1]" in out
    assert "test_same" not in out
    assert f"slower: +2.9% with {commit(50)[:10]}, 10 runs ago;" in out
    assert out.rstrip().endswith("1 slower, 1 steady")
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_case_has_its_line_and_its_changes_and_the_exit_code_is_about_the_shown_cases(folder, capsys):
    assert [history(folder, name) for name in ("test_same", "test_s")] == [0, 1]
    capsys.readouterr()
    assert history(folder, "test_slow[size=1]") == 1
    out = capsys.readouterr().out
    assert "ratio to git:v1.0, 60 runs: +2.9%" in out
    assert "floor on x" in out
    assert commit(50)[:10] in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_accepting_needs_a_reason_and_lets_the_case_pass(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert history(folder, "accept", "test_slow") == 2
    assert "give --reason TEXT" in capsys.readouterr().err
    assert history(folder, "accept", "--reason", "x") == 2
    assert history(folder, "accept", "test_slow", "--reason", "safer") == 0
    assert "its history restarts with the run of 2026-02-" in capsys.readouterr().out
    assert history(folder) == 0
    assert json.loads(next(folder.glob("*-accept-*.jsonl")).read_text())["accepted"]["reason"] == "safer"


def test_unknown_cases_and_empty_folders_have_their_codes(folder, tmp_path, capsys):
    assert history(folder, "other") == 5
    assert "no case in" in capsys.readouterr().err
    assert history(tmp_path / "none") == 5
    assert "no run in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert history(folder, "one", "two") == 2


def test_hostile_names_reach_neither_terminal_nor_page(tmp_path, capsys):
    nightly(tmp_path, {HOSTILE: step(40, 30)})
    assert history(tmp_path, "--html", str(tmp_path / "h.html")) == 1
    assert history(tmp_path, "test_") == 1
    page = (tmp_path / "h.html").read_text()
    for shown in (capsys.readouterr().out, page):
        assert not set(shown) & {"\x1b", "\u202e"}
    assert "<img" not in page


def test_a_page_has_every_series_of_the_newest_runs(folder, tmp_path, capsys):
    nightly(folder, {SLOW: noise(100), SAME: noise(100)}, first=60)
    history(folder, "--html", str(tmp_path / "h.html"))
    assert f"history written: {tmp_path / 'h.html'}" in capsys.readouterr().out
    page = (tmp_path / "h.html").read_text()
    assert unpacked(page, "names")["names"] == [SAME, SLOW]
    (ratio,), (floor,) = (chart["series"] for chart in unpacked(page, "case-0")[1]["charts"])
    assert ratio["x"] == list(range(1, 101))
    newest = math.exp(float(noise(100)[-1]))
    found = [ratio[name][-1] for name in ("low", "y", "high")]
    assert found == pytest.approx([newest * math.exp(0.01 * side) for side in (-1, 0, 1)], rel=1e-3)
    assert (floor["name"][:10], floor["low"]) == ("floor on x", [])
    assert unpacked(page, "changes")["rows"][0][0] == SLOW


RUNS = 1000 if WHOLE else 200


@pytest.mark.chaos
def test_a_thousand_runs_of_500_cases_are_read_and_judged_in_time(tmp_path, capsys):
    """Print the seconds: ``TFBENCH_CHAOS=whole pytest -m chaos -s tests/commands/test_history.py``."""
    rng = np.random.default_rng(0)
    nightly(tmp_path, {f"b/test_x.py::test_x[size={i}]": rng.normal(0, 0.005, RUNS) for i in range(500)})
    for words, limit in ((["test_x[size=7]"], 0.2 + 0.8 * RUNS / 1000), ([], 30 * RUNS / 1000)):
        start = time.process_time()  # beside other work, it tells what an idle machine takes
        history(tmp_path, *words)
        seconds = time.process_time() - start
        with capsys.disabled():
            print(f"\n{RUNS:,} runs x 500 cases, {' '.join(words) or 'all cases'}: {seconds:.1f} s of a processor")
        assert seconds < limit
