"""Reported regressions: their benchmarks, the command that finds them again, and the page that it writes."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.__main__ import CASES

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
BENCHMARKS = {
    node.name: (file, ast.get_docstring(node))
    for file in REPORTED
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


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


def test_the_forty_steps_are_benchmarks_of_the_suite():
    assert len(set(CASES)) == 40
    for case in CASES:
        file, _, test = case.partition("::")
        functions = {
            node.name: node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        arguments = [one.arg for one in functions[test.partition("[")[0]].args.args]
        assert arguments == (["bench", "variant"] if "[" in test else ["bench"]), case
