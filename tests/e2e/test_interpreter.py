"""The interpreter that the user has started: its options reach the processes of all sides, or are refused."""

import json

import pytest

from tests.e2e.project import Project
from tfbench.storage.baselines import Baselines

STEP = """
    import json, sys
    from pathlib import Path

    def test_mine(bench):
        seen = {"flags": [sys.flags.optimize, sys.flags.dev_mode, sys.flags.ignore_environment, sys.flags.no_user_site],
                "warnings": sys.warnoptions, "x": sys._xoptions, "hash": hash("a"), "assert": __debug__}
        with open(ROOT / "seen.jsonl", "a") as file:
            print(json.dumps(seen), file=file)
        bench(sum, range(10_000))
"""


def as_written(project):
    return STEP.replace("def test_mine", f"ROOT = Path({str(project.root)!r})\n\n    def test_mine")


def started(project, *options, pytest_options=("--against", "self"), **environment):
    """Run the benchmark by ``python OPTIONS -m pytest``; return the run, its report and what the launches have seen."""
    project.write(as_written(project))
    python, *words = project.command("--benchmark", f"--report-json={project.report}", *pytest_options)
    usual = project.environment()
    project.environment = lambda: {**usual, **environment}
    done = project._execute([python, *options, *words])
    report = json.loads(project.report.read_text()) if project.report.exists() else {}
    seen = project.root / "seen.jsonl"
    return done, report, [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []


def test_its_options_reach_both_sides_and_the_report(project):
    project.write(as_written(project))  # another process lists the benchmarks of the commit
    project.commit("base")
    options = ("-O", "-Werror::BytesWarning", "-Xint_max_str_digits=5000", "-Xfrozen_modules=off", "-s")
    done, report, seen = started(project, *options, pytest_options=("--against", "git:HEAD"))
    assert done.returncode == 0 or "inconclusive: 1 inconclusive" in done.stdout, done.stdout  # on a busy machine
    assert len(seen) >= 4
    for one in seen:
        assert (one["flags"], one["assert"]) == ([1, False, 0, 1], False)
        assert one["warnings"] == ["error::BytesWarning"]
        assert one["x"] == {"int_max_str_digits": "5000", "frozen_modules": "off"}
    for side in report["sides"].values():
        assert side["settings"]["PYTHON_OPTIONS"] == " ".join(options)


@pytest.mark.slow
def test_an_isolated_interpreter_measures_in_isolated_ones(tmp_path):
    project = Project(tmp_path, full=True)
    (project.root / "elsewhere").mkdir()
    (project.root / "elsewhere" / "json.py").write_text("raise SystemExit('PYTHONPATH is read')")
    done, _, seen = started(project, "-I", "-OO", PYTHONPATH=str(project.root / "elsewhere"), PYTHONOPTIMIZE="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {tuple(one["flags"]) for one in seen} == {(2, False, 1, 1)}


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (("-X", "tracemalloc"), {}, "python -X tracemalloc slows every allocation down"),
        (("-X", "importtime"), {}, "python -X importtime times the imports of one process"),
        ((), {"PYTHONTRACEMALLOC": "1"}, "PYTHONTRACEMALLOC slows every allocation down"),
    ],
)
def test_what_would_spoil_the_times_is_refused(project, options, environment, said):
    done, _, seen = started(project, *options, **environment)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    assert line.startswith(f"ERROR: {said}")
    assert seen == []


def test_a_user_without_a_home_can_measure_below_a_parent_that_ignores_the_ends_of_children(project):
    """A supervisor may hand SIGCHLD down as ignored, and no exit code is kept then."""
    command = project._execute
    project._execute = lambda words: command(["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *words])
    done, report, _ = started(project, HOME="no-absolute-path", XDG_CACHE_HOME="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["outcome"] for row in report["verdicts"] if row["metric"] == "time"] == ["unchanged"]
    assert not list(project.root.glob("*/tfbench"))


@pytest.mark.slow
def test_other_options_than_those_of_a_baseline_are_named(project):
    done, _, _ = started(project, "-O", pytest_options=("--save-baseline", "main"))
    assert done.returncode == 0, done.stdout
    saved = Baselines(project.root / ".tfbench/baselines").fetch("main")
    assert saved.environment.settings["PYTHON_OPTIONS"] == "-O"
    done, report, _ = started(project, pytest_options=("--baseline", "main"))
    (row,) = [row for row in report["verdicts"] if row["metric"] == "time"]
    assert row["outcome"] == "incomparable"
    assert "PYTHON_OPTIONS -O there, not set here" in row["reason"]["message"]
