"""The commands report, gate and baseline, on files."""

import re
from dataclasses import replace

import pytest

from tests.report.test_json_reader import REPORT
from tests.sides.test_source_tree import git
from tests.storage.test_baselines import BASELINE, CASE, CONTEXT, SAMPLE
from tfbench import cli
from tfbench.model import Case, Sample
from tfbench.report import json_format
from tfbench.sides.source_tree import CANDIDATES, KEPT, snapshot
from tfbench.storage.baselines import Baseline, Baselines

WHOLE = replace(REPORT, due=(CASE.name,), skips=(), complete=True)


def written(path, report):
    path.write_text(json_format.render(report))
    return str(path)


BASELINE_FILE, BENCHMARK_FILE = '{"benchmarks": [], "tfbench": {}}', '{"benchmarks": [], "machine_info": {}}'


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("", "", 2, "give a REPORT"),
        ("none.json", "", 5, "No such file"),
        ("r.json", '{"schema": "tfbench-report/1"}', 5, "is not a report"),
        ("r.json", BASELINE_FILE, 5, "r.json is not a report of the schema tfbench-report/1"),
        ("r.json", BENCHMARK_FILE, 5, "--report-json PATH"),
        (".", "", 5, "has a file named 'test_a.py'; expected one such as report.json"),
    ],
)
def test_a_gate_that_cannot_read_its_report_says_what_it_needs(tmp_path, capsys, name, content, code, said):
    (tmp_path / "test_a.py").touch()
    (tmp_path / "r.json").write_text(content)
    assert cli.main(["gate", *([str(tmp_path / name)] if name else [])]) == code
    assert said in capsys.readouterr().err


def slower(by):
    runs = tuple(replace(run, seconds=tuple(second * by for second in run.seconds)) for run in SAMPLE.runs)
    return Baseline(CONTEXT, {CASE.name: Sample(CASE, runs * 2)})


