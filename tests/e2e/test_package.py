"""tfbench as a package: built, installed beside a user's own TensorFlow, and used in another repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.project import ROOT, environment
from tfbench.sides.environments import interpreters, minor, version_of
from tfbench.sides.environments import run as uv

pytestmark = pytest.mark.slow

PLUGINS = (
    "asyncio", "bdd", "cov", "django", "html", "mock", "playwright", "profiling", "randomly", "replay", "rerunfailures",
    "resume", "shard", "split", "sugar", "timeout", "xdist",
)  # fmt: skip
"""Popular plugins, as their distributions are named after ``pytest-``."""
LARGEST = 2_000_000
"""Bytes of the wheel and the sdist."""
LIMIT = 240
MODEL = """
    import tensorflow as tf


    def softmax():
        return tf.function(lambda a: tf.nn.softmax(a))
"""
BENCHMARK = """
    import tensorflow as tf
    from model import softmax

    from tfbench import Axis, Level, across

    COMPILER = Axis(
        "compiler",
        Level("none", compile=lambda step: step),
        Level("xla", compile=lambda step: tf.function(step, jit_compile=True)),
    )


    @across(COMPILER)
    def test_softmax(bench, variant):
        bench(variant.compile(softmax()), tf.random.normal([64, 256]), max_traces=2)


    def test_plain(benchmark):
        benchmark(sum, [1, 2])
