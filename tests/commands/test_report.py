"""`tfbench report` makes a page, Markdown or text from saved files of every kind, and refuses others with one line."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.fakes.report import complete, row
from tests.fakes.run_report import run_report
from tests.fuzz.readers import DATA, SIDES
from tests.report.test_html_page import unpacked
from tfbench import cli
from tfbench.report import json_format, markdown
from tfbench.report.saved import read, read_inputs, timings
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
    content["results"]["x.time_failed"] = [None, []]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    assert cli.main(["report", str(path), str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "x.time_a is left out: it has 2 results, 1 samples and 2 combinations of parameters" in shown
    assert "failed benchmarks have no times: suite.time_broken, x.time_failed" in shown
    assert "x.track_size" in shown


def test_several_files_with_times_are_put_side_by_side(tmp_path, capsys):
    report, table, _ = read_inputs([PLAIN, PLAIN])
    assert {ratio for ratios in table.ratios.values() for ratio in ratios} == {1.0}
    assert "did not race each other" in table.caption
    assert report.rounds or report.variant_results
    text = tmp_path / "r.md"
    assert cli.main(["report", str(ASV), str(ASV), "--markdown", str(text)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Median of each file, and relative to the first file." in shown
    assert "(1.000)" in shown
    assert "`suite.time_sort` | 17.4 µs | 17.4 µs \\(1.000\\) |" in text.read_text()


def test_shards_are_merged(tmp_path):
    names = ["t.py::a", "t.py::b"]
    for index, name in enumerate(names, 1):
        shard = complete([row(name)], sides=SIDES, shard=part(Shard(index, 2), names, [name]))
        (tmp_path / f"{index}.json").write_text(json_format.render(shard))
    report, *_ = read_inputs([tmp_path / "1.json", tmp_path / "2.json"])
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
    for content in ({}, {"benchmarks": []}, {"benchmarks": [], "machine_info": {}}, {"benchmarks": [{"stats": {}}]}):
        saved.write_text(json.dumps(content))
        assert "r.json is neither a report nor a baseline" in refused(capsys, saved)
    assert "has no case in common with" in refused(capsys, PLAIN, ASV)


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
    assert "old.json is neither a report nor a baseline" in shown
    assert "broken.json is not JSON" in shown
    assert "machine.json is neither a report nor a baseline" in shown


def test_cases_of_the_same_name_are_all_shown_and_one_with_an_impossible_time_is_left_out(tmp_path):
    content = json.loads(PLAIN.read_text())
    name = content["benchmarks"][0]["fullname"]
    content["benchmarks"] = [content["benchmarks"][0]] * 3 + [{"fullname": "t.py::coarse", "stats": {"median": 0.0}}]
    (tmp_path / "p.json").write_text(json.dumps(content))
    found = read(tmp_path / "p.json")
    assert list(found.times) == [name, f"{name} (again 1)", f"{name} (again 2)"]
    assert found.left_out == ["t.py::coarse has a time that is not a positive number"]


def test_the_date_in_a_file_of_a_stranger_is_no_markup_in_a_table_of_many(tmp_path):
    content = json.loads(PLAIN.read_text())
    for number in range(9):
        content["datetime"] = f"2020-01-0{number} @everyone <b>{'x' * 9999}"
        content["benchmarks"][0]["stats"] |= {"median": 1.0 + (number > 4), "data": []}
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    _, table, notes = read_inputs(sorted(tmp_path.iterdir()))
    assert max(map(len, notes)) < 600
    made = markdown.side_by_side(table)
    assert "\\-05 @" in made
    assert "@everyone" not in made
    assert "<b>" not in made


def of_asv(folder, number, machine="m", python="3.11", factor=1.0, cases=3, failed=()):
    """Write a file of asv about the commit of a day."""
    content = json.loads(ASV.read_text().replace("Infinity", "1e9"))
    columns = content["result_columns"]
    results = {}
    for case in range(cases):
        row = dict.fromkeys(columns)
        row |= {
            "result": None if case in failed else [1e-3 * (case + 1) * (factor if case == 1 else 1.0)],
            "params": [],
        }
        results[f"suite.time_{case}"] = [row[column] for column in columns]
    day = datetime(2020, 1, 1, tzinfo=timezone.utc) + timedelta(days=number)
    content |= {
        "results": results, "commit_hash": f"{number:02x}" * 20, "date": int(day.timestamp() * 1000),
        "env_name": f"virtualenv-py{python}", "python": python, "params": {**content["params"], "machine": machine},
    }  # fmt: skip
    path = folder / f"{(number * 7919) % 10007:05}-{machine}-{python}.json"  # no order of dates
    path.write_text(json.dumps(content))
    return path


def test_many_files_of_asv_are_shown_by_date_with_their_newest_times_and_changes(tmp_path, capsys):
    for number in range(30):
        for machine, python in (("m1", "3.11"), ("m1", "3.12"), ("m2", "3.11")):
            slower = 1.4 if machine == "m1" and python == "3.12" and number >= 20 else 1.0
            of_asv(tmp_path, number, machine, python, slower, failed=[2] if number == 7 else ())
    of_asv(tmp_path, 30, "m2", "3.11", failed=[0, 1, 2])
    text, page = tmp_path / "r.md", tmp_path / "r.html"
    files = sorted(map(str, tmp_path.glob("*.json")))
    assert cli.main(["report", *files, "--markdown", str(text), "--html", str(page)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    first = next(line for line in text.read_text().splitlines() if "time" in line and "suite" in line)
    assert first == (
        "| `suite.time_1 (m1, virtualenv-py3.12)` | 2.00 ms | 2.80 ms \\(1.400\\) | 2.80 ms \\(1.400\\) "
        "| 1.40x at 2020\\-01\\-21 00:00 14141414 |"
    )
    assert text.read_text().count("x at 2020") == 1
    assert "91 files, from 2020-01-01 00:00 00000000 to 2020-01-31 00:00 1e1e1e1e" in shown
    assert "30 files of m1, virtualenv-py3.12" in shown
    assert "left out in 3 files: failed benchmarks have no times: suite.time_2" in shown
    assert "left out in 1 file: failed benchmarks have no times: suite.time_0, suite.time_1, suite.time_2" in shown
    assert page.stat().st_size < 5 << 20


def test_a_table_of_many_cases_is_cut_on_a_terminal_and_in_markdown(tmp_path, capsys):
    files = [str(of_asv(tmp_path, number, cases=2000)) for number in range(9)]
    text = tmp_path / "r.md"
    assert cli.main(["report", *files, "--markdown", str(text)]) == 0
    assert len(text.read_text()) <= markdown.LONGEST
    assert "more cases: --html has all" in text.read_text()
    assert "and 1,940 more cases: --html has all" in capsys.readouterr().out
