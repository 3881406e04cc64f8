"""A zygote, as the controller sees it: started, asked to fork launches, and ended."""

from __future__ import annotations

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
from tfbench.protocol import messages
from tfbench.protocol.channel import pair
from tfbench.sides.side import Side

TAIL_LINES = 20
"""Lines of a process' last output that an error shows."""


@dataclass(frozen=True)
class Suite:
    """The benchmark files, and how pytest imports them."""

    files: tuple[str, ...]
    """Relative to the side's root."""
    inifile: str
    """Relative to the side's root, ``""`` if there is none."""
    import_mode: str
    made: str
    """Folder of shared set-ups."""
    cpus: tuple[int, ...]
    """Processors that a zygote may use while it starts, also those that the controller avoids."""


def worker_environment(side: Side, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a side's processes: the user's, the side's and the variant's, one thread per library."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env = {key: value for key, value in env.items() if key not in side.unset}
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if has_driver():
        env.setdefault(GROWTH, "true")
    env.update(side.env)
    env.update(extra)
    # With two threads of BLAS or OpenMP, a pinned process spins against itself and seems to hang.
    env.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    env["PYTHONPATH"] = python_path(side.root, env.get("PYTHONPATH", ""))
    return env


def tail(log: IO[bytes]) -> str:
    """Return the last lines that a process wrote."""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])


class Zygote:
    """A process that imports TensorFlow and forks launches. It starts at once, and `wait_ready` waits for it."""

    def __init__(self, side: Side, env: Mapping[str, str], suite: Suite, policy: Policy) -> None:
        self.side = side
        self.cases: frozenset[str] = frozenset()
        self.broken: dict[str, str] = {}
        self.offenders: frozenset[str] = frozenset()
        self.environment: JSON = {}
        self.import_seconds: float | None = None
        """Import time of TensorFlow, ``None`` if no benchmark imports it."""
        self.spawns = False
        """Whether it has initialised CUDA. It cannot fork then, and becomes the process of its only launch."""
        self.used = False
        """Whether it has become the process of a launch."""
        self.log: IO[bytes] = tempfile.TemporaryFile()
        self._policy = policy
        self._channel, theirs = pair()
        start = messages.StartZygote(
            channel=theirs.fileno(),
            root=str(side.root),
            files=tuple(dict.fromkeys((*suite.files, *side.files))),
            inifile=str(side.root / suite.inifile) if suite.inifile else "",
            import_mode=suite.import_mode,
            cpus=suite.cpus,
            made=suite.made,
            tree_redirect=side.tree_redirect,
        )
        try:
            self._process = subprocess.Popen(
                [side.executable, "-m", "tfbench.worker", messages.encode(start).decode()],
                # Not in the side's root: Python would import a tfbench there instead of this one.
                cwd=isolated_package_dir(),
                env=worker_environment(side, env),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # only the controller handles Ctrl-C
            )
        except OSError as error:
            self._channel.close()
            raise SideError(f"{side.name}: cannot start {side.executable}: {error.strerror}") from error
        finally:
            theirs.close()

    def wait_ready(self) -> None:
        """Wait until it has imported TensorFlow and collected the benchmarks.

        Raises:
            SideError: It ended, did not get there within the policy's limit, or imports packages of another tree.
        """
        name = self.side.name
        try:
            answer = self._channel.receive(messages.Ready, messages.Failed, timeout=self._policy.start_seconds)
        except ProtocolError as error:
            raise SideError(f"{name}: the measuring process did not start ({error})\n{tail(self.log)}") from error
        if isinstance(answer, messages.Failed):
            raise SideError(f"{name}: {answer.message}\n{tail(self.log)}")
        assert isinstance(answer, messages.Ready)
        self.cases = frozenset(answer.cases)
        self.broken = answer.broken
        self.offenders = frozenset(answer.offenders)
        self.environment = answer.environment
        if answer.leaked_packages:
            raise SideError(
                f"{name}: {', '.join(answer.leaked_packages)} would come from the working tree and not from "
                f"{self.side.spec}, so both sides would be the same; uninstall it, and name its folder in pytest's option pythonpath"
            )
        self.import_seconds = answer.import_seconds
        self.spawns = answer.spawns

    def skip_reason(self, case: Case) -> str | None:
        """Return why this zygote cannot run the case, ``None`` if it can."""
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

    def launch(self, request: messages.LaunchRequest, descriptors: Sequence[int]) -> int:
        """Fork the process of a launch; return its pid.

        Raises:
            SideError: The zygote is gone.
        """
        try:
            self._channel.send(request, descriptors)
            self.used = self.spawns
            return self._channel.receive(messages.Launched, timeout=self._policy.answer_seconds).pid
        except ProtocolError as error:
            raise SideError(f"{self.side.name}: the zygote is gone ({error})\n{tail(self.log)}") from error

    def reap(self, pid: int, *, kill: bool) -> int | None:
        """End the process of a launch; return its exit code, negative for a signal, ``None`` if unknown."""
        if self.used:
            return self._end(kill)
        try:
            self._channel.send(messages.Reap(pid, kill))
            return self._channel.receive(messages.Reaped, timeout=self._policy.answer_seconds).status
        except (ProtocolError, OSError):
            return None

    def _end(self, kill: bool) -> int:
        """End this process, which has become a launch; return its exit code."""
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
        """Whether it can still fork or become a launch."""
        return not self.used and self._process.poll() is None

    def close(self) -> None:
        """End it and the processes it forked. Ending twice is fine."""
        self._channel.close()  # it exits at the end of file
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.log.close()
