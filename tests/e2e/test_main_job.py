"""The main job from end to end: real processes without TensorFlow, with scripted times for certain outcomes."""

import json
from textwrap import indent

import pytest

from tests.e2e.project import Project
from tfbench import cli

STEPS = """
    from tfbench import Axis, Level, across

    SIZE = Axis("size", Level("small", amount=lambda: 300), Level("large", amount=lambda: 900))

    @across(SIZE)
    def test_sum(bench, variant):
        bench(sum, list(range(variant.amount())), items=variant.amount())
"""
ALONE = """
    from tests.fakes.steps import taking

    def test_mine(bench):
        bench(taking(bench, 5e-5))
"""

MEASURED = "SECONDS = {}\n"
"""The code of the project, which each side has for itself."""
CALLING = """
    from measured import SECONDS
    from tests.fakes.steps import taking

    def test_mine(bench):
        bench(taking(bench, SECONDS))
"""

ADDED = """
    def test_added(bench):
        bench(sum, list(range(500)))
"""


def test_variants_race_each_other(project):
    project.write(STEPS)
    done = project.run(f"--benchmark-json={project.root}/pb.json")
    assert done.code == 0, done.output
    reference, large = done.report["variant_results"]
    assert "ratio" not in reference
    assert reference["case"] == large["reference"] == "benchmarks/test_mine.py::test_sum[size=small]"
    assert 2 < large["ratio"]["center"] < 5
    assert "test_sum" in done.output
    assert "items/s" in done.output

    saved = json.loads((project.root / "pb.json").read_text())["benchmarks"]
    assert [row["params"] for row in saved] == [{"size": "small"}, {"size": "large"}]
    assert len(saved[0]["stats"]["data"]) == reference["rounds"]


def test_pytest_benchmark_tests_keep_working_and_other_tests_are_left_out(project):
    project.write(ALONE + "\n    @__import__('pytest').mark.parametrize('size', [300])\n    def test_size(bench, size):\n"
                  "        bench(sum, list(range(size)))\n")  # fmt: skip
    project.write("def test_plain(benchmark):\n    assert benchmark(sum, [1, 2]) == 3\n", "benchmarks/test_plain.py")
    project.write("def test_other():\n    raise AssertionError\n", "benchmarks/test_other.py")
    done = project.run()
    assert done.code == 0, done.output
    assert "3 passed, 1 deselected" in done.output
    assert done.outcomes() == {"test_mine": "new", "test_size[300]": "new"}
    assert "not used at all" not in project.run("--benchmark-disable").output


def test_a_race_against_itself_is_unchanged_and_a_slowdown_is_detected(project):
    project.write(ALONE)
    same = project.run("--against", "self")
    assert (same.code, same.outcomes()) == (0, {"test_mine": "unchanged"}), same.output
    slower = project.run("--against", "self", "--inject-slowdown", "1.5")
    assert (slower.code, slower.outcomes()) == (1, {"test_mine": "regressed"}), slower.output
    assert "regressed: " in slower.output
    assert "found twice" in slower.reason("test_mine")
    row = slower.report["verdicts"][0]
    assert slower.report["schema"] == "tfbench-report/1"
    assert row["ratio"]["low"] > 1.03
    assert set(slower.report["sides"]) == {"baseline", "contender"}


@pytest.mark.alone
def test_with_real_clocks_and_the_whole_policy_a_slowdown_is_detected(tmp_path):
    project = Project(tmp_path, full=True)
    project.write("from zlib import crc32\n\n\ndef test_mine(bench):\n    bench(crc32, bytes(50_000))\n")
    slower = project.run("--against", "self", "--inject-slowdown", "0.25")
    assert (slower.code, slower.outcomes()) == (1, {"test_mine": "regressed"}), slower.output
    assert 1.15 < slower.report["verdicts"][0]["ratio"]["center"] < 1.4


def checkout(project):
    project.git("init", "-q")
    project.write("report.json\n__pycache__\n", ".gitignore")
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write(MEASURED.format(5e-5), "measured.py")
    project.write(CALLING)


