"""Run the gate's own shell steps on a scratch repository with six pull requests: ``make gate-demo``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MODEL = """
    import tensorflow as tf

    LAYERS = 20


    def stack(x, w):
        for _ in range(LAYERS):
            x = tf.nn.relu(tf.matmul(x, w))
        return x


    def scale(x):
        return tf.reduce_sum(2.0 * x + 1.0)
"""
BENCHMARKS = """
    import tensorflow as tf

    from model import scale, stack


    def test_stack(bench):
        bench(tf.function(stack), tf.ones([96, 96]) / 96, tf.ones([96, 96]) / 96)


    def test_scale(bench):
        bench(tf.function(scale), tf.ones([256, 256]))
"""
SLOWER = "model.py", "LAYERS = 20", "LAYERS = 24"
CHANGES = {
    "slower": [SLOWER],
    "equal": [("model.py", "LAYERS = 20", "LAYERS = 10 + 10")],
    "crashing": [("model.py", "tf.reduce_sum", "tf.no_such_function")],
    "deleting": [
        ("benchmarks/test_model.py", re.search(r"\n\n\n    def test_scale.*", BENCHMARKS, re.DOTALL)[0], "\n")
    ],
    "renaming": [("benchmarks/test_model.py", "def test_scale", "def test_scaling")],
    "editing": [SLOWER, ("benchmarks/test_model.py", "tf.ones([96, 96]) / 96, tf", "tf.ones([80, 96]) / 96, tf")],
}
"""Pull request -> files, a text in each, and the replacement of the text."""


@dataclass(frozen=True)
class Outcome:
    """Result of the gate."""

    code: int
    output: str
    comment: str
    summary: str


FILES = {"model.py": MODEL, "benchmarks/test_model.py": BENCHMARKS}
Changes = dict[str, list[tuple[str, str, str]]]


def build(root: Path, files: dict[str, str] = FILES, changes: Changes = CHANGES) -> None:
    """Create the repository, with a branch per pull request."""
    (root / "benchmarks").mkdir(parents=True)
    files = files | {
        "pytest.ini": "[pytest]\npythonpath = .\n",
        ".gitignore": "__pycache__\n.tfbench\ntfbench-report\n*.txt\n",
    }
    for name, text in files.items():
        (root / name).write_text(textwrap.dedent(text).lstrip())
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "before")
    for branch, edits in changes.items():
        _git(root, "switch", "-qc", branch, "main")
        for name, old, new in edits:
            text = (root / name).read_text()
            before, after = textwrap.dedent(old).strip("\n") if "\n" in old else old, new
            assert before in text
            (root / name).write_text(text.replace(before, after).rstrip() + "\n")
        _git(root, "commit", "-qam", branch)
    _git(root, "switch", "-q", "main")


def _git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def environment(cheap: bool = False) -> dict[str, str]:
    """Return the environment variables of a runner's shell: this environment's programs, and GitHub's variables.

    Args:
        cheap: Start one measuring process per side.
    """
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "GITHUB_", "PYTHONDONT"))
    }
    if cheap:
        plugins = "tfbench.plugin,pytest_benchmark.plugin,tests.fakes.cheap"
        clean |= {"PYTEST_PLUGINS": plugins, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    path = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    return {**clean, "GITHUB_ACTIONS": "true", "PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT)}


def shell(
    step: dict[str, Any], root: Path, env: dict[str, str], values: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub's runner would.

    Args:
        values: What stands for the expressions of its environment.
    """
    own = {key: re.sub(r"\$\{\{ (.*?) \}\}", lambda f: values[f[1]], str(v)) for key, v in step.get("env", {}).items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=root, env={**env, **own}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def gate(root: Path, branch: str, cheap: bool = False, **inputs: str) -> Outcome:
    """Run the gate's step of action.yml on a branch against main."""
    _git(root, "switch", "-q", branch)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | {"against": "git:main"}
    values = {f"inputs.{name}": value for name, value in {**given, **inputs}.items()}
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder, "summary")
        env = environment(cheap) | {"GITHUB_STEP_SUMMARY": str(summary)}
        step = next(step for step in action["runs"]["steps"] if step.get("id") == "gate")
        done = shell(step, root, env, values)
        command = [sys.executable, "-m", "tfbench", "gate", "tfbench-report", "--link", "https://example.org/run"]
        command += ["--conclusion", "failure" if done.returncode else "success", "--comment", "comment.txt"]
        subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
        comment = (root / "comment.txt").read_text()
        said = summary.read_text() if summary.exists() else ""
    return Outcome(done.returncode, done.stdout + done.stderr, comment, said)


def main() -> int:
    """Print the six verdicts and the comment on the slower one; return 0 if the gate decided as expected."""
    wanted = {"slower": 1, "equal": 0, "crashing": 5, "deleting": 4, "renaming": 0, "editing": 1}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tfbench-gate-") as folder:
        root = Path(folder, "repository")
        build(root)
        for branch in CHANGES:
            found = gate(root, branch)
            verdict = found.output.strip().splitlines()[-1] if found.output.strip() else "nothing was printed"
            print(f"{branch:10} exit code {found.code}   {verdict}", flush=True)
            if branch == "slower":
                print(textwrap.indent(found.comment, "    "), flush=True)
            wrong += found.code != wanted[branch]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
