"""A calibration from start to end with real processes, on a step without TensorFlow."""

import argparse
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tfbench import cli, policy
from tfbench.commands.doctor import _plan, add_calibrate
from tfbench.doctor import calibration
from tfbench.doctor.calibration import Journal
from tfbench.errors import GpuError, ReportError
from tfbench.race.workers import Suite

STEP = "from tests.fakes.steps import taking\n\n\ndef test_mine(bench):\n    bench(taking(bench, 1e-5))\n"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def calibrate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setitem(policy.PRESETS, "quick", replace(policy.preset("quick"), zygotes=1))
    monkeypatch.setattr(calibration, "Suite", partial(Suite, imports_tensorflow=False))
    sys.modules.pop("bench_mine", None)  # of another test's folder
    (tmp_path / "bench_mine.py").write_text(STEP)

    def run(*options):
        words = ["calibrate", "bench_mine.py", "--policy", "quick", "--budget", "1", *options]
        return cli.main(words), Journal(tmp_path / "j.jsonl").read()

    return run


@pytest.mark.slow
def test_trials_are_saved_resumed_and_reported(calibrate, capsys):
    code, first = calibrate("--journal", "j.jsonl", "--slowdowns", "0.5", "--repeats", "0")
    assert code == 0
    assert {(trial.slowdown, trial.outcome) for trial in first} == {(0.5, "regressed")}
    assert first[0].launches == 4  # two, and two of the confirmation
    assert len(first[0].effects) == len(first[0].pairs) == len(first[0].errors) == 4
    assert len(first[0].intervals) == 2
    assert all(1 < interval.low < interval.high for interval in first[0].intervals)

    code, both = calibrate("--journal", "j.jsonl", "--slowdowns", "0.5", "--repeats", "1")
    assert both[: len(first)] == first
    assert both[-1].run > first[-1].run
    shown = capsys.readouterr().out
    assert "run the same command again to add more" in shown
    assert "+50%" in shown


def test_a_setting_gives_the_sides_imports_of_their_own(calibrate, monkeypatch):
    asked = []
    monkeypatch.setattr(policy.Policy, "with_common_ancestors", lambda self: asked.append(1) or self)
    calibrate("--journal", "j.jsonl", "--slowdowns", "0.5", "--repeats", "0")
    assert asked
    asked.clear()
    _, trials = calibrate("--journal", "j.jsonl", "--against", "env:OWN=1", "--slowdowns", "0.5", "--repeats", "0")
    assert trials
    assert not asked


@pytest.mark.slow
def test_the_baseline_may_be_another_side(calibrate, tmp_path, capsys):
    # What differs there is taken for a change of the same code.
    (tmp_path / "bench_mine.py").write_text(
        "import os\nfrom tests.fakes.steps import taking\n\n\n"
        "def test_mine(bench):\n    bench(taking(bench, 2e-5 if 'SLOW' in os.environ else 1e-5))\n"
    )
    _, trials = calibrate("--journal", "j.jsonl", "--against", "env:SLOW=1", "--slowdowns", "none", "--repeats", "1")
    assert {(trial.slowdown, trial.outcome) for trial in trials} == {(0.0, "improved")}
    assert "against env:SLOW=1" in " ".join(capsys.readouterr().out.split())
    calibrate("--against", "env:SLOW=1", "--slowdowns", "none", "--repeats", "1")
    (journal,) = (tmp_path / ".tfbench/calibration").glob("*.jsonl")
    assert re.fullmatch(r"quick-against-env-SLOW=1-of-[0-9a-f]{8}\.jsonl", journal.name)


def test_a_baseline_that_does_not_exist_is_refused_once_it_is_needed(calibrate, capsys):
    assert calibrate("--budget", "0", "--against", "git:nowhere")[0] == 0
    assert "no verdict yet" in capsys.readouterr().out
    assert calibrate("--against", "git:nowhere")[0] != 0
    assert "nowhere" in capsys.readouterr().err


def test_a_file_that_is_not_a_journal_is_refused_and_unchanged(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text("{}\n")
    with pytest.raises(ReportError, match=r"j\.jsonl, line 1: not a trial"):
        Journal(path).read()
    assert path.read_text() == "{}\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("-k", "nothing"), "no benchmark is selected; see -k and --device"),
        (("--repeats", "-1"), ""),
        (("--slowdowns", "none", "--repeats", "0"), ""),
        (("--device", "gpu"), "no GPU here"),
    ],
)
def test_what_leaves_nothing_to_race_is_an_error(calibrate, capsys, monkeypatch, options, error):
    monkeypatch.setattr(calibration, "has_driver", lambda: False)
    assert calibrate("--journal", "j.jsonl", *options)[0] == 2
    assert error in capsys.readouterr().err


def test_plans_that_differ_share_no_journal(calibrate, tmp_path):
    (tmp_path / "mine").mkdir()
    parser = argparse.ArgumentParser()
    add_calibrate(parser)
    plans = [[], ["--cases", "1"], ["--device", "gpu"], ["--device", "gpu:1"], ["--tails"], ["--against", "git:HEAD"]]
    plans += [["mine"], ["bench_mine.py"], ["mine", "--policy", "quick"]]
    names = [_plan(parsed, policy.preset(parsed.policy)).journal_name for parsed in map(parser.parse_args, plans)]
    assert names[:2] == ["standard.jsonl", "standard-1-cases.jsonl"]
    assert len(set(names)) == len(plans)


@pytest.mark.parametrize("budget", ["0", "1"])
def test_a_journal_of_another_policy_is_refused(capsys, budget):
    journal = str(ROOT / "docs/data/calibration-finest.jsonl")
    assert cli.main(["calibrate", "--budget", budget, "--journal", journal]) == 2
    assert "has trials of policy finest; give --policy finest or another file" in capsys.readouterr().err


def test_unchanged_code_alone_is_raced_on_request_and_its_coverage_is_printed_also_from_saved_trials(calibrate, capsys):
    _, trials = calibrate("--journal", "j.jsonl", "--slowdowns", "none", "--repeats", "1")
    assert {trial.slowdown for trial in trials} == {0.0}
    capsys.readouterr()
    assert calibrate("--journal", "j.jsonl", "--budget", "0")[0] == 0
    shown = capsys.readouterr().out
    assert "coverage of intervals on unchanged code: " in shown
    assert "nominal 94.0%" in shown


def test_a_folder_of_benchmarks_is_raced(calibrate, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test_own.py").write_text(STEP)
    words = ["calibrate", "mine", "--policy", "quick", "--budget", "1", "--slowdowns", "none", "--repeats", "1"]
    assert cli.main([*words, "--journal", "own.jsonl"]) == 0
    assert {trial.workload for trial in Journal(tmp_path / "own.jsonl").read()} == {"mine/test_own.py::test_mine"}


def test_a_gpu_of_another_run_ends_the_command(calibrate, capsys, monkeypatch):
    def taken(kind, names, policy):
        raise GpuError(f"{kind} {names} is locked")

    monkeypatch.setattr(calibration, "GpuSession", taken)
    monkeypatch.setattr(calibration, "has_driver", lambda: True)
    assert calibrate("--device", "gpu:1")[0] == 5
    assert "gpu ('1',) is locked" in capsys.readouterr().err
