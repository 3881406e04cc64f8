"""Faults in real processes: each ends in its own verdict, the rest of the suite goes on, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.project import LIMIT, wait_for
from tests.faults.processes import Run, left
from tfbench.storage.history import History


class Fault(NamedTuple):
    """The reason code of the verdict on a broken benchmark, a part of its text, the benchmark, and the outcome."""

    code: str
    text: str
    source: str
    outcome: str = "error"


def in_a_block(statement: str) -> str:
    """A benchmark that does this while blocks are timed."""
    return f"""
        def test_mine(bench):
            def step():
                if not gc.isenabled():
                    {statement}
                return sum(range(500))

            bench(step)
        """


FAULTS = {
    # Processes
    "stops": Fault("hung", "did not answer", in_a_block("os.kill(os.getpid(), signal.SIGSTOP)")),
    "out_of_memory": Fault("broken", "MemoryError", """
        def test_mine(bench):
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            bench(bytearray, 8 << 30)
        """),
    "exits": Fault("broken", "while it was timed: SystemExit", in_a_block("sys.exit(0)")),
    "leaves_pytest": Fault("broken", "while it was timed: Exit: enough", in_a_block("pytest.exit('enough')")),
    "kills_its_zygote": Fault("died", "ended with its zygote",
                              "def test_mine(bench): os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)"),
    "stops_its_zygote": Fault("no-baseline", "",
                              "def test_mine(bench): time.sleep(0.1); os.kill(os.getppid(), signal.SIGSTOP); bench(sum, [1])", "new"),
    "changes_processors": Fault("broken", "was moved from the processors",
                                in_a_block("os.sched_setaffinity(0, range(os.cpu_count()))")),
    # Messages
    "sends_twice": Fault("broken", "sent no valid message", """
        def test_mine(bench):
            send = bench.channel.send
            bench.channel.send = lambda message: (send(message), send(message))
            bench(sum, [1])
        """),
    # Clocks
    "clock_goes_back": Fault("broken", "clock stood still or went back",
                             "def test_mine(bench): bench.clock = lambda: -time.perf_counter_ns(); bench(sum, [1])"),
    # Files and processes that a benchmark leaves
    "writes_a_huge_file": Fault("died", "SIGXFSZ",
                                "def test_mine(bench): os.truncate(tempfile.mkstemp()[1], 1 << 40); bench(sum, [1])"),
    "leaves_a_half_made_set_up": Fault("died", "SIGKILL", """
        def build(folder):
            (folder / "half").write_text("half")
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1000)

        def test_mine(bench, shared):
            shared(build)
        """),
    "leaves_a_daemon": Fault("broken", "after it had been timed: AssertionError: a daemon", """
        DAEMON = pathlib.Path("daemon.pid")

        def test_mine(bench):
            bench(sum, [1])
            # The second launch finds the daemon of the first one dead.
            assert not DAEMON.exists() or os.path.exists(f"/proc/{DAEMON.read_text()}"), "a daemon has ended"
            script = "import os, time; open('daemon.pid', 'w').write(str(os.getpid())); time.sleep(1000)"
            subprocess.run(f"exec setsid -f {sys.executable} -c \\"{script}\\"", shell=True, check=True)
            while not DAEMON.exists():
                time.sleep(0.01)
        """),
}  # fmt: skip
FINE = "def test_fine(bench):\n    bench(sum, range(500))\n"
IMPORTS = "import gc, os, pathlib, resource, signal, subprocess, sys, tempfile, time\n\nimport pytest\n\n"


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path)
    yield made
    made.check_clean()


# Broken benchmarks

RUNS = 4
"""Runs at the same time. Most of their benchmarks hang, so that they wait for limits."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Runs with their results. Each has every fourth of the broken benchmarks, and a good one."""
    projects = []
    for first in range(RUNS):
        project = Run(tmp_path_factory.mktemp("faults"))
        project.write(FINE, "benchmarks/test_fine.py")
        for name in list(FAULTS)[first::RUNS]:
            text = textwrap.dedent(FAULTS[name].source).replace("test_mine", f"test_{name}")
            project.write(IMPORTS + text + "\n", f"benchmarks/test_{name}.py")
        projects.append(project)
    processes = [project.start() for project in projects]
    return [(project, project.ended(process)) for project, process in zip(projects, processes, strict=True)]