def test_a_baseline_gates_even_after_the_code_has_changed(project):
    checkout(project)
    first = project.run("--save-baseline", "first")
    assert first.code == 0, first.output

    project.write(MEASURED.format(1e-4), "measured.py")
    project.write(CALLING + ADDED)
    slower = project.run("--baseline", "first", "--save-baseline", "second")
    assert slower.outcomes() == {"test_mine": "regressed", "test_added": "new"}, slower.output
    assert "as the run has no baseline" not in str(slower.report)
    assert slower.code == 1
    assert "was not saved" in slower.output
    assert not (project.root / ".tfbench/baselines/second.json").exists()

    assert "tfbench baseline accept first" in slower.output
    assert cli.main(["baseline", "--root", str(project.root), "accept", "first", "--reason", "it is meant"]) == 0
    project.write(ADDED)
    gone = project.run("--baseline", "first", "--strict-gate")
    assert (gone.code, gone.outcomes()["test_mine"]) == (1, "missing")
    assert gone.outcomes()["test_added"] != "new"  # it came with what was accepted
    assert "missing" in gone.output


@pytest.mark.slow
def test_only_a_run_of_the_whole_baseline_offers_to_update_it(project):
    checkout(project)
    project.write(CALLING + benchmark("test_other", 5e-5, 4))
    assert project.run("--save-baseline", "first").code == 0
    project.write(MEASURED.format(1e-4), "measured.py")
    part = project.run("--baseline", "first", "-k", "not test_other")
    assert "baseline accept" not in part.output
    assert (
        "run without -k to be able to update the baseline 'first': this run did not measure 1 of its cases"
        in part.output
    )
    project.write(CALLING)
    without = project.run("--baseline", "first")
    assert "tfbench baseline accept first --reason '…' --drop-missing" in without.output


def test_saved_times_without_a_race_pass_no_case(project):
    project.write(ALONE)
    assert project.run("--save-baseline", "first").code == 0
    lax = project.run("--baseline", "first", "--replay", "never")
    assert (lax.code, lax.outcomes()) == (1, {"test_mine": "inconclusive"})
    assert "not raced: its fastest call took" in lax.reason("test_mine")
    assert "race it with --replay all" in lax.reason("test_mine")
    side = lax.report["sides"]["baseline"]  # it has no git, so the run that saved it stands for its code
    assert side["spec"].startswith("baseline 'first' of ")
    assert side["tree"].startswith("session:2")
    assert lax.report["sides"]["contender"]["tree"].startswith("sources:")
    assert "1 skipped" in lax.output
    # A case that cannot be raced says why.
    unmade = project.run("--baseline", "first", "--strict-gate")
    assert (unmade.code, unmade.outcomes()) == (1, {"test_mine": "inconclusive"})
    assert "outside version control" in unmade.reason("test_mine")

    path = project.root / ".tfbench/baselines/first.json"
    content = json.loads(path.read_text())
    content["tfbench"]["context"]["environment"]["packages"]["tensorflow"] = "2.20.0"
    path.write_text(json.dumps(content))
    elsewhere = project.run("--baseline", "first")
    assert elsewhere.outcomes() == {"test_mine": "incomparable"}
    assert "tensorflow 2.20.0 there" in elsewhere.reason("test_mine")


@pytest.mark.slow
def test_a_baseline_is_raced_with_its_own_packages_and_settings(project):
    checkout(project)
    project.write(
        """
        import os
        from tests.fakes.steps import taking

        def test_mine(bench):
            bench(taking(bench, float(os.environ.get("TF_AMOUNT", "5e-5"))))
        """
    )
    assert project.run("--save-baseline", "first").code == 0
    path = project.root / ".tfbench/baselines/first.json"
    content = json.loads(path.read_text())
    environment = content["tfbench"]["context"]["environment"]
    environment["packages"] = {"numpy": "2.1.3" if environment["packages"]["numpy"] != "2.1.3" else "2.1.2"}
    environment["settings"] = {"TF_AMOUNT": "2e-4"}
    path.write_text(json.dumps(content))
    done = project.run("--baseline", "first")
    assert done.outcomes() == {"test_mine": "improved"}, done.output
    made = done.report["sides"]["baseline"]
    assert made["packages"] == environment["packages"]
    assert made["settings"] == environment["settings"]
    assert "differs: numpy: " in done.output

    environment["packages"] = {"numpy": "2.0.99"}
    path.write_text(json.dumps(content))
    unmade = project.run("--baseline", "first")
    assert unmade.outcomes() == {"test_mine": "incomparable"}, unmade.output
    assert "its environment cannot be recreated: numpy==2.0.99" in unmade.reason("test_mine")


