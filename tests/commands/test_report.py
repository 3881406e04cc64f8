"""`tfbench report` makes a page, Markdown or text from saved files of every kind, and refuses others with one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.report import complete, row
from tests.fakes.run_report import run_report, variants_report
from tests.fuzz.readers import DATA, SIDES
from tests.report.test_html_page import unpacked
from tests.storage.test_baselines import BASELINE
from tfbench import cli
from tfbench.errors import ReportError
from tfbench.report import json_format
from tfbench.report.saved import read, read_inputs, timings
from tfbench.storage.baselines import Baselines
from tfbench.suite.shards import Shard, part

ROOT = Path(__file__).parents[2]
ASV = ROOT / "tests" / "data" / "asv-result.json"
"""What asv 0.6.6 has written, with the paths of the machine replaced."""
PLAIN = DATA / "pytest_benchmark.json"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json_format.render(run_report(30)))
    return path


def refused(capsys, *words):
    assert cli.main(["report", *map(str, words)]) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    return line


def test_it_prints_the_summary_and_writes_a_page_and_markdown(saved, tmp_path, capsys):
    html, text = tmp_path / "r.html", tmp_path / "r.md"
    assert cli.main(["report", str(saved), "--html", str(html), "--markdown", str(text)]) == 0
    assert "<title>Performance report</title>" in html.read_text()
    assert text.read_text().startswith("**tfbench: regressed")
    shown = capsys.readouterr().out
    assert "regressions (2, by size above the threshold of 1.0%)" in shown
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert lines[-2:] == [f"report written: {html}", f"report written: {text}"]
    assert any(line.startswith("regressed: ") for line in lines)


@pytest.mark.parametrize("path", [ASV, PLAIN])
def test_files_of_other_tools_are_shown(path, tmp_path, capsys):
    html = tmp_path / "r.html"
    assert cli.main(["report", str(path), "--html", str(html)]) == 0
    shown = capsys.readouterr().out
    assert "\nnot gated: " in shown
    assert "policy" not in shown
    assert "threshold" not in html.read_text().partition("<main")[2].partition("<script")[0]
    rounds = [row["rounds"] for row in unpacked(html.read_text(), "case-0")]
    assert all(one["contender"]["steps"] for one in rounds)


def test_the_times_of_asv_are_read_by_case_with_their_samples():
    found, left_out = timings(json.loads(ASV.read_text().replace("Infinity", "1e9")))
    assert left_out == [
        "failed benchmarks have no times: suite.time_broken",
        "benchmarks that are no times are left out: suite.Suite.track_size, suite.peakmem_list",
    ]
    assert list(found) == [
        "suite.Suite.time_sum[10, 'a']", "suite.Suite.time_sum[10, 'b']", "suite.Suite.time_sum[100, 'a']",
        "suite.Suite.time_sum[100, 'b']", "suite.time_sort",
    ]  # fmt: skip
    assert found["suite.time_sort"] == (1.7406004189979285e-05, ((1.7406004189979285e-05,),))
    assert read(ASV).facts["processor"] == "AMD EPYC"


@pytest.mark.parametrize(
    "damage",
    [
        {"results": {}}, {"results": 3}, {"result_columns": []}, {"results": {"x.time_a": [[-1.0], []]}},
        {"results": {"x.time_a": [[1.0], [["1"] * 200] * 3]}},
    ],
)  # fmt: skip
def test_a_damaged_file_of_asv_is_refused(damage, tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**json.loads(ASV.read_text().replace("Infinity", "1e9")), **damage}))
    assert "a.json is neither a report nor a baseline" in refused(capsys, path)


def test_results_of_asv_that_are_left_out_are_named(tmp_path, capsys):
    content = json.loads(ASV.read_text().replace("Infinity", "1e9"))
    unequal = [[1.0, 2.0], [["1", "2"]], "", 0, 0, [], [], [], [], [], [], [[1.0]]]
    content["results"] |= {"x.time_a": unequal, "x.track_size": [[3.0], []]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    content["results"]["x.time_failed"] = [None, []]
    path.write_text(json.dumps(content))
    assert cli.main(["report", str(path), str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "x.time_a is left out: it has 2 results, 1 samples and 2 combinations of parameters" in shown
    assert "failed benchmarks have no times: suite.time_broken, x.time_failed" in shown
    assert "x.track_size" in shown
    assert cli.main(["report", str(path)]) == 0
    assert "x.track_size" in capsys.readouterr().out


def test_several_files_with_times_are_put_side_by_side(tmp_path, capsys):
    report, context = read_inputs([PLAIN, PLAIN])
    assert {ratio for ratios in context.versions.ratios.values() for ratio in ratios} == {1.0}
    assert "did not race each other" in context.versions.caption
    assert report.rounds or report.variant_results
    text = tmp_path / "r.md"
    assert cli.main(["report", str(ASV), str(ASV), "--markdown", str(text)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Median of each file, and relative to the first file." in shown
    assert "(1.000)" in shown
    assert "`suite.time_sort` | 17.4 µs | 17.4 µs (1.000) |" in text.read_text()


def test_files_without_a_common_case_are_refused(tmp_path, capsys):
    assert "has no case in common with" in refused(capsys, PLAIN, ASV)


def test_a_baseline_is_shown(tmp_path):
    report, context = read_inputs([Baselines(tmp_path).save("first", BASELINE)])
    assert [one.case.name for one in report.variant_results] == list(BASELINE.samples)
    assert "tfbench baseline" in context.notes[0]


def test_shards_are_merged(tmp_path):
    names = ["t.py::a", "t.py::b"]
    for index, name in enumerate(names, 1):
        shard = complete([row(name)], sides=SIDES, shard=part(Shard(index, 2), names, [name]))
        (tmp_path / f"{index}.json").write_text(json_format.render(shard))
    report, _ = read_inputs([tmp_path / "1.json", tmp_path / "2.json"])
    assert list(report.due) == names


def test_an_incomplete_a_newer_and_a_broken_report_are_refused_with_one_line(saved, tmp_path, capsys):
    saved.write_text(json_format.render(replace(run_report(3), complete=False)))
    assert refused(capsys, saved).endswith("r.json is incomplete: the run did not come to its end; measure again")
    newer = {**json.loads(saved.read_text()), "schema": "tfbench-report/2"}
    saved.write_text(json.dumps(newer))
    assert "got 'tfbench-report/2': another version of tfbench wrote it" in refused(capsys, saved)
    saved.write_text(saved.read_text()[:-9])
    assert "is not JSON" in refused(capsys, saved)
    assert "No such file" in refused(capsys, tmp_path / "none.json")


def test_no_command_of_a_stranger_is_shown(saved, capsys):
    content = json.loads(saved.read_text())
    content["sides"]["baseline"]["spec"] = "env:LD_PRELOAD=evil"
    saved.write_text(json.dumps(content))
    assert cli.main(["report", str(saved)]) == 0
    assert "LD_PRELOAD" not in capsys.readouterr().out


def test_a_run_of_variants_is_shown(tmp_path, capsys):
    path = tmp_path / "v.json"
    path.write_text(json_format.render(variants_report()))
    assert cli.main(["report", str(path)]) == 0
    assert "ratio to reference" in capsys.readouterr().out


MACHINE = {"arch": "x86_64", "cpu": "x", "machine": "m", "num_cpu": "2", "os": "Linux", "ram": "1", "version": 1}


def test_what_is_no_result_file_is_left_out_with_a_note(tmp_path, capsys):
    """`tfbench report results/MACHINE/*.json` of a project with asv names them all."""
    for name, content in {
        "machine.json": json.dumps(MACHINE),
        "old.json": json.dumps({"results": {}, "commit_hash": "1" * 40, "version": 1}),
        "broken.json": "{",
    }.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "new.json").write_text(ASV.read_text())
    names = sorted(map(str, tmp_path.iterdir()))
    assert cli.main(["report", *names]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "old.json was written by asv before 0.5" in shown
    assert "broken.json is not JSON" in shown
    assert "machine.json" not in shown
    assert "describes a machine of asv and has no results" in refused(capsys, tmp_path / "machine.json")


def test_cases_of_the_same_name_are_all_shown(tmp_path):
    content = json.loads(PLAIN.read_text())
    content["benchmarks"] = [content["benchmarks"][0]] * 3
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    name = content["benchmarks"][0]["fullname"]
    assert list(read(path).times) == [name, f"{name} (again 1)", f"{name} (again 2)"]


@pytest.mark.parametrize(
    "content",
    [{}, {"benchmarks": []}, {"benchmarks": [], "machine_info": {}}, {"tfbench": {}}, {"benchmarks": [{"stats": {}}]}],
)
def test_other_content_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(ReportError, match=r"x\.json is neither a report nor a baseline"):
        read(tmp_path / "x.json")


def test_a_benchmark_with_an_impossible_time_is_left_out(tmp_path):
    content = json.loads(PLAIN.read_text())
    content["benchmarks"].append({"fullname": "t.py::coarse", "stats": {"median": 0.0}})
    (tmp_path / "x.json").write_text(json.dumps(content))
    found = read(tmp_path / "x.json")
    assert "t.py::coarse" not in found.times
    assert found.left_out == ["t.py::coarse has a time that is not a positive number"]
