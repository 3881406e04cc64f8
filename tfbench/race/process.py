"""One launched process: forked from a zygote, spoken to over a channel, ended."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from tfbench.model import Case
from tfbench.protocol import Channel, pair
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
        with theirs:
            pid = zygote.launch(case, [theirs.fileno(), log.fileno(), *descriptors], **fields)
        return cls(zygote, channel, pid, log)

    def end(self, *, kill: bool) -> tuple[int | None, str]:
        """End it; its exit code, if anybody knows it, and the last lines it wrote."""
        self.channel.close()
        status = self.zygote.reap(self.pid, kill=kill)
        with self.log:
            return status, tail(self.log)
