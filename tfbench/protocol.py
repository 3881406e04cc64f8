"""The messages between the wings: one JSON object a line over a Unix socket, file descriptors beside it.

Controller to zygote: ``launch``, ``reap``. Zygote to controller: ``ready``, ``failed``,
``launched``, ``reaped``. Controller to a launched process: ``serve``, ``stop``. Launched process to
controller: ``prepared``, ``skipped``, ``failed``, ``rounds``, ``probed``, ``profiled``, ``looped``, ``done``. Every message is a
request's answer or a request, never both at once, so that a line is all that has to be waited for.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from tfbench.errors import ProtocolError
from tfbench.model import JSON

LONGEST_MESSAGE = 64 * 1024 * 1024
"""A longer line is not one of ours: 300 rounds are 3 kB, the case list of a large suite 1 MB."""
_DESCRIPTORS = 64
_CHUNK = 1 << 16


class ChannelClosed(ProtocolError):
    """The other end is gone."""


class TimedOut(ProtocolError):
    """Nothing came within the time allowed."""


class Channel:
    """One end of a conversation; owns its socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        """The channel on an inherited socket."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, *, descriptors: Sequence[int] = (), **fields: Any) -> None:
        """Send one message, with open files for the other process.

        Raises:
            ChannelClosed: The other end is gone.
            ValueError: A field is NaN or infinite, which JSON cannot carry.
        """
        line = json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            if descriptors:
                sent = socket.send_fds(self._socket, [line], list(descriptors))
                line = line[sent:]
            self._socket.sendall(line)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed("the other process is gone") from error

    def receive(self, *kinds: str, timeout: float | None = None) -> JSON:
        """The next message, which must be of one of these kinds.

        Raises:
            ChannelClosed: The other end is gone.
            TimedOut: Nothing whole came within ``timeout`` seconds.
            ProtocolError: It is no message of ours.
        """
        return self.receive_with_descriptors(*kinds, timeout=timeout)[0]

    def receive_with_descriptors(self, *kinds: str, timeout: float | None = None) -> tuple[JSON, list[int]]:
        """As `receive`, with the open files that came beside the message; the caller owns them."""
        deadline = None if timeout is None else time.monotonic() + timeout
        descriptors: list[int] = []
        while b"\n" not in self._buffer:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                    raise TimedOut(f"no answer within {timeout:g} s")
            try:
                chunk, received, _, _ = socket.recv_fds(self._socket, _CHUNK, _DESCRIPTORS)
            except ConnectionResetError as error:
                raise ChannelClosed("the other process is gone") from error
            descriptors += received
            if not chunk:
                raise ChannelClosed("the other process is gone")
            self._buffer += chunk
            if len(self._buffer) > LONGEST_MESSAGE:
                raise ProtocolError(f"a message is longer than {LONGEST_MESSAGE} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _parsed(line, kinds), descriptors

    def ended(self) -> bool:
        """Whether the other end is gone with nothing left to read; to be asked when there is something."""
        try:
            return not self._buffer and not self._socket.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close this end; closing twice is fine."""
        self._socket.close()


def _parsed(line: bytes, kinds: Sequence[str]) -> JSON:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not a JSON message: {line[:80]!r}") from error
    if not isinstance(message, dict) or message.get("kind") not in kinds:
        raise ProtocolError(f"expected {' or '.join(kinds)}, got {line[:80]!r}")
    return message


def pair() -> tuple[Channel, socket.socket]:
    """A channel and the bare socket of its other end, to be handed to another process."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


def token_pipe() -> tuple[int, int]:
    """A pipe that a turn is handed over: reading one byte is having the turn."""
    return os.pipe()
