"""Options of pytest-benchmark that cannot hold in a race are refused or named before anything is raced."""

import pytest

ONE = "from tests.fakes.steps import taking\n\n\ndef test_mine(bench):\n    bench(taking(bench, 5e-5))\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "--benchmark-timer=time.process_time",
            "races take wall-clock time by time.perf_counter; leave the option out",
        ),
        ("--benchmark-compare-fail=mean:5%", "give --baseline NAME or --against git:REV"),
        ("--benchmark-cprofile=cumtime", "give --profile"),
    ],
)
def test_an_option_that_changes_what_a_result_means_is_refused_in_addopts_as_well(project, option, said):
    project.write(ONE)
    (project.root / "pytest.ini").write_text(f"[pytest]\naddopts = {option}\n")
    done = project.run("--against", "self")
    assert (done.code, done.report["verdicts"], done.report["complete"]) == (4, [], False)
    (line,) = [line for line in done.output.splitlines() if line.startswith("ERROR: ")]
    assert line.startswith(f"ERROR: {option.partition('=')[0]}: ")
    assert said in line


def test_options_without_effect_are_named_before_the_first_race(project):
    project.write(ONE)
    words = ("--benchmark-min-rounds=20", "--benchmark-max-time=3", "--benchmark-warmup=on", "--benchmark-disable-gc")
    done = project.run("--against", "self", *words, "--benchmark-timer=time.perf_counter")
    assert done.code == 0, done.output
    head = done.output[: done.output.index("collected 1 item")]
    assert (
        "tfbench: without effect in a race, which --policy plans: --benchmark-disable-gc, --benchmark-max-time, "
        "--benchmark-min-rounds, --benchmark-warmup\n"
    ) in head
    assert "without effect" not in project.run("--against", "self").output


def test_benchmarks_that_runs_of_the_tests_skip_are_raced_all_the_same(project):
    project.write("def test_mine(benchmark):\n    benchmark(sum, range(1000))\n")
    (project.root / "pytest.ini").write_text("[pytest]\naddopts = --benchmark-skip\n")
    done = project.run("--against", "self")
    assert done.code == 0, done.output
    assert [row["outcome"] for row in done.report["verdicts"] if row["metric"] == "time"] == ["unchanged"]
