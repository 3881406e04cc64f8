"""The messages between controller and workers: their form on the line, and the check of their fields."""

import json
from typing import get_type_hints

import pytest

from tfbench import protocol
from tfbench.errors import ProtocolError
from tfbench.protocol import (
    MESSAGES,
    DevicesListed,
    Prepared,
    ProfileCase,
    Ready,
    Reap,
    Rounds,
    SampleCase,
    Sampled,
    Serve,
    ServeSliced,
    StartAncestor,
    StartZygote,
    Stop,
    decode,
    encode,
)  # fmt: skip

EXAMPLES = [
    StartAncestor(3, 7, (1, 2), 1 << 32, True),
    StartZygote("/side", ("a.py",), "", "importlib", "/made", "/a:/b", ("/working", "/other"), ("/side/b.py",), 3),
    StartZygote("/side", (), "", "importlib", "/made", "", None, tree="/side", watches=True),
    ProfileCase((1,), "a", "/logs", (10, 60), 0.04, (0.05, 0.5, 0.02, 3.0), 0.0),
    Ready(("a", "b"), {"c.py": "no"}, (), {"packages": {"numpy": "2"}}, None, False, (), {"mine": "/site-packages"}),
    Ready((), {}, (), {}, 2.5, True, ("mine",), {}),
    Reap(7, 0.5),
    Serve((1, 0, -1), 30, 40, 0.1, (0, 17), (0.05, 10.0, 0.0), 0.01),
    Stop(),
    Prepared(1e-5, {"parts": [1, None, {"a": "b"}]}, True),
    Rounds((1, 3), (2, 4), ()),
    ServeSliced((0, 2), (1, 2), 1, 0.05),
    Prepared(0.1, {}, False, 0.003, works_on=True, waits=True),
    DevicesListed({"CPU": ("cpu:0",), "GPU": ("a", "b")}),
    SampleCase((0,), "a", 1.0, False, True),
    Sampled(3, 0.5, 400, {"a.b": (30, 90)}, {"python": 1.0, "types": {"a.B": 3}}),
]  # fmt: skip


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_json_object_on_a_line_that_decodes_to_itself(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert json.loads(line)["kind"] == type(message).__name__
    assert decode(line) == message


def test_every_message_has_a_kind_of_its_own_and_fields_that_can_be_checked():
    types = [one for one in vars(protocol).values() if isinstance(one, type) and issubclass(one, protocol.Message)]
    kinds = [one.__name__ for one in types if not one.__subclasses__()]
    assert sorted(kinds) == sorted(one.__name__ for one in MESSAGES.values())
    for kind in MESSAGES.values():
        assert get_type_hints(kind) is not None


@pytest.mark.parametrize("base", [protocol.Message, protocol.ForkRequest, protocol.LaunchRequest])
def test_a_base_of_messages_is_no_message(base):
    with pytest.raises(ProtocolError, match="no known kind"):
        decode(json.dumps({"kind": base.__name__}))


def test_whole_numbers_are_fractions_where_fractions_are_wanted():
    message = decode(encode(Serve((), 1, 1, 0.0, ())).replace(b'"extra":0.0', b'"extra":0'))
    assert message == Serve((), 1, 1, 0.0, ())
    assert isinstance(message.extra, float)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        encode(Prepared(float("nan"), {}))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not a JSON message"),
        ('{"kind":"other"}', "no known kind"),
        ('{"kind":"Reap","pid":7}', r"missing or unknown fields in a message \(patience\)"),
        ('{"kind":"Stop","now":true}', r"missing or unknown fields in a message \(now\)"),
        ('{"kind":"Reap","pid":true,"patience":1.0}', "field pid .* wrong type"),
        ('{"kind":"DevicesListed","devices":{"GPU":"a"}}', "field devices .* wrong type"),
        (encode(EXAMPLES[3]).decode().replace("[10,60]", "[10]"), "field steps .* wrong type"),
    ],
)
def test_a_wrong_or_missing_field_is_an_error_that_quotes_the_start_of_the_line(line, reason):
    with pytest.raises(ProtocolError, match=reason) as caught:
        decode(line)
    assert repr(line[:30])[:-1] in str(caught.value)
