"""A zygote, as the controller sees it: started, asked to fork launches, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TypeVar

from tfbench.errors import ProtocolError, SideError
from tfbench.fs import isolated_package_dir, python_path
from tfbench.gpus.selection import GROWTH, has_driver
from tfbench.model import JSON, Case
from tfbench.policy import Policy
from tfbench.protocol import messages
from tfbench.protocol.channel import pair
from tfbench.sides.side import Side
from tfbench.suite.missing_module import fix_of
from tfbench.worker.tracers import ALLOWED

TAIL_LINES = 20
"""Lines of a process' last output that an error shows."""
_TAIL_BYTES = 1 << 16
"""At most so much of the output is read for them."""
_MEASURES_COVERAGE = ("COV_CORE_", "COVERAGE_PROCESS_")
"""Variables with which a process of coverage or pytest-cov has its children measured, if their Python has coverage."""
_CLOSE_SECONDS = 0.5
"""A zygote gets this long to exit by itself."""
_A = TypeVar("_A", bound=messages.ZygoteAnswer)


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
    """Processors that a zygote may use while it starts, including those that the controller avoids."""


def worker_environment(side: Side, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a side's processes: the user's, the side's and the variant's, one thread per library."""
    dropped = ("PYTEST_", *(() if os.environ.get(ALLOWED) else _MEASURES_COVERAGE))
    env = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
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
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = log.read(_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])


class Zygote:
    """A process that imports TensorFlow and forks launches. It starts at once, and `wait_ready` waits for it.

    Args:
        env: Environment variables of the variant.
        scratch: Folder of its temporary files and those of its launches.

    Raises:
        SideError: It cannot be started.
    """

    def __init__(self, side: Side, env: Mapping[str, str], suite: Suite, policy: Policy, scratch: Path) -> None:
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
        self.last_output = ""
        """The last lines that it wrote, once it has ended."""
        self.scratch = scratch
        self.policy = policy
        self._requests = 0
        try:
            self.log: IO[bytes] = tempfile.TemporaryFile(dir=scratch)
            home = isolated_package_dir()
            environment = {**worker_environment(side, env), "TMPDIR": str(scratch)}
        except OSError as error:
            raise SideError(f"{side.name}: no temporary file can be written: {error.strerror}") from error
        self._channel, theirs = pair()
        start = messages.StartZygote(
            channel=theirs.fileno(),
            controller=os.getpid(),
            file_bytes=policy.file_bytes,
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
                cwd=home,
                env=environment,
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
            answer = self._channel.receive(messages.Ready, messages.Failed, timeout=self.policy.start_seconds)
        except ProtocolError as error:
            self.close()
            raise SideError(f"{name}: the measuring process did not start ({error})\n{self.last_output}") from error
        if isinstance(answer, messages.Failed):
            self.close()
            raise SideError(f"{name}: {answer.message}\n{self.last_output}")
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
            fix = fix_of(self.broken[file], self.side.root)
            headline = f"{Path(file).name} cannot be imported on the side {self.side.name}{'; ' if fix else ''}{fix}"
            return f"{headline}\n{self.broken[file]}"
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
        self.used = self.spawns
        return self._ask(request, messages.Launched, descriptors).pid

    def reap(self, pid: int, *, kill: bool) -> int | None:
        """End the process of a launch; return its exit code, negative for a signal, ``None`` if unknown."""
        if self.used:
            return self._end(kill)
        try:
            return self._ask(messages.Reap(pid, kill), messages.Reaped).status
        except SideError:
            return None

    def _ask(self, request: messages.ZygoteRequest, wanted: type[_A], descriptors: Sequence[int] = ()) -> _A:
        """Send a request and return its answer. After an error the zygote and its launches have ended.

        Raises:
            SideError: No answer came in time, or it is not the answer to this request.
        """
        self._requests += 1
        try:
            self._channel.send(replace(request, number=self._requests), descriptors)
            answer = self._channel.receive(wanted, timeout=self.policy.answer_seconds)
            if answer.number != self._requests:
                raise ProtocolError(f"it answered request {answer.number} instead of {self._requests}")
            return answer
        except (ProtocolError, OSError) as error:
            # A late answer would otherwise be taken for the answer to a later request.
            self.close()
            raise SideError(f"{self.side.name}: the zygote is gone ({error})\n{self.last_output}") from error

    def _end(self, kill: bool) -> int:
        """End this process, which has become a launch; return its exit code."""
        if kill:
            self._kill()
        try:
            return self._process.wait(timeout=self.policy.answer_seconds)
        except subprocess.TimeoutExpired:
            self._kill()
            return self._process.wait()
        finally:
            self.close()

    @property
    def alive(self) -> bool:
        """Whether it can still fork or become a launch."""
        return not self.used and not self.log.closed and self._process.poll() is None

    def close(self) -> None:
        """End it and the processes it forked. Ending twice is fine."""
        self._channel.close()  # it exits at the end of file
        try:
            self._process.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        if not self.log.closed:
            self.last_output = tail(self.log)
            self.log.close()

    def _kill(self) -> None:
        """Kill it with what it has started; its launches, which lead groups of their own, end with it."""
        if self._process.poll() is None:  # otherwise its id may be another process'
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
