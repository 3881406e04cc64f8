"""The channel between controller and workers, over real sockets."""

import os
import socket
import threading

import pytest

from tfbench.errors import ProtocolError
from tfbench.protocol import (
    Channel,
    ChannelClosed,
    Failed,
    Launched,
    LaunchRequest,
    ListDevices,
    Ready,
    Reap,
    Rounds,
    Stop,
    TimedOut,
    pair,
)


@pytest.fixture
def ends():
    ours, theirs = pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(ends):
    ours, other = ends
    ours.send(Failed("ü\n", trace="where"))
    assert other.receive(Failed) == Failed("ü\n", trace="where")


def test_long_messages_arrive_whole(ends):
    ours, other = ends
    numbers = tuple(range(200_000))
    sender = threading.Thread(target=ours.send, args=(Rounds(numbers, numbers, ()),))
    sender.start()
    assert other.receive(Rounds, timeout=10).began == numbers
    sender.join()


def test_open_files_travel_beside_a_message(ends):
    ours, other = ends
    read, write = os.pipe()
    ours.send(ListDevices(()), [write] * 253)  # as many as Linux passes on
    assert other.receive(LaunchRequest, Reap) == ListDevices(())
    assert len(other.descriptors) == 253
    os.write(other.descriptors[-1], b"x")
    assert os.read(read, 1) == b"x"
    for descriptor in (read, write, *other.descriptors):
        os.close(descriptor)


def test_the_other_end_gone_is_closed(ends):
    ours, other = ends
    other.close()
    with pytest.raises(ChannelClosed):
        ours.receive(Ready, timeout=1)
    with pytest.raises(ChannelClosed):
        ours.send(Stop())


def test_a_message_that_has_arrived_is_in_time(ends):
    ours, other = ends
    ours.send(Failed("done"))
    assert other.receive(Failed, timeout=0) == Failed("done")


def test_silence_is_timed_out(ends):
    with pytest.raises(TimedOut):
        ends[0].receive(Ready, timeout=0.01)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "not a JSON message"),
        (b"\xff\n", "not a JSON message"),
        (b'{"kind":"Reaped","status":0}\n', "expected Ready or Launched, got .*Reaped"),
    ],
)
def test_a_malformed_or_unexpected_message_is_refused_and_quoted(line, reason):
    left, right = socket.socketpair()
    right.sendall(line)
    channel = Channel(left)
    with pytest.raises(ProtocolError, match=reason):
        channel.receive(Ready, Launched, timeout=1)
    channel.close()
    right.close()
