"""One launched process: forked from a zygote, spoken to over a channel, ended."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from tfbench.errors import BenchmarkError, BenchmarkSkipped, WorkerDied, WorkerHung
from tfbench.model import JSON, Case
from tfbench.protocol import Channel, ChannelClosed, TimedOut, pair
from tfbench.race.zygote import Zygote, tail


@dataclass
class Process:
    """Its channel, its pid and what it prints."""

    zygote: Zygote
    channel: Channel
    pid: int
    log: IO[bytes] = field(repr=False)

    @classmethod
    def start(cls, zygote: Zygote, case: Case | None, descriptors: Sequence[int] = (), **fields: object) -> Process:
        """Fork it for this case.

        Args:
            descriptors: Open files that it is handed beside its channel and its log.
            fields: What else it is told, see `worker.zygote`.

        Raises:
            SideError: The zygote is gone.
        """
        channel, theirs = pair()
        log = tempfile.TemporaryFile()
        try:
            with theirs:
                pid = zygote.launch(case, [theirs.fileno(), log.fileno(), *descriptors], **fields)
        except BaseException:
            channel.close()
            log.close()
            raise
        return cls(zygote, channel, pid, log)

    def answer(self, kind: str, doing: str, seconds: float) -> JSON:
        """Its next message, which has to be of this kind.

        Args:
            doing: What is done with it, for the reason of a failure: ``probed``.
            seconds: How long to wait.

        Raises:
            BenchmarkSkipped: It cannot run here.
            BenchmarkError: It says or shows that it broke, died or hung.
        """
        try:
            kinds = dict.fromkeys((kind, "done", "failed", "skipped"))
            message = self.channel.receive(*kinds, timeout=seconds)
        except ChannelClosed:
            raise WorkerDied(f"its process ended while it was {doing}", tail(self.log)) from None
        except TimedOut:
            text = f"it did not answer within {seconds:g} s while it was {doing}, and was killed"
            raise WorkerHung(text, tail(self.log)) from None
        if message["kind"] == "skipped":
            raise BenchmarkSkipped(message["message"])
        if message["kind"] != kind:
            text = message.get("message", "it ended early")
            raise BenchmarkError(f"while it was {doing}: {text}", message.get("trace") or tail(self.log))
        return message

    def end(self, *, kill: bool) -> tuple[int | None, str]:
        """End it; its exit code, if anybody knows it, and the last lines it wrote."""
        self.channel.close()
        status = self.zygote.reap(self.pid, kill=kill)
        with self.log:
            return status, tail(self.log)
