"""Result files of every kind, including real ones of pytest-benchmark."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.report.test_json_reader import REPORT
from tests.storage.test_baselines import BASELINE, CASE
from tfbench.compare import differences, of_content, of_report
from tfbench.errors import ReportError
from tfbench.storage.baselines import Baselines


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Files of pytest-benchmark, with raw times and without."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "test_plain.py").write_text("def test_sum(benchmark):\n    benchmark(sum, [1, 2])\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}"]
    quick = ["--benchmark-max-time=0.02", "--benchmark-min-rounds=20", "test_plain.py"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    for more in (["--benchmark-json=raw.json"], ["--benchmark-save=bare", "--benchmark-storage=bare"]):
        subprocess.run([*command, *quick, *more], cwd=folder, check=True, capture_output=True, env=env)
    (bare,) = folder.glob("bare/**/*.json")
    return json.loads((folder / "raw.json").read_text()), json.loads(bare.read_text())


def test_a_plain_file_can_have_raw_times(plain):
    found = of_content("raw.json", plain[0])
    assert found.kind == "pytest-benchmark, with raw times"
    (times,) = found.times.values()
    assert len(times.launches) == 1
    assert len(times.launches[0]) == plain[0]["benchmarks"][0]["stats"]["rounds"]
    assert found.machine["system"]


def test_a_plain_file_can_lack_raw_times(plain):
    found = of_content("bare.json", plain[1])
    assert found.kind == "pytest-benchmark, statistics only"
    assert next(iter(found.times.values())).launches == ()


def test_files_of_the_same_machine_have_no_differences(plain):
    assert not list(differences(of_content("a", plain[0]), of_content("b", plain[1])))


def with_machine(content, **facts):
    return of_content("b", {**content, "machine_info": {**content["machine_info"], **facts}})


def test_another_minor_version_of_python_is_another_environment(plain):
    found = differences(of_content("a", plain[0]), with_machine(plain[0], python_version="3.9.0"))
    (difference,) = found.environment
    assert difference.startswith("Python ")
    assert difference.endswith("3.9.0 in the second")
    assert found.incomparable == f"the files are from different environments: {difference}"


def test_another_patch_version_of_python_stays_comparable(plain):
    first = with_machine(plain[0], python_version="3.11.8")
    found = differences(first, with_machine(plain[0], python_version="3.11.9"))
    assert found.patch == ["Python 3.11.8 in the first, 3.11.9 in the second"]
    assert not found.incomparable


def test_another_system_is_another_machine(plain):
    found = differences(of_content("a", plain[0]), with_machine(plain[0], system="Plan 9"))
    assert found.incomparable.startswith("the files are from different machines: system ")


def test_a_baseline_has_raw_times_and_packages(tmp_path):
    path = Baselines(tmp_path).save("first", BASELINE)
    found = of_content(str(path), json.loads(path.read_text()))
    assert [len(launch) for launch in found.times[CASE.name].launches] == [2, 1]
    assert found.environment == {"tensorflow": "2.21.0"}
    assert found.kind == "tfbench baseline, with raw times"


def test_a_package_that_one_side_lacks_is_a_difference(tmp_path):
    path = Baselines(tmp_path).save("first", BASELINE)
    content = json.loads(path.read_text())
    content["tfbench"]["context"]["environment"]["packages"] = {"tensorflow-cpu": "2.20.0"}
    found = differences(of_content("a", json.loads(path.read_text())), of_content("b", content))
    assert list(found) == [
        "tensorflow 2.21.0 in the first, absent in the second",
        "tensorflow-cpu absent in the first, 2.20.0 in the second",
    ]


def test_a_package_that_reports_do_not_list_is_no_difference(tmp_path):
    path = Baselines(tmp_path).save("first", BASELINE)
    content = json.loads(path.read_text())
    content["tfbench"]["context"]["environment"]["packages"] = {"tensorflow-cpu": "2.21.0", "rich": "14.0.0"}
    report = of_report("r.json", replace(REPORT, sides={"contender": {"packages": {"tensorflow-cpu": "2.21.0"}}}))
    assert not differences(of_content("a", content), report).environment
    report = of_report("r.json", replace(REPORT, sides={"contender": {"packages": {"tensorflow-cpu": "2.20.0"}}}))
    assert differences(report, of_content("a", content)).environment == [
        "tensorflow-cpu 2.20.0 in the first, 2.21.0 in the second"
    ]


def test_a_report_has_medians():
    found = of_report("r.json", REPORT)
    assert found.times[CASE.name].median == 1e-5
    assert found.report is REPORT


@pytest.mark.parametrize(
    "content",
    [{}, {"benchmarks": []}, {"benchmarks": [], "machine_info": {}}, {"tfbench": {}}, {"benchmarks": [{"stats": {}}]}],
)
def test_other_content_is_refused(content):
    with pytest.raises(ReportError, match=r"x\.json is neither a report nor a baseline"):
        of_content("x.json", content)


def test_an_impossible_time_is_refused(plain):
    broken = json.loads(json.dumps(plain[0]))
    broken["benchmarks"][0]["stats"]["data"][0] = -1
    with pytest.raises(ReportError, match="a time that is not a positive number"):
        of_content("x.json", broken)


def test_a_benchmark_with_an_impossible_time_is_left_out(plain):
    mixed = json.loads(json.dumps(plain[0]))
    mixed["benchmarks"].append({"fullname": "t.py::coarse", "stats": {"median": 0.0}})
    found = of_content("x.json", mixed)
    assert "t.py::coarse" not in found.times
    assert found.left_out == ["t.py::coarse has a time that is not a positive number"]
