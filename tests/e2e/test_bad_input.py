"""Every mistake is reported in one line with its fix, and the rest of the suite goes on."""

import os
import signal

import pytest

from tests.e2e.project import Project

FINE = """
    def test_fine(bench):
        bench(sum, range(500))
"""


BROKEN = {
    "raises": ("print('own words'); raise ValueError('the reason')", "ValueError: the reason"),
    "step_raises": ("bench(lambda: 1 / 0)", "division by zero"),
    "returns_nothing": ("bench(lambda: None)", "returned None"),
    "never_calls": ("pass", "never called bench"),
    "calls_twice": ("bench(sum, [1]); bench(sum, [1])", "bench was called twice"),
    "no_function": ("bench(3)", "must be a function"),
    "fails_afterwards": ("bench(sum, [1]); assert 1 == 2, 'wrong result'", "after it had been timed"),
    "dies": ("print('last words', flush=True); os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "leaks_files": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); bench(lambda: KEPT.append(open(os.devnull)) or len(KEPT))",
        "the process has reached the limit of 200 open files (ulimit -n); close files where they are opened",
    ),
    "binds_a_taken_port": (
        "KEPT.append(socket.create_server(('', 0))); socket.create_server(KEPT[-1].getsockname())",
        "; several processes run the benchmark at once: bind port 0, and write below tmp_path",
    ),
    "shares_a_database": (
        "file = f'file:{os.environ[\"TMPDIR\"]}/shared.db'; KEPT[:] = [sqlite3.connect(file, uri=True, timeout=0) for _ in range(2)]\n"
        "    for connection in KEPT:\n        connection.execute('begin exclusive')",
        "database is locked; several processes run the benchmark at once",
    ),
    "reads_a_flag": (
        "absl.flags.DEFINE_integer('mine', 3, ''); raise ValueError(absl.flags.FLAGS.mine)",
        "ValueError: 3",
    ),
    "hangs": ("print('waiting', flush=True); __import__('time').sleep(1000)", "did not answer within 1.5 s"),
    "returns_nothing_once": ("bench.once(lambda: None)", "the step returned None"),
    "calls_again_after_once": ("bench.once(len, 'a'); bench(len, 'a')", "bench was called twice"),
    "raises_once": ("bench.once(int, 'a')", "invalid literal"),
    "no_function_once": ("bench.once(3)", "the first argument must be a function"),
    "stops_the_clock": ("bench.clock = lambda: 7; bench(sum, [1])", "clock stood still"),
}
"""Name -> body of a broken benchmark, and text of its reason."""
IMPORTS = """
import os, resource, signal, socket, sqlite3
import absl.flags

KEPT = []
"""
IMPATIENT = """
    import dataclasses
    from tfbench import policy

    policy.PRESETS["quick"] = dataclasses.replace(policy.PRESETS["quick"], setup_seconds=1.5)
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """One run of many broken benchmarks and a fine one."""
    project = Project(tmp_path_factory.mktemp("broken"))
    for name, (body, _) in BROKEN.items():
        project.write(f"{IMPORTS}def test_{name}(bench):\n    {body}\n", f"benchmarks/test_{name}.py")
    project.write(FINE, "benchmarks/test_fine.py")
    project.write(IMPATIENT, "conftest.py")
    return project.run()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_benchmark_has_its_fault_as_reason(broken, name):
    assert broken.outcomes()[f"test_{name}"] == "error"
    assert BROKEN[name][1] in broken.reason(f"test_{name}")


def test_the_rest_of_the_suite_goes_on_and_errors_show_the_output_of_the_benchmark_and_no_code_of_tfbench(broken):
    assert broken.code == 1
    assert broken.outcomes()["test_fine"] == "new"
    assert f"{len(BROKEN)} failed, 1 passed" in broken.output
    for shown in ("last words", "test_raises.py:7: ValueError", "wrong result", "own words", "waiting"):
        assert shown in broken.output
    for hidden in ("worker/bench.py", "if self.called:"):
        assert hidden not in broken.output
    assert broken.reason("test_no_function").startswith("bench(3): the first argument must be a function")


def test_a_plugin_of_the_repository_that_workers_do_not_load_is_refused(project):
    project.write("import pytest\n\n@pytest.fixture(autouse=True)\ndef ours():\n    pass\n", "ours.py")
    project.write(FINE, "benchmarks/test_fine.py")
    done = project.run("-p", "ours")
    text = 'measuring processes do not load the plugin ours; name it in the conftest.py of the root: pytest_plugins = ["ours"]'
    assert done.code != 0
    assert text in " ".join(done.output.split())
    project.write('pytest_plugins = ["ours"]\n', "conftest.py")
    assert project.run("-p", "ours").sound


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
    skip = done.report["skips"][0]
    assert (skip["case"], skip["reason"]) == ("benchmarks/test_mine.py::test_mine[device=gpu]", "no GPU: buy one")
    only = project.run("--device", "cpu")
    assert "1 passed, 1 deselected" in only.output


def test_a_duplicate_case_fails_at_collection(project):
    project.write(FINE)
    file = "benchmarks/test_mine.py"
    done = project.run("--keep-duplicates", file, file)
    assert done.code == 4, done.output
    assert "was collected twice; give each benchmark a unique name" in done.output


def test_a_module_in_the_root_is_importable_after_the_fix_of_its_error(project):
    project.write("def build():\n    return range(500)\n", "model.py")
    project.write(
        """
        from model import build

        def test_mine(bench):
            bench(sum, build())
        """
    )
    pytest_alone = ["-c", "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main())"]
    project.command = lambda *options: [
        *Project.command(project)[:1],
        *pytest_alone,
        *Project.command(project, *options)[3:],
    ]
    broken = project.run()
    assert broken.code == 2, broken.output
    fix = "add `pythonpath = .` to pytest.ini"
    assert fix in broken.output
    assert fix in broken.report["verdicts"][0]["reason"]["message"]
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    assert project.run().outcomes() == {"test_mine": "new"}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_ends_the_workers_and_keeps_the_measured_cases(project, by):
    project.write(
        """
        import os, pathlib, time

        def test_first(bench):
            bench(sum, range(500))

        def test_second(bench):
            pathlib.Path("pid").write_text(str(os.getpid()))
            os.rename("pid", "started")
            time.sleep(1)  # it is interrupted here, however busy the machine is
            bench(sum, range(500))
        """
    )
    done = project.ended_by(by, "started", "--save-baseline", "first")
    assert done.code == 2, done.output
    assert done.report["interrupted"] is True
    assert done.outcomes() == {"test_first": "new", "test_second": "error"}
    assert "was not saved" in done.output
    assert not (project.root / ".tfbench/baselines/first.json").exists()
    pid = int((project.root / "started").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