@pytest.mark.parametrize("named", [(), ("benchmarks/sub", "benchmarks/test_mended.py", "benchmarks/test_mine.py")])
def test_a_file_that_cannot_be_imported_in_the_commit_makes_its_cases_alone_incomparable(project, named):
    project.write(ALONE)
    project.write("import not_yet\n" + benchmark("test_mended", 5e-5), "benchmarks/test_mended.py")
    (project.root / "benchmarks/sub").mkdir()
    project.write("import not_yet\n", "benchmarks/sub/conftest.py")
    project.write(benchmark("test_below", 5e-5), "benchmarks/sub/test_below.py")
    project.commit("broken")
    project.write("", "not_yet.py")
    done = project.run("--against", "git:HEAD", *named)
    apart = {"test_mended": "incomparable", "test_below": "incomparable"}
    assert done.outcomes() == {"test_mine": "unchanged"} | apart, done.output
    cause = "cannot be imported on the side baseline: ModuleNotFoundError: No module named 'not_yet'"
    assert f"conftest.py {cause}" in done.reason("test_below")
    assert f"test_mended.py {cause}" in done.reason("test_mended")


def benchmark(name, seconds, indented=0):
    text = f"from tests.fakes.steps import taking\n\n\ndef {name}(bench):\n    bench(taking(bench, {seconds}))\n\n\n"
    return indent(text, " " * indented)


@pytest.mark.slow
def test_new_deleted_renamed_and_moved_benchmarks_are_matched_with_a_commit(project):
    before = {"test_mine": 50e-6, "test_old": 51e-6, "test_changing": 52e-6, "test_deleted": 53e-6}
    project.write("".join(benchmark(*one) for one in before.items()))
    project.write(benchmark("test_moving", 53e-6), "benchmarks/test_before.py")
    project.commit("before")
    project.write(benchmark("test_mine", 50e-6) + benchmark("test_changed", 52.1e-6))
    project.write(benchmark("test_called_otherwise", 51e-6), "benchmarks/test_new_file.py")
    (project.root / "benchmarks/test_before.py").rename(project.root / "benchmarks/test_after.py")
    done = project.run("--against", "git:HEAD")
    outcomes = done.outcomes()
    compared = {name for name, outcome in outcomes.items() if outcome in ("unchanged", "inconclusive")}
    # All four, also the one of another name and other code, since both sides run the benchmarks of today.
    assert compared == {"test_mine", "test_moving", "test_called_otherwise", "test_changed"}, done.output
    assert {name for name, outcome in outcomes.items() if outcome == "missing"} == {"test_changing", "test_deleted"}
    assert "was it deleted" in done.reason("test_deleted")
    assert done.metrics("test_moving").get("probes") is None
    assert cli.main(["gate", str(project.root / "report.json")]) == 4

    chosen = project.run("--against", "git:HEAD", "benchmarks/test_mine.py::test_mine")
    assert set(chosen.outcomes()) == {"test_mine"}, chosen.output


@pytest.mark.parametrize("named", ["src", "{root}/src"])
def test_a_package_of_the_repository_is_imported_from_its_commit(project, monkeypatch, named):
    """The package is in PYTHONPATH, as in an editable installation, or next to the benchmarks."""
    (project.root / "src").mkdir()
    project.write("AMOUNT = 2e-4\n", "src/mine.py")
    project.write(ALONE.replace("from tests", "from mine import AMOUNT\n    from tests").replace("5e-5", "AMOUNT"))
    project.commit("slow")
    project.write("AMOUNT = 5e-5\n", "src/mine.py")
    clean = project.environment()
    monkeypatch.setattr(
        project,
        "environment",
        lambda: {**clean, "PYTHONPATH": f"{clean['PYTHONPATH']}:{named.format(root=project.root)}"},
    )
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_mine": "improved"}, done.output
