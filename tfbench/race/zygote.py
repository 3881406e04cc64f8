"""The controller's end of a zygote: starting it, forking launches from it, ending it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tfbench.errors import ProtocolError, SideError
from tfbench.fs import isolated_package_dir, python_path
from tfbench.gpus.selection import GROWTH, has_driver
from tfbench.model import JSON, Case
from tfbench.policy import Policy
from tfbench.protocol import ChannelClosed, TimedOut, pair
from tfbench.sides.side import Side

TAIL_LINES = 20
"""How much of a process' last output is shown."""


@dataclass(frozen=True)
class Suite:
    """Which benchmark files there are and how pytest was told to import them."""

    files: tuple[str, ...]
    """Relative to the side's root."""
    inifile: str
    """Relative to the side's root, ``""`` if there is none."""
    import_mode: str
    made: str
    """Folder for what benchmarks make once for all launches."""
    cpus: tuple[int, ...]
    """Processors that a zygote may use while it starts, whatever the controller keeps to itself."""


def worker_environment(side: Side, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a side's processes: the user's, the side's, the variant's, one thread a library."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env = {key: value for key, value in env.items() if key not in side.unset}
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if has_driver():
        env.setdefault(GROWTH, "true")
    env.update(side.env)
    env.update(extra)
    # A pinned process whose BLAS or OpenMP has two threads spins against itself and seems to hang.
    env.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    env["PYTHONPATH"] = python_path(side.root, env.get("PYTHONPATH", ""))
    return env


def tail(log: IO[bytes]) -> str:
    """The last lines that a process wrote."""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])


class Zygote:
    """One process that has imported TensorFlow and forks launches. Started at once, ready later."""

    def __init__(self, side: Side, env: Mapping[str, str], suite: Suite, policy: Policy) -> None:
        self.side = side
        self.cases: frozenset[str] = frozenset()
        self.broken: dict[str, str] = {}
        self.offenders: frozenset[str] = frozenset()
        self.environment: JSON = {}
        self.import_seconds: float | None = None
        """What importing TensorFlow took it, ``None`` if it did not."""
        self.spawns = False
        """Whether CUDA is initialised in it, so that it cannot be forked: its one launch is itself."""
        self.used = False
        """Whether it has become a launch."""
        self.log: IO[bytes] = tempfile.TemporaryFile()
        self._policy = policy
        self._channel, theirs = pair()
        order: JSON = {
            "channel": theirs.fileno(),
            "root": str(side.root),
            "files": tuple(dict.fromkeys((*suite.files, *side.files))),
            "inifile": str(side.root / suite.inifile) if suite.inifile else "",
            "import_mode": suite.import_mode,
            "cpus": suite.cpus,
            "made": suite.made,
            "tree_redirect": side.tree_redirect,
            "offenders": [],
        }
        try:
            self._process = subprocess.Popen(
                [side.executable, "-m", "tfbench.worker", json.dumps(order)],
                # Not in the side's root: where that holds a tfbench of its own, Python would take it for this one.
                cwd=isolated_package_dir(),
                env=worker_environment(side, env),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the controller's to answer
            )
        except OSError as error:
            self._channel.close()
            raise SideError(f"{side.name}: cannot start {side.executable}: {error.strerror}") from error
        finally:
            theirs.close()

    def wait_ready(self) -> None:
        """Until it has imported and collected.

        Raises:
            SideError: It ended or did not get there within the policy's limit.
        """
        try:
            answer = self._channel.receive("ready", "failed", timeout=self._policy.start_seconds)
        except (ChannelClosed, TimedOut) as error:
            raise SideError(
                f"{self.side.name}: the measuring process did not start ({error})\n{tail(self.log)}"
            ) from error
        if answer["kind"] == "failed":
            raise SideError(f"{self.side.name}: {answer['message']}\n{tail(self.log)}")
        self.cases = frozenset(answer["cases"])
        self.broken = answer["broken"]
        self.offenders = frozenset(answer["offenders"])
        self.environment = answer["environment"]
        if leaked_packages := answer["leaked_packages"]:
            raise SideError(
                f"{self.side.name}: {', '.join(leaked_packages)} would come from the working tree and not from "
                f"{self.side.spec}, so both sides would be the same; install it without --editable"
            )
        self.import_seconds = answer["import_seconds"]
        self.spawns = answer["spawns"]

    def skip_reason(self, case: Case) -> str | None:
        """Why this zygote cannot run the case, or ``None`` if it can."""
        file = str(self.side.root / case.name.partition("::")[0])
        if file in self.offenders:
            return (
                f"{Path(file).name} runs a TensorFlow op while it is imported, so its process cannot be forked; "
                "move the op into the benchmark or a fixture"
            )
        if file in self.broken:
            return f"{Path(file).name} cannot be imported on the side {self.side.name}:\n{self.broken[file]}"
        if case.name not in self.cases:
            return (
                f"the side {self.side.name} does not collect {case.name}; "
                "if its id depends on TensorFlow's values, give the parameters ids of their own"
            )
        return None

    def launch(self, case: Case | None, descriptors: Sequence[int], **fields: object) -> int:
        """Fork a process for this case; returns its pid.

        Raises:
            SideError: The zygote is gone.
        """
        try:
            name = case.name if case is not None else None
            self._channel.send("launch", descriptors=descriptors, case=name, **fields)
            self.used = self.spawns
            return int(self._channel.receive("launched", timeout=self._policy.answer_seconds)["pid"])
        except ProtocolError as error:
            raise SideError(f"{self.side.name}: its zygote is gone ({error})\n{tail(self.log)}") from error

    def reap(self, pid: int, *, kill: bool) -> int | None:
        """End a launched process; its exit code, negative for a signal, ``None`` if nobody knows."""
        if self.used:
            return self._end(kill)
        try:
            self._channel.send("reap", pid=pid, kill=kill)
            return int(self._channel.receive("reaped", timeout=self._policy.answer_seconds)["status"])
        except (ProtocolError, OSError):
            return None

    def _end(self, kill: bool) -> int | None:
        """End it, which has become a launch."""
        if kill:
            self._process.kill()
        try:
            return self._process.wait(timeout=self._policy.answer_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self.close()

    @property
    def alive(self) -> bool:
        """Whether launches can be had from it."""
        return not self.used and self._process.poll() is None

    def close(self) -> None:
        """End it and what it forked; ending twice is fine."""
        self._channel.close()  # it reads the end of file and goes
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.log.close()
