"""An ancestor, as the controller sees it: started, asked to fork zygotes, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from tfbench.errors import ProtocolError, SideError
from tfbench.fs import isolated_package_dir
from tfbench.policy import Policy
from tfbench.protocol import messages
from tfbench.protocol.channel import Channel, pair
from tfbench.protocol.coding import encode
from tfbench.race.workers import TEMPORARY, Suite, tail
from tfbench.sides.side import Side

CLOSE_SECONDS = 0.5
"""A zygote or an ancestor gets this long to exit by itself."""
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": lambda: os.setpgrp()}
)
"""Only the controller handles Ctrl-C. No session of its own: Linux shares a processor among sessions, not evenly after
a process has moved there from another one (autogroups), and first calls of two sides have to run there evenly."""
A = TypeVar("A", bound=messages.ForkAnswer)


class Requests:
    """Numbers the requests to a process that forks others, so that no answer is taken for that to another request."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self.channel = channel
        self._seconds = seconds
        self._count = 0

    def ask(
        self,
        request: messages.ForkRequest,
        wanted: type[A],
        descriptors: Sequence[int] = (),
        seconds: float | None = None,
    ) -> A:
        """Send a request and return its answer.

        Raises:
            ProtocolError: No answer came in time, or it is not the answer to this request.
            OSError: The request could not be sent.
        """
        self._count += 1
        self.channel.send(replace(request, number=self._count), descriptors)
        answer = self.channel.receive(wanted, timeout=seconds or self._seconds)
        if answer.number != self._count:
            raise ProtocolError(f"it answered request {answer.number} instead of {self._count}")
        return answer


def start_process(
    executable: str, start: messages.StartAncestor, cwd: str, env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the process of an ancestor, which leads a process group and inherits the socket that ``start`` names.

    Args:
        log: Its standard output and error.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(
        [executable, "-m", "tfbench.worker", encode(start).decode()],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[start.channel],
        **_OWN_GROUP,
    )


class Ancestor:
    """A process that imports what is installed and forks zygotes. It starts at once, and `fork` waits for it.

    Args:
        env: Its environment variables.
        imports_tensorflow: Whether it imports TensorFlow, instead of each of its zygotes.
        scratch: Folder of its temporary files.

    Raises:
        SideError: It cannot be started.
    """

    def __init__(
        self, side: Side, env: Mapping[str, str], suite: Suite, policy: Policy, imports_tensorflow: bool, scratch: Path
    ) -> None:
        self.imports_tensorflow = imports_tensorflow
        self.last_output = ""
        """The last lines that it wrote, once it has ended."""
        self._policy = policy
        try:
            self._log: IO[bytes] = tempfile.TemporaryFile(dir=scratch)
            home = isolated_package_dir()
        except OSError as error:
            raise SideError(f"{side.name}: no temporary file can be written: {error.strerror}") from error
        channel, theirs = pair()
        self._requests = Requests(channel, policy.answer_seconds)
        start = messages.StartAncestor(
            channel=theirs.fileno(),
            controller=os.getpid(),
            cpus=suite.cpus,
            file_bytes=policy.file_bytes,
            imports_tensorflow=imports_tensorflow,
        )
        try:
            # Not in the side's root: Python would import a tfbench there instead of this one.
            self._process = start_process(side.executable, start, home, {**env, TEMPORARY: str(scratch)}, self._log)
        except OSError as error:
            channel.close()
            self._log.close()
            raise SideError(f"{side.name}: cannot start {side.executable}: {error.strerror}") from error
        finally:
            theirs.close()

    def fork(self, start: messages.StartZygote, descriptors: Sequence[int]) -> int:
        """Fork a zygote, once everything is imported; return its pid.

        Args:
            descriptors: The zygote's end of its channel, and its log.

        Raises:
            ProtocolError, OSError: It is gone, or not ready within the policy's limit.
        """
        return self._requests.ask(start, messages.Launched, descriptors, self._policy.start_seconds).pid

    def reap(self, pid: int, patience: float) -> int | None:
        """End a zygote; return its exit code, negative for a signal, ``None`` if unknown.

        Args:
            patience: Seconds that it gets to exit by itself before it is killed.
        """
        try:
            return self._requests.ask(messages.Reap(pid, patience), messages.Reaped).status
        except (ProtocolError, OSError):
            self.close()  # its zygotes end with it
            return None

    @property
    def alive(self) -> bool:
        """Whether it can still fork."""
        return not self._log.closed and self._process.poll() is None

    def close(self) -> None:
        """End it and the zygotes it forked. Ending twice is fine."""
        self._requests.channel.close()  # it exits at the end of file
        try:
            self._process.wait(timeout=CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if not self._log.closed:
            self.last_output = tail(self._log)
            self._log.close()
