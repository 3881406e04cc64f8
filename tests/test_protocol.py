"""Messages between the wings, over real sockets."""

import os
import socket

import pytest

from tfbench.errors import ProtocolError
from tfbench.protocol import Channel, ChannelClosed, TimedOut, pair


@pytest.fixture
def ends():
    ours, theirs = pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(ends):
    ours, other = ends
    ours.send("serve", follow=[1, -1], text="ü\n")
    assert other.receive("serve") == {"kind": "serve", "follow": [1, -1], "text": "ü\n"}


def test_long_messages_arrive_whole(ends):
    import threading

    ours, other = ends
    numbers = list(range(200_000))
    sender = threading.Thread(target=ours.send, args=("rounds",), kwargs={"began": numbers})
    sender.start()
    assert other.receive("rounds", timeout=10)["began"] == numbers
    sender.join()


def test_open_files_travel_beside_a_message(ends):
    ours, other = ends
    read, write = os.pipe()
    ours.send("launch", descriptors=[write])
    _, (received,) = other.receive_with_descriptors("launch")
    os.write(received, b"x")
    assert os.read(read, 1) == b"x"
    for descriptor in (read, write, received):
        os.close(descriptor)


def test_numbers_that_json_has_not_are_refused(ends):
    with pytest.raises(ValueError, match="JSON"):
        ends[0].send("rounds", began=[float("nan")])


def test_the_other_end_gone_is_closed(ends):
    ours, other = ends
    other.close()
    with pytest.raises(ChannelClosed):
        ours.receive("ready", timeout=1)


def test_silence_is_timed_out(ends):
    with pytest.raises(TimedOut):
        ends[0].receive("ready", timeout=0.01)


@pytest.mark.parametrize("line", [b"\n", b"[1]\n", b'{"kind":"other"}\n', b"\xff\n", b'{"kind":1}\n', b"{}\n"])
def test_what_is_no_message_of_ours_is_refused(line):
    left, right = socket.socketpair()
    right.sendall(line)
    channel = Channel(left)
    with pytest.raises(ProtocolError):
        channel.receive("ready", timeout=1)
    channel.close()
    right.close()
