"""The channel between controller and workers: one line per message over a Unix socket, file descriptors beside it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence

from tfbench.errors import ProtocolError
from tfbench.protocol.coding import QUOTED, decode, encode
from tfbench.protocol.messages import M, Message

LONGEST_MESSAGE = 64 * 1024 * 1024
"""Upper limit of a line in bytes: 300 rounds take 3 kB, the case list of a large suite 1 MB."""
_DESCRIPTORS = 64
_CHUNK = 1 << 16


class ChannelClosed(ProtocolError):
    """The other end of a channel is closed."""


class TimedOut(ProtocolError):
    """No complete message came within the time limit."""


class Channel:
    """One end of a conversation. It owns its socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""
        self.descriptors: list[int] = []
        """Open files that came with the last message. The receiver must close them."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message, with open files for the other process.

        Raises:
            ChannelClosed: The other end is closed.
            ValueError: A field is NaN or infinite.
        """
        line = encode(message)
        try:
            sent = socket.send_fds(self._socket, [line], list(descriptors)) if descriptors else 0
            self._socket.sendall(line[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed("the other process is gone") from error

    def receive(self, *wanted: type[M], timeout: float | None = None) -> M:
        """Return the next message, which must be of one of these types.

        Raises:
            ChannelClosed: The other end is closed.
            TimedOut: No complete message came within ``timeout`` seconds.
            ProtocolError: The line is malformed, or its message has another type.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self.descriptors = []
        while b"\n" not in self._buffer:
            if deadline is not None:
                # Poll at the deadline as well: an answer that is already there is no timeout.
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._socket], [], [], left)[0]:
                    raise TimedOut(f"no answer within {timeout:g} s")
            try:
                chunk, received, _, _ = socket.recv_fds(self._socket, _CHUNK, _DESCRIPTORS)
            except ConnectionResetError as error:
                raise ChannelClosed("the other process is gone") from error
            self.descriptors += received
            if not chunk:
                raise ChannelClosed("the other process is gone")
            self._buffer += chunk
            if len(self._buffer) > LONGEST_MESSAGE:
                raise ProtocolError(f"a message is longer than {LONGEST_MESSAGE} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = decode(line)
        if not isinstance(message, wanted):
            kinds = " or ".join(dict.fromkeys(kind.__name__ for kind in wanted))
            raise ProtocolError(f"expected {kinds}, got {line[:QUOTED]!r}")
        return message

    @property
    def ended(self) -> bool:
        """Whether this end or the other one is closed, or an unexpected message has arrived."""
        return self._socket.fileno() < 0 or bool(self._buffer or select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Close this end. Closing twice is fine."""
        self._socket.close()


def pair() -> tuple[Channel, socket.socket]:
    """Return a channel, and the bare socket of its other end for another process."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
