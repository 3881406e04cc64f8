"""The process of a launch, as the controller sees it: forked from a zygote, asked over a channel, and ended."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from tfbench.errors import BenchmarkError, BenchmarkSkipped, ProtocolError, WorkerDied, WorkerHung
from tfbench.protocol.channel import Channel, ChannelClosed, TimedOut, pair
from tfbench.protocol.messages import Done, Failed, LaunchRequest, M, Message, Skipped
from tfbench.race.workers import tail
from tfbench.race.zygote import Zygote
from tfbench.suite.missing_module import fix_of

PRINTED = "--- printed ---"
"""Separates a traceback from the last lines that the process wrote."""

LOG_LOOK_SECONDS = 0.2
"""How often the size of a process' output is looked at while its answer is awaited."""


@dataclass
class Process:
    """One forked process. As a context manager it is killed at the end."""

    zygote: Zygote
    channel: Channel
    pid: int
    log: IO[bytes] = field(repr=False)
    _ended: tuple[int | None, str] | None = None

    @classmethod
    def start(cls, zygote: Zygote, request: LaunchRequest, descriptors: Sequence[int] = ()) -> Process:
        """Fork the process of a launch.

        Args:
            descriptors: Open files for the process, besides its channel and its log.

        Raises:
            SideError: The zygote is gone.
            BenchmarkError: There is no room for its output.
        """
        channel, theirs = pair()
        try:
            log = tempfile.TemporaryFile(dir=zygote.scratch)
        except OSError as error:
            channel.close()
            theirs.close()
            raise BenchmarkError(f"no temporary file can be written: {error.strerror}") from None
        try:
            with theirs:
                pid = zygote.launch(request, [theirs.fileno(), log.fileno(), *descriptors])
        except BaseException:
            channel.close()
            log.close()
            raise
        return cls(zygote, channel, pid, log)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(kill=True)

    def ask(self, request: Message) -> None:
        """Send a request. If the process is gone, `answer` reports why."""
        with suppress(ChannelClosed):
            self.channel.send(request)

    def answer(self, wanted: type[M], when: str, seconds: float, waited: float = 0.0) -> M:
        """Return the next message, which must be of this type. After any error the process has ended.

        Args:
            when: The phase of the launch, for the error: ``while it was probed``, or ``""`` for the set-up.
            seconds: Time limit.
            waited: How much of it has passed.

        Raises:
            BenchmarkSkipped: The benchmark skips itself.
            WorkerDied, WorkerHung: The process ended, or did not answer in time.
            BenchmarkError: The benchmark broke or returned early, or the message is malformed.
        """
        phase = f" {when}" if when else ""
        try:
            message = self._receive(wanted, max(0.0, seconds - waited))
        except ChannelClosed:
            status, output = self.end(kill=False)
            raise WorkerDied(f"the process {self._ending(status)}{phase}", output) from None
        except TimedOut:
            output = self.end(kill=True)[1]
            raise WorkerHung(
                f"the process did not answer within {seconds:.3g} s{phase}, and was killed", output
            ) from None
        except ProtocolError as error:
            output = self.end(kill=True)[1]
            raise BenchmarkError(f"the process sent no valid message{phase}: {error}", output) from None
        if isinstance(message, wanted):
            return message
        output = self.end(kill=False)[1]
        if isinstance(message, Skipped):
            raise BenchmarkSkipped(message.message)
        failed = message if isinstance(message, Failed) else Failed("the benchmark ended early")
        fix = fix_of(failed.message, self.zygote.side.root)
        text = "; ".join(filter(None, (failed.message, fix)))
        printed = f"{PRINTED}\n{output}" if failed.trace and output else output
        both = "\n".join(filter(None, (failed.trace, printed)))
        raise BenchmarkError(f"{when}: {text}" if when else text, both)

    def _receive(self, wanted: type[Message], seconds: float) -> Message:
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self.channel.receive(wanted, Done, Failed, Skipped, timeout=min(left, LOG_LOOK_SECONDS))
            except TimedOut:
                self.check_output()
                if left <= LOG_LOOK_SECONDS:
                    raise

    def check_output(self) -> None:
        """Kill the process if it has written too much.

        Raises:
            BenchmarkError: It has written more than the policy's `output_bytes`.
        """
        limit = self.zygote.policy.output_bytes
        if self._ended is None and os.fstat(self.log.fileno()).st_size > limit:
            output = self.end(kill=True)[1]
            raise BenchmarkError(f"the process printed more than {limit >> 20} MiB, and was killed", output)

    def resume(self) -> None:
        """Let it go on if another process of the launch has stopped it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def end(self, *, kill: bool) -> tuple[int | None, str]:
        """End the process; return its exit code, if known, and the last lines it wrote. Ending twice is fine."""
        if self._ended is None:
            self.channel.close()
            status = self.zygote.reap(self.pid, kill=kill)
            with self.log:
                self._ended = status, tail(self.log)
        return self._ended

    def _ending(self, status: int | None) -> str:
        if status is None:
            return "ended with its zygote"
        if status >= 0:
            return f"died (exit code {status})"
        if -status == signal.SIGXFSZ:
            return f"died (SIGXFSZ): it wrote a file of more than {self.zygote.policy.file_bytes >> 20} MiB"
        try:
            return f"died ({signal.Signals(-status).name})"
        except ValueError:
            return f"died (signal {-status})"
