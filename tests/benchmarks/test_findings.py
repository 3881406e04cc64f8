"""Reported regressions: their benchmarks, the command that finds them again, and the page that it writes."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORTED = sorted((ROOT / "benchmarks" / "reported").glob("test_*.py"))
THREAD = re.compile(r"\b[\w.\-/]+#\d+")


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "findings" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reports = loaded("reports")
find = loaded("find")
commands = sys.modules["commands"]
BENCHMARKS = {
    node.name: (file, ast.get_docstring(node))
    for file in REPORTED
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
RATIO = {"center": 6.7, "low": 6.4, "high": 7.0, "confidence": 0.95}


def result(outcome="regressed", ratio=RATIO, causes=("op: Sum",), first_bad="3.14.1"):
    step = {"point": "3.14.1", "outcome": outcome, "reason": "why", "ratio": ratio}
    case = {"case": "w.py::w", "answer": "is not slower", "last_good": "3.15.0", "first_bad": first_bad,
            "suspects": [first_bad], "steps": [step], "changes": [], "causes": list(causes)}  # fmt: skip
    return {"command": "tfbench bisect", "wall_seconds": 1.0, "report": {"cases": [case]}}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_cites_its_thread_and_its_claim(name):
    _, docstring = BENCHMARKS[name]
    assert THREAD.search(docstring)
    assert re.search(r"\d\.\d", docstring)  # versions


def test_every_benchmark_has_a_finding_and_every_finding_a_benchmark():
    of_reported = [one for one in reports.FINDINGS if one.path == reports.REPORTED]
    for one in of_reported:
        words = one.case.split(" and ")
        assert any(f"test_{words[0]}" == name for name in BENCHMARKS), one.name
    assert {f"test_{one.case.split(' and ')[0]}" for one in of_reported} == set(BENCHMARKS)
    assert len({one.name for one in reports.FINDINGS}) == len(reports.FINDINGS)


def test_the_default_suite_leaves_out_the_reported_regressions_and_what_tools_alone_race():
    command = [sys.executable, "-m", "pytest", "--benchmark", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folders = {
        line.split("/")[1].partition("::")[0] for line in done.stdout.splitlines() if line.startswith("benchmarks/")
    }
    assert "test_linear.py" in folders
    assert not folders & {"neighbours", "reported", "unseen"}
    done = subprocess.run([*command, "benchmarks/reported"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(f"::{name}" in done.stdout for name in BENCHMARKS)


def test_the_page_has_the_recorded_results():
    page = find.PAGE.read_text()
    assert find.table(find.load()) == page.partition(find.BEGIN + "\n")[2].partition(find.END)[0]


def test_no_recorded_ratio_touches_1():
    for finding, found in find.load():
        if find.reproduced(found):
            assert find.end_of(found["race"])["ratio"]["low"] > 1, finding.name


def test_a_row_that_is_not_reproduced_says_why():
    finding = reports.FINDINGS[0]
    for race, why in (
        (result("unchanged", {**RATIO, "low": 0.99}), "not reproduced here"),
        ({"command": "c", "wall_seconds": 1.0, "failed": "resolving\nno version 9.9.9"}, "no version 9.9.9"),
        ({"command": "c", "wall_seconds": 1.0, "failed": ""}, "no output"),
    ):
        cells = find.row(finding, {"race": race})
        assert why in cells[2]
        assert cells[3] == ""


def test_a_reproduced_row_names_ratio_release_and_cause():
    cells = find.row(reports.FINDINGS[0], {"race": result(), "fix": result(first_bad="2.15.1")})
    assert cells[2:6] == ["6.70 (6.40 to 7.00)", "up to 3.14.1", "time", "op: Sum"]
    assert cells[7] == "in 3.15.0"


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(find, "DATA", tmp_path / "data.jsonl")
    monkeypatch.setattr(find, "FINDINGS", reports.FINDINGS[:3])
    monkeypatch.setattr(find, "measure", lambda one: measured.append(one.name) or {"name": one.name, "race": result()})
    commands.Records(find.DATA).write(reports.FINDINGS[0].name, {"race": result()})
    find.main([])
    assert measured == [one.name for one in reports.FINDINGS[1:3]]
    find.main([])
    assert len(measured) == 2
    find.main(["--only", reports.FINDINGS[0].name])
    assert measured[2:] == [reports.FINDINGS[0].name]
    assert "6.70 (6.40 to 7.00)" in capsys.readouterr().out


def test_a_command_that_fails_is_a_result(monkeypatch, capsys):
    def run(words, **settings):
        return subprocess.CompletedProcess(words, 5, "", "tensorflow has no version 9.9.9")

    monkeypatch.setattr(subprocess, "run", run)
    found = find.measure(reports.FINDINGS[0])
    assert found["race"]["failed"] == "tensorflow has no version 9.9.9"
    assert "tfbench bisect --good tensorflow==2.21.0+keras==3.15.0" in capsys.readouterr().out


# The survey of the suite

survey = loaded("survey")


def surveyed(*ratios):
    sides = ["2.16.2", "2.17.1", "2.18.1", "2.19.1"]
    entries = [None if one is None else {"center": one, "low": one * 0.98, "high": one * 1.02} for one in ratios]
    cells = [{"why": "broke"} if entry is None else {"ratio": entry} for entry in entries]
    row = {"case": "w.py::w", "sides": dict(zip(sides, [{"ratio": None}, *cells], strict=True))}
    return list(survey.slower({"sides": dict.fromkeys(sides), "reference": sides[0], "cases": [row]}))


def test_a_release_that_is_slower_than_the_one_before_is_listed():
    (one,) = surveyed(1.0, 1.5, 1.5)
    assert (one.before, one.release, one.ratio) == ("2.17.1", "2.18.1", 1.5)
    assert one.low < one.ratio
    (mended,) = surveyed(1.3, 1.3, 1.0)
    assert (mended.before, mended.release) == ("2.16.2", "2.17.1")


def test_small_uncertain_and_broken_steps_are_not_listed():
    assert surveyed(1.05, 1.1, 1.15) == []
    assert surveyed(1.0, None, 1.5) == []
    assert surveyed(0.5, 0.5, 0.5) == []


def test_surveys_are_lists_of_releases_in_order():
    for _, releases, files in survey.SURVEYS.values():
        versions = [find.Version(one.rpartition("==")[2]) for one in releases]
        assert versions == sorted(versions)
        assert set(files) <= {path.stem for path in (ROOT / "benchmarks").glob("test_*.py")}


def test_a_case_that_the_bisection_found_not_to_be_slower_is_named_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "DATA", tmp_path)
    keras = "tensorflow==2.19.1+keras==3.15.0"
    one = {"case": "w.py::test_a", "release": keras, "ratio": 1.5}
    refuted, slower = (
        {"answered": True, "first_bad": None},
        {"answered": True, "first_bad": "3.15.0", "causes": ["op: Sum"]},
    )
    slower["steps"] = [{"point": "3.15.0", "ratio": {"center": 1.5, "low": 1.4, "high": 1.6}}]
    for found, shown in (
        (refuted, "when it was raced again to bisect it: `test_a` (Keras 3.15.0)."),
        (slower, "| `test_a` | Keras 3.15.0 | 1.50 (1.40 to 1.60) | op: Sum |"),
    ):
        content = {"slower": [{**one, "bisect": {"report": {"cases": [found]}}}]}
        survey.recorded("keras").write("w", content)
        assert shown in survey.table()


def test_cases_of_the_same_releases_are_bisected_by_one_command(monkeypatch):
    commands = []

    def run(*words, **settings):
        commands.append(words)
        return {"command": "", "report": {"cases": [{"case": word} for word in words if word in "abc"]}}

    monkeypatch.setattr(survey, "run", run)
    cases = [
        survey.Slower(name, before, f"{before}.1", 1.5, 1.4) for name, before in (("a", "1"), ("b", "2"), ("c", "1"))
    ]
    found = survey.bisect(cases)
    assert [found[one]["report"]["cases"] for one in cases] == [[{"case": name}] for name in "abc"]
    assert [command[5:-3] for command in commands] == [("a", "c"), ("b",)]


def test_a_bisection_that_failed_is_tried_again_and_the_rest_is_kept(monkeypatch):
    monkeypatch.setattr(survey, "bisect", lambda cases: {one: {"report": one.case} for one in cases})
    fields = {"before": "2.17.1", "release": "2.18.1", "ratio": 1.5, "low": 1.4}
    found = {"slower": [{"case": "a", **fields, "bisect": {"failed": ""}}, {"case": "b", **fields, "bisect": {}}]}
    assert [one["bisect"] for one in survey.again(found)["slower"]] == [{"report": "a"}, {}]
    assert survey.again({"failed": "no network"}) == {"failed": "no network"}