@pytest.mark.chaos
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_a_verdict_of_its_own(broken, name):
    fault = FAULTS[name]
    if name == "changes_processors" and os.cpu_count() == 1:
        pytest.skip("there is no other processor")
    rows = (row for _, done in broken for row in done.report["verdicts"])
    row = next(row for row in rows if row["case"].endswith(f"::test_{name}"))
    assert (row["outcome"], row["reason"]["code"]) == (fault.outcome, fault.code), row["reason"]
    assert fault.text in row["reason"]["message"]


@pytest.mark.chaos
def test_the_rest_of_the_suite_goes_on_and_the_gate_names_every_fault(broken):
    assert sum(len(done.outcomes()) for _, done in broken) == len(FAULTS) + RUNS
    for project, done in broken:
        assert done.code == 1, done.output
        names = {case.removeprefix("test_") for case in done.outcomes()}
        assert done.outcomes()["test_fine"] == "new"
        gate = project.tfbench("gate", "report.json")
        assert gate.returncode == 5, gate.stdout
        for name in names - {"fine"}:
            if FAULTS[name].outcome == "error":
                assert f"test_{name}: " in gate.stdout


@pytest.mark.chaos
def test_no_fault_leaves_a_process_or_a_file_behind(broken):
    for project, _ in broken:
        project.check_clean()
        assert not list((project.root / ".tfbench/made").glob("build-*/half"))


# Signals to the whole run

WAITS = """
    import os, pathlib, subprocess, time

    def test_first(bench):
        bench(sum, range(500))

    def test_second(bench):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        pathlib.Path("started").touch()
        time.sleep(3)
        bench(sum, range(500))
"""


@pytest.mark.chaos
@pytest.mark.parametrize("importing", [True, False])
def test_a_run_that_is_killed_leaves_no_zygote_and_the_next_one_removes_the_rest(run, importing):
    run.write(WAITS)
    if importing:
        run.write(
            """
            import os, pathlib, sys, time

            if "tfbench.worker.zygote" in sys.modules and not pathlib.Path("again").exists():
                pathlib.Path("started").touch()
                time.sleep(1000)
            """,
            "benchmarks/conftest.py",
        )
    process = run.start()
    wait_for(run.root / "started")
    process.kill()
    process.communicate(timeout=LIMIT)
    end = time.monotonic() + 5
    while any("tfbench" in command for command in left(str(run.root))):
        assert time.monotonic() < end, left(str(run.root))
        time.sleep(0.05)
    assert list(run.temporary.iterdir())
    (run.root / "again").touch()
    done = run.run("-k", "first")
    assert done.outcomes() == {"test_first": "new"}, done.output


# Disks, and neighbours


@contextmanager
def mounted(place: Path, options: str):
    """Mount a file system in memory, or skip the test where that is not allowed."""
    place.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


FILLS = """
    import tempfile

    def test_fills_the_disk(bench):
        with open(tempfile.mkstemp()[1], "wb", buffering=0) as file:
            while file.write(bytes(1 << 20)) == 1 << 20:
                pass
            file.write(bytes(1 << 20))
        bench(sum, [1])
"""


@pytest.mark.chaos
def test_a_full_disk_is_the_error_of_the_benchmark_that_filled_it(run):
    run.write(FINE, "benchmarks/test_zz.py")
    run.write(FILLS, "benchmarks/test_fills.py")
    with mounted(run.temporary, "size=4m"):
        done = run.run()
        run.check_clean()
    assert done.outcomes()["test_fills_the_disk"] == "error", done.output
    assert "No space left on device" in done.reason("test_fills_the_disk")


@pytest.mark.chaos
def test_two_runs_in_one_folder_end_like_one(run):
    run.write(WAITS.replace("sleep(3)", "sleep(0.2)"))
    both = [run.start("--history", name=name) for name in ("one.json", "two.json")]
    for process, name in zip(both, ("one.json", "two.json"), strict=True):
        done = run.ended(process, name)
        assert done.code == 0, done.output
        assert done.outcomes() == {"test_first": "new", "test_second": "new"}
    found = History(run.root / ".tfbench/history").content()
    records, problems = found.once(), found.problems
    assert (len(records), problems) == (2, [])
