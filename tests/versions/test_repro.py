import json
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.model import Case
from tfbench.sides.spec import Side
from tfbench.versions import repro

FAKE = """
    import os
    __version__ = os.environ.get("FAKE", "1")
    class config:
        list_physical_devices = staticmethod(lambda kind: [])
        class threading:
            set_intra_op_parallelism_threads = set_inter_op_parallelism_threads = staticmethod(lambda n: None)
"""
AXES = """
    from tfbench import Axis, Level
    TWICE = Axis("twice", Level("no", times=lambda: 1), Level("yes", times=lambda: 2, requires=lambda: None))
"""
SPINS = """
    import os, time
    import pytest
    from tfbench import across, faster, no_leak
    from .axes import TWICE

    def step(seconds):
        end = time.perf_counter() + seconds * float(os.environ.get("AMOUNT", "1"))
        while time.perf_counter() < end:
            pass
        return 1

    @pytest.fixture
    def unit():
        return 1e-4

    @no_leak
    @faster("twice=no", than="twice=yes", by=1.5)
    @across(TWICE)
    @pytest.mark.parametrize("size", [1, 2])
    def test_work(bench, variant, unit, size):
        from helpers.later import scaled
        bench(step, scaled(variant.times() * unit), flops=size)

    def test_once(bench):
        bench.once(step, 0.03, flops=1)

    def test_none(bench):
        pass
"""


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    files = {"benchmarks/__init__.py": "", "benchmarks/axes.py": AXES, "benchmarks/test_mine.py": SPINS, "conftest.py": "",
             "helpers/later.py": "scaled = float", "helpers/unused.py": "", "tensorflow.py": FAKE}  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


def written(project, folder, name, module="benchmarks.test_mine", **sides):
    """Write the folder of a case, with a module in the place of TensorFlow."""
    function = SimpleNamespace(
        function=SimpleNamespace(__module__=module), config=SimpleNamespace(getoption=lambda name: "prepend")
    )
    case = Case(f"benchmarks/test_mine.py::{name}", name, name)
    other = Side("baseline", sys.executable, project, env={"AMOUNT": "3"})
    both = sides.get("other", other), Side("contender", sys.executable, project)
    repro.write_folder(folder, function, case, project, both, {"MODE": "fast"})
    (folder / "tensorflow.py").write_text(textwrap.dedent(FAKE))


def test_the_folder_has_the_files_that_the_benchmark_imports_as_they_are(project, tmp_path):
    written(project, tmp_path / "out", "test_once")
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files == {
        "benchmarks/__init__.py", "benchmarks/axes.py", "benchmarks/test_mine.py", "conftest.py", "helpers/later.py",
        "race.json", "race.py", "race_axes.py", "tensorflow.py",
    }  # fmt: skip
    assert (tmp_path / "out/benchmarks/test_mine.py").read_text() == textwrap.dedent(SPINS)
    settings = json.loads((tmp_path / "out/race.json").read_text())
    assert settings["other"]["AMOUNT"] == "3"
    assert settings["this"]["MODE"] == settings["other"]["MODE"] == "fast"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_work[2-twice=yes]", "test_once"])
def test_the_runner_races_two_interpreters_without_tfbench(project, tmp_path, name):
    written(project, tmp_path / "out", name)
    command = [sys.executable, "race.py", "--launches", "2"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this side is faster in every launch" in done.stdout


def test_a_benchmark_that_does_not_run_keeps_its_folder_and_one_without_a_difference_loses_it(project, tmp_path):
    written(project, tmp_path / "out", "test_none")
    with pytest.raises(TfbenchError, match="does not run; add what is missing there, and run"):
        repro.race_folder(tmp_path / "out", sys.executable)
    (tmp_path / "out/race.py").write_text("raise SystemExit(1)")
    with pytest.raises(TfbenchError, match="there is no difference to show"):
        repro.race_folder(tmp_path / "out", sys.executable)
    assert not (tmp_path / "out").exists()


def test_what_two_interpreters_cannot_race_is_refused(project, tmp_path):
    with pytest.raises(UsageError, match="it exists; remove it, or name another folder"):
        written(project, tmp_path, "test_once")
    with pytest.raises(UsageError, match="needs a benchmark that is a function of"):
        written(project, tmp_path / "out", "test_once", module="tfbench.suite.functions")
    tree = Side("baseline", sys.executable, project, spec="git:HEAD", tree_redirect=("a", "b"))
    with pytest.raises(UsageError, match="git:HEAD: --repro races interpreters"):
        written(project, tmp_path / "out", "test_once", other=tree)