def test_two_baselines_stand_side_by_side_and_a_slower_one_fails_on_request(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Baselines(tmp_path / ".tfbench/baselines")
    for name, by in (("a", 1), ("b", 1.5)):
        store.save(name, slower(by))
    assert cli.main(["report", "a", "b"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The runs did not race each other" in shown
    assert re.search(r"11\.0 µs 16\.5 µs \(1\.500\)", shown), shown
    assert cli.main(["report", "a", "b", "--fail-on-regression", "60%"]) == 0
    assert cli.main(["report", "b", "a", "--fail-on-regression", "0.1"]) == 0
    assert cli.main(["report", "a", "b", "--fail-on-regression", "10%"]) == 1
    assert f"slower by more than 10%: {CASE.name}" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "fix"), [(["a", "b", "--fail-on-regression=x"], "write the growth that fails"),
                                            (["a", "--fail-on-regression=5%"], "give both")])  # fmt: skip
def test_a_limit_without_a_number_or_a_second_file_is_a_wrong_command_line(tmp_path, capsys, monkeypatch, words, fix):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Baselines(tmp_path / ".tfbench/baselines").save(name, BASELINE)
    assert cli.main(["report", *words]) == 2
    assert fix in capsys.readouterr().err


def test_a_report_stands_beside_a_baseline_of_another_machine(tmp_path, capsys):
    other = replace(CONTEXT, environment=replace(CONTEXT.environment, machine={"processor": "y"}))
    store = Baselines(tmp_path)
    store.save("b", BASELINE)
    assert cli.main(["report", str(tmp_path / "b.json"), str(store.save("c", Baseline(other, BASELINE.samples)))]) == 0
    assert "differ in processor x and y" in " ".join(capsys.readouterr().out.split())
    paths = written(tmp_path / "a.json", WHOLE), str(tmp_path / "b.json")
    assert cli.main(["report", *paths]) == 0
    shown = capsys.readouterr().out
    assert CASE.name in shown
    assert "b.json: tfbench baseline" in " ".join(shown.split())


@pytest.fixture
def project(tmp_path):
    """A checkout with a baseline, a run against it, and sessions."""
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    folder = tmp_path / ".tfbench"
    tree = snapshot(tmp_path, f"{KEPT}main").tree
    store = Baselines(folder / "baselines")
    store.save("main", Baseline(replace(CONTEXT, tree=tree), BASELINE.samples))
    (tmp_path / "code.py").write_text("x = 2\n")
    tree = snapshot(tmp_path, f"{CANDIDATES}main").tree
    other = Case("b/test_x.py::test_y", "test_y", "b/test_x.py::test_y")
    samples = {**BASELINE.samples, other.name: Sample(other, SAMPLE.runs)}
    candidate = Baseline(replace(CONTEXT, tree=tree), samples, against=store.fetch("main").saved)
    Baselines(folder / "candidates").save("main", candidate)
    return tmp_path


def baseline(project, *words):
    return cli.main(["baseline", "--root", str(project), *words])


def refs(project):
    return git(project, "for-each-ref", "--format=%(refname)").split()


def test_baselines_are_listed_and_shown(project, capsys):
    assert baseline(project, "list") == 0
    assert "c0ffee" in capsys.readouterr().out
    assert baseline(project, "show", "main") == 0
    shown = capsys.readouterr().out
    assert "tensorflow 2.21.0" in shown


def test_an_unreadable_baseline_leaves_the_list_of_the_others_readable(project, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (project / ".tfbench/baselines/broken.json").write_text("")
    assert baseline(project, "list") == 0
    out = capsys.readouterr().out
    assert re.search(r"^ broken +unreadable", out, re.MULTILINE)
    assert re.search(r"^ main +\d{4}-", out, re.MULTILINE)
    assert "broken.json is not a baseline of the schema" in " ".join(out.split())


def test_a_baseline_or_folder_that_is_not_there_and_an_acceptance_without_a_reason_are_refused(project, capsys):
    for words, code, said in (
        (["accept", "nope"], 5, "no baseline named 'nope'"),  # before the missing reason
        (["accept", "main", "--reason", "  "], 2, "without a reason"),
        (["--root", str(project / "nowhere"), "list"], 2, "nowhere is no folder"),
    ):
        assert baseline(project, *words) == code
        assert said in capsys.readouterr().err


def test_a_folder_without_baselines(tmp_path, capsys):
    assert baseline(tmp_path, "list") == 0
    assert "--save-baseline NAME" in capsys.readouterr().out
    assert baseline(tmp_path, "show", "main") == 5


def test_accepting_keeps_the_reason_and_the_tree(project, capsys):
    store = Baselines(project / ".tfbench/baselines")
    before = store.fetch("main")
    assert baseline(project, "accept", "main", "--reason", "a better model") == 0
    after = store.fetch("main")
    assert after.tree != before.tree
    assert len(after.samples) == 2
    assert (after.accepted[0].reason, after.accepted[0].replaced) == ("a better model", before.saved)
    assert refs(project) == [f"{KEPT}main"]
    assert git(project, "rev-parse", f"{KEPT}main^{{tree}}").strip() == after.tree
    assert baseline(project, "accept", "main", "--reason", "again") == 5
    assert "no run to accept" in capsys.readouterr().err
    assert baseline(project, "list") == 0
    assert "better" in capsys.readouterr().out


def test_a_run_against_an_older_baseline_is_not_accepted(project, capsys, monkeypatch):
    """Another person's baseline came with a pull, and the candidate is from before it."""
    store = Baselines(project / ".tfbench/baselines")
    before = store.fetch("main")
    monkeypatch.setattr("tfbench.storage.baselines.now", lambda: "2999-01-01T00:00:00+00:00")
    store.save("main", before)
    assert baseline(project, "accept", "main", "--reason", "x") == 5
    text = f"main: the last run raced the baseline of {before.saved}, and this one is of 2999-01-01T00:00:00+00:00; "
    assert text in capsys.readouterr().err
    assert store.fetch("main").accepted == ()


def test_accepting_drops_cases_only_on_request(project, capsys):
    candidates = Baselines(project / ".tfbench/candidates")
    kept = candidates.fetch("main")
    rest = {name: sample for name, sample in kept.samples.items() if name != CASE.name}
    candidates.save("main", replace(kept, samples=rest))
    assert baseline(project, "accept", "main", "--reason", "x") == 5
    assert f"not {CASE.name}" in capsys.readouterr().err
    assert baseline(project, "accept", "main", "--reason", "x", "--drop-missing") == 0


def test_removing_a_baseline_removes_its_refs(project, capsys):
    assert baseline(project, "remove", "main") == 0
    assert refs(project) == []
    assert baseline(project, "remove", "main") == 5
