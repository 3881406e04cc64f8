"""Run the benchmarks of a scratch project with the real pytest and the real plugin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from platformdirs import user_cache_path

from tests.e2e.forks import Forks

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240


@dataclass
class Done:
    """Result of a run of pytest."""

    code: int
    output: str
    report: dict = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether the run passed, or did not only because a busy machine left cases undecided."""
        undecided = {"not-decided", "not-confirmed", "disturbed", "tail-not-decided"}
        rows = [row for row in self.report.get("verdicts", []) if row["outcome"] == "inconclusive"]
        noisy = bool(rows) and all(row["reason"]["code"] in undecided for row in rows)
        return self.code == 0 or (self.code == 1 and noisy and "\ninconclusive: " in self.output)

    def outcomes(self) -> dict[str, str]:
        """Case (without its file) -> outcome of its time."""
        rows = self.report["verdicts"]
        return {row["case"].rpartition("::")[2]: row["outcome"] for row in rows if row["metric"] == "time"}

    def metrics(self, case: str) -> dict[str, str]:
        """Metric -> outcome, of a case without its file."""
        rows = self.report["verdicts"]
        return {row["metric"]: row["outcome"] for row in rows if row["case"].endswith(f"::{case}")}

    def reason(self, case: str, metric: str = "time") -> str:
        rows = [row for row in self.report["verdicts"] if row["metric"] == metric]
        return next(row["reason"]["message"] for row in rows if row["case"].endswith(f"::{case}"))


def environment(root: Path) -> dict[str, str]:
    """Return the environment variables of a program that runs in this folder."""
    # Without bytecode every process takes half a second longer. No output may depend on how the caller buffers.
    left_out = ("PYTEST_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    # Environments that a test builds are removed with the test. Downloads of uv stay.
    caches = {"UV_CACHE_DIR": str(user_cache_path("uv")), "XDG_CACHE_HOME": str(root / ".cache")}
    return {**caches, **clean, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


@cache
def forks() -> Forks:
    """Return the process whose forks run the programs of this session's projects."""
    return Forks(environment(ROOT))


class Project:
    """A folder with benchmarks, run with the policy ``quick`` and one zygote per side.

    Args:
        root: The folder. Its ``folder`` is where programs start.
        full: Load all plugins, and start the policy's number of zygotes.
    """

    forked = True
    """Whether runs are `forks`."""
    policy: tuple[str, ...] = ("--policy", "quick")

    def __init__(self, root: Path, full: bool = False) -> None:
        self.root = self.folder = root
        self.report = root / "report.json"
        self._plugins = [] if full else ["-p", "pytest_benchmark.plugin", "-p", "tests.fakes.cheap"]
        self._full = full
        self._program = "tfbench" if full else "tests.fakes.cheap"
        (root / "benchmarks").mkdir(parents=True, exist_ok=True)

    def write(self, text: str, name: str = "benchmarks/test_mine.py") -> None:
        (self.root / name).write_text(textwrap.dedent(text))

    def command(self, *options: str) -> list[str]:
        plugins = ["-p", "tfbench.plugin", *self._plugins]
        return [sys.executable, "-m", "pytest", *plugins, *self.policy, *options]

    def environment(self) -> dict[str, str]:
        # Loading every installed plugin costs each run as much as racing a case.
        return {**environment(self.root), **({} if self._full else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})}

    def run(self, *options: str, benchmark: bool = True) -> Done:
        self.report.unlink(missing_ok=True)
        flags = ["--benchmark", f"--report-json={self.report}"] if benchmark else []
        done = self._execute(self.command(*flags, *options))
        found = json.loads(self.report.read_text()) if self.report.exists() else {}
        return Done(done.returncode, done.stdout + done.stderr, found)

    def _execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        python, option, program, *arguments = command
        if (python, option) == (sys.executable, "-m") and self.forked and not self._full:
            return forks().run(program, arguments, self.folder, self.environment(), LIMIT)
        return subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=LIMIT, check=False
        )

    def tfbench(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in this project."""
        return self._execute([sys.executable, "-m", self._program, *arguments])

    def git(self, *arguments: str) -> None:
        """Run git in this project, with an identity."""
        identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self, subject: str) -> None:
        """Commit all files but those of runs, in a repository that is made for the first commit."""
        if not (self.root / ".git").exists():
            self.git("init", "-q", "-b", "main")
            (self.root / ".git/info/exclude").write_text(".tfbench\n.cache\n__pycache__\n*.json\n")
        self.git("add", "-A")
        self.git("commit", "-qm", subject)

    def start(self, *options: str, name: str = "report.json") -> subprocess.Popen[str]:
        """Start a run that ends with `ended`."""
        return subprocess.Popen(
            self.command("--benchmark", f"--report-json={self.root / name}", *options),
            cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            # A shell makes background processes ignore Ctrl-C, and children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def ended(self, process: subprocess.Popen[str], name: str = "report.json") -> Done:
        """Wait until a run that was started has ended."""
        output, _ = process.communicate(timeout=LIMIT)
        report = self.root / name
        return Done(process.returncode, output, json.loads(report.read_text()) if report.exists() else {})

    def ended_by(self, by: signal.Signals, after: str, *options: str) -> Done:
        """Start a run, and send it a signal as soon as the file ``after`` exists."""
        process = self.start(*options)
        wait_for(self.root / after)
        process.send_signal(by)
        return self.ended(process)


def wait_for(path: Path, seconds: float = 60) -> None:
    import time

    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.02)
