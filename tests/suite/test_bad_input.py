"""Whatever is wrong is said in a line that names the cure, and the rest of the suite goes on."""

import pytest

FINE = """
    def test_fine(bench):
        bench(sum, range(500))
"""


def broken(project, text):
    """Run this benchmark beside a fine one; the broken one fails and the fine one passes."""
    project.write(text)
    project.write(FINE, "benchmarks/test_fine.py")
    done = project.run()
    assert done.code == 1, done.output
    assert done.outcomes()["test_fine"] == "new", done.output
    assert done.outcomes()["test_mine"] == "error"
    return done


def test_a_benchmark_that_raises(project):
    done = broken(project, "def test_mine(bench):\n    raise ValueError('the reason')\n")
    assert "ValueError: the reason" in done.reason("test_mine")
    assert "test_mine.py:2" in done.output


def test_a_step_that_raises(project):
    done = broken(project, "def test_mine(bench):\n    bench(lambda: 1 / 0)\n")
    assert "division by zero" in done.reason("test_mine")


def test_a_step_that_returns_nothing(project):
    done = broken(project, "def test_mine(bench):\n    bench(lambda: None)\n")
    assert "returned nothing" in done.reason("test_mine")


def test_a_benchmark_that_never_calls_bench(project):
    assert "never called bench" in broken(project, "def test_mine(bench):\n    pass\n").reason("test_mine")


def test_bench_called_twice(project):
    done = broken(project, "def test_mine(bench):\n    bench(sum, [1])\n    bench(sum, [1])\n")
    assert "bench was called twice" in done.reason("test_mine")


@pytest.mark.parametrize(
    ("call", "what"), [("bench(3)", "must be a function"), ("bench(sum, [1], flop=3)", "no keyword 'flop'"),
                       ("bench(sum, [1], flops=float('nan'))", "must be a positive number")],
)  # fmt: skip
def test_wrong_arguments_of_bench(project, call, what):
    assert what in broken(project, f"def test_mine(bench):\n    {call}\n").reason("test_mine")


def test_a_check_that_fails_after_the_measuring(project):
    done = broken(project, "def test_mine(bench):\n    bench(sum, [1])\n    assert 1 == 2, 'wrong result'\n")
    assert "after it had been timed" in done.reason("test_mine")
    assert "wrong result" in done.output


def test_a_worker_that_dies_by_a_signal(project):
    done = broken(
        project,
        """
        import os, signal

        def test_mine(bench):
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )
    assert "SIGSEGV" in done.reason("test_mine")
    assert "last words" in done.output


def test_a_worker_that_dies_in_the_middle_of_its_rounds(project):
    done = broken(
        project,
        """
        import os, time

        START = []

        def step():
            START.append(1)
            if len(START) > 4000:
                os._exit(3)
            return sum(range(2000))

        def test_mine(bench):
            bench(step)
        """,
    )
    assert "exit code 3" in done.reason("test_mine")


def test_a_worker_that_hangs_is_killed(project, monkeypatch):
    project.write(
        """
        import time

        def test_mine(bench):
            print("waiting", flush=True)
            time.sleep(1000)
        """
    )
    project.write(FINE, "benchmarks/test_fine.py")
    project.write(
        """
        import dataclasses
        from tfbench import policy

        policy.PRESETS["quick"] = dataclasses.replace(policy.PRESETS["quick"], setup_seconds=1.0)
        """,
        "conftest.py",
    )
    done = project.run()
    assert done.outcomes() == {"test_fine": "new", "test_mine": "error"}, done.output
    assert "did not answer within 1 s" in done.reason("test_mine")
    assert "waiting" in done.output


def test_a_case_that_breaks_on_one_side_only(project):
    project.write(
        """
        import os

        def test_mine(bench):
            assert "BREAK" not in os.environ
            bench(sum, [1])
        """
    )
    done = project.run("--against", "env:BREAK=1")
    assert (done.code, done.outcomes()) == (1, {"test_mine": "error"})
    assert "on the baseline side" in done.reason("test_mine")


def test_a_level_that_cannot_run_is_skipped_with_its_reason(project):
    project.write(
        """
        from tfbench import Axis, Level, across

        @across(Axis("device", Level("cpu"), Level("gpu", requires=lambda: "no GPU: buy one")))
        def test_mine(bench, variant):
            bench(sum, [1])
        """
    )
    done = project.run("-rs")
    assert done.code == 0
    assert "1 passed, 1 skipped" in done.output
    assert done.report["skipped"] == [
        {"case": "benchmarks/test_mine.py::test_mine[device=gpu]", "reason": "no GPU: buy one"}
    ]
    only = project.run("--device", "cpu")
    assert "1 passed, 1 deselected" in only.output


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--baseline", "nope"], "there are: none yet; save one with --save-baseline"),
        (["--baseline", "../x"], "cannot name a baseline"),
        (["--save-baseline", "a/b"], "cannot name a baseline"),
        (["--policy", "lax"], "no policy named 'lax'; there are quick, standard, strict"),
        (["--device", "tpu"], "choose from cpu, gpu, all"),
        (["--replay", "some"], "choose from all, never"),
        (["--against", "selfish"], "not understood"),
        (["--against", "self", "--baseline", "x"], "give one of them"),
        (["--inject-slowdown", "0.1"], "give --against self"),
        (["--against", "self", "--inject-slowdown", "-3"], "fraction from 0 to 10"),
        (["--cpus", "banana"], "write processors like 0,2-3"),
        (["--against", "git:HEAD"], "not in a git checkout"),
        (["--against", "python:/nowhere"], "no interpreter"),
    ],
)
def test_option_values_that_cannot_be_used(project, options, what):
    project.write(FINE)
    done = project.run(*options)
    assert done.code == 4, done.output
    assert what in done.output
    assert "Traceback" not in done.output


def test_a_corrupt_baseline_is_named_and_left_alone(project):
    project.write(FINE)
    path = project.root / ".tfbench/baselines/first.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"half": ')
    gated = project.run("--baseline", "first")
    assert gated.code == 4
    assert "first.json is not a baseline" in gated.output
    saved = project.run("--save-baseline", "first")
    assert saved.code == 1
    assert "first.json is not a baseline" in saved.output
    assert path.read_text() == '{"half": '


def test_a_module_that_cannot_be_imported_is_an_error_of_its_own(project):
    project.write("import no_such_module\n", "benchmarks/test_broken.py")
    project.write(FINE)
    done = project.run("--continue-on-collection-errors")
    assert done.code == 1
    assert done.outcomes() == {"test_fine": "new"}
    assert "no_such_module" in done.output


def test_ctrl_c_ends_the_workers_and_keeps_what_was_measured(project):
    project.write(
        """
        import os, pathlib

        def test_first(bench):
            bench(sum, range(500))

        def test_second(bench):
            pathlib.Path("pid").write_text(str(os.getpid()))
            os.rename("pid", "started")
            bench(sum, range(500))
        """
    )
    done = project.interrupted("started", "--save-baseline", "first")
    assert done.code == 2, done.output
    assert done.report["interrupted"] is True
    assert done.outcomes() == {"test_first": "new"}
    assert "was not saved" in done.output
    assert not (project.root / ".tfbench/baselines/first.json").exists()
    pid = int((project.root / "started").read_text())
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(pid, 0)


def test_xdist_is_refused_where_it_is_installed(project):
    project.write(FINE)
    project.write(
        "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'dsession')\n", "conftest.py"
    )
    done = project.run()
    assert done.code in (0, 4)