"""


@dataclass(frozen=True)
class Installed:
    """An environment, and a repository of its user."""

    python: str
    root: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the repository."""
        env = environment(self.root)
        del env["PYTHONPATH"]  # this checkout must not be found, and no uv of an activated environment
        env["PATH"] = os.pathsep.join(one for one in env["PATH"].split(os.pathsep) if not Path(one, "uv").exists())
        return subprocess.run(
            [str(Path(self.python).parent / program), *arguments],
            cwd=self.root, env=env, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip

    def packages(self) -> set[str]:
        return {one["name"] for one in json.loads(uv("pip", "list", "--python", self.python, "--format", "json"))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel, which is built from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    # What setuptools writes beside the sources stays out of this checkout.
    tracked = ("tfbench", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
    for name in tracked:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    uv("build", "--quiet", "--out-dir", str(folder / "dist"), str(folder))
    return folder / "dist"


@pytest.fixture
def installed(built: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installed]:
    """A new environment with tfbench alone, on the Python whose minor version is the parameter."""
    wanted = getattr(request, "param", None)
    found = [python for python in interpreters() if wanted in (None, minor(version_of(python)))]
    if not found:
        pytest.skip(f"no Python {wanted} here")
    env = tmp_path / "environment"
    uv("venv", "--quiet", "--python", found[0], str(env))
    python = str(env / "bin" / "python")
    wheel = next(built.glob("*.whl"))
    uv("pip", "install", "--quiet", "--python", python, str(wheel))
    root = tmp_path / "theirs"
    (root / "benchmarks").mkdir(parents=True)
    for name, text in (
        ("model.py", MODEL),
        ("benchmarks/test_mine.py", BENCHMARK),
        ("pytest.ini", "[pytest]\npythonpath = .\n"),
        (".gitignore", ".tfbench\n__pycache__\n.cache\n"),
    ):
        (root / name).write_text(textwrap.dedent(text).lstrip("\n"))
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    commit(root)
    yield Installed(python, root)
    shutil.rmtree(env)  # pytest keeps the folders of three runs, and this one takes 1.7 GB


def commit(root: Path) -> None:
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["add", "-A"], ["commit", "-qm", "theirs"]):
        subprocess.run(["git", *identity, *words], cwd=root, check=True)


def test_wheel_and_sdist_have_every_file_and_nothing_else(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert max(wheel.stat().st_size, sdist.stat().st_size) < LARGEST
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tfbench").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"  # pytest -O writes .pyo
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if ".dist-info/" not in name} == sources
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert sources <= kept
    assert not {name for name in kept if name.startswith(("tests", "benchmarks", ".tfbench"))}


def test_it_brings_no_tensorflow_and_says_what_is_missing(installed):
    unwanted = ("tensorflow", "keras", "tf-", "tensorboard", "xprof", "uv", "nvidia")
    assert not {name for name in installed.packages() if name.startswith(unwanted)}
    help_text = installed.run("tfbench", "--help")
    assert help_text.returncode == 0
    assert "versions" in help_text.stdout
    run = installed.run("pytest", "--benchmark")
    assert run.returncode == 1
    assert "pip install tensorflow" in run.stdout
    other = installed.run("pytest", "--benchmark", "--against", "tensorflow==2.20.0")
    assert other.returncode == 4
    assert "pip install uv" in other.stderr


@pytest.mark.parametrize("option", [[], ["--benchmark"]], ids=["tests", "benchmarks"])
def test_help_and_collection_work_beside_popular_plugins(installed, option):
    uv("pip", "install", "--quiet", "--python", installed.python, *(f"pytest-{name}" for name in PLUGINS))
    (installed.root / "test_theirs.py").write_text("def test_theirs(mocker): ...\n")
    (installed.root / "model.py").write_text("")
    (installed.root / "benchmarks/test_mine.py").write_text("def test_mine(bench): bench(sum, [1])\n")
    shown = installed.run("pytest", *option, "--help")
    assert shown.returncode == 0, shown.stderr
    assert ("--tfbench-device" in shown.stdout) == bool(option)
    assert all(
        word in shown.stdout for word in ("--headed", "--num-shards", "--profile-svg", "--reruns", "--benchmark ")
    )
    collected = installed.run("pytest", *option, "--collect-only", "-p", "no:randomly")
    assert collected.returncode == 0, collected.stdout + collected.stderr
    found = {"<Function test_mine>"} if option else {"<Function test_mine>", "<Function test_theirs>"}
    assert found == set(re.findall(r"<Function \w+>", collected.stdout))
    taken = re.findall(r"tfbench: (--[\w-]+) belongs to another plugin here", collected.stdout)
    assert sorted(taken) == (["--device", "--profile", "--replay", "--resume"] if option else [])
    listed = re.search(r"(?m)^plugins: (.*)$", collected.stdout)
    loaded = set(re.findall(r"([a-z]+)-\d", listed[1])) if listed else set()
    assert loaded >= set(PLUGINS) - {"randomly"}
    if option:  # the benchmarks of another commit are collected beside them too
        commit(installed.root)
        raced = installed.run("pytest", *option, "-p", "no:sugar", "--tfbench-policy=quick", "--against=git:HEAD")
        assert raced.returncode == 0, raced.stdout + raced.stderr
        assert "pass: 1 unchanged" in raced.stdout


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("installed", "tensorflow"),
    [("3.11", "tensorflow-cpu==2.15.1"), ("3.13", "tensorflow-cpu==2.21.0")],
    indirect=["installed"],
)
def test_it_works_in_a_foreign_repository_beside_its_tensorflow(installed, tensorflow):
    before = installed.packages()
    uv("pip", "install", "--quiet", "--python", installed.python, tensorflow)
    assert before < installed.packages()
    command = ["--benchmark", "--policy", "quick", "--against"]
    slower = installed.run("pytest", *command, "self", "--inject-slowdown", "1.0", "--report-json=slower.json")
    assert slower.returncode == 1, slower.stdout + slower.stderr
    report = json.loads((installed.root / "slower.json").read_text())
    times = {row["case"]: row["outcome"] for row in report["verdicts"] if row["metric"] == "time"}
    assert list(times.values()).count("regressed") >= 2, slower.stdout
    assert report["sides"]["baseline"]["packages"]["tensorflow-cpu"] == tensorflow.partition("==")[2]
    assert installed.run("tfbench", "gate", "slower.json").returncode == 1
    # The same program, of another source tree and started as a module.
    (installed.root / "model.py").write_text(textwrap.dedent(MODEL).replace("softmax(a)", "log_softmax(a)"))
    explained = installed.run(
        "python", "-m", "tfbench", "explain", "test_softmax[compiler=none]", "--against", "git:main"
    )
    assert explained.returncode == 0, explained.stderr
    assert "LogSoftmax" in explained.stdout
    assert os.listdir(installed.root / ".tfbench")
    # The commit's benchmarks find tfbench in another place than these, and yet are the same.
    (installed.root / "model.py").write_text(textwrap.dedent(MODEL).replace("softmax(a)", "softmax(tf.sort(a))"))
    raced = installed.run("pytest", *command, "git:main", "-k", "none")
    assert "regressed: 1 regressed" in raced.stdout, raced.stdout + raced.stderr
