"""Messages as lines of JSON. What arrives is checked against the annotations of its type."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints

from tfbench.errors import ProtocolError
from tfbench.protocol.messages import MESSAGES, Message

QUOTED = 80
"""Bytes of a malformed line that an error quotes."""


def encode(message: Message) -> bytes:
    """Return the message as one line.

    Raises:
        ValueError: A field is NaN or infinite, which JSON cannot carry.
    """
    content = {"kind": type(message).__name__, **vars(message)}
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes | str) -> Message:
    """Return the message on a line.

    Raises:
        ProtocolError: The line is not JSON, its kind is unknown, or a field is missing, unknown or of a wrong type.
    """
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not a JSON message: {line[:QUOTED]!r}") from error
    kind = content.pop("kind", None) if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise ProtocolError(f"a message of no known kind: {line[:QUOTED]!r}")
    types = get_type_hints(MESSAGES[kind])
    if odd := sorted(types.keys() ^ content.keys()):
        raise ProtocolError(f"missing or unknown fields in a message ({', '.join(odd)}): {line[:QUOTED]!r}")
    values = {}
    for name, wanted in types.items():
        try:
            values[name] = _typed(content[name], wanted)
        except TypeError as error:
            raise ProtocolError(f"field {name} of a message has a wrong type: {line[:QUOTED]!r}") from error
    return MESSAGES[kind](**values)


def _typed(value: Any, wanted: Any) -> Any:
    """Return a JSON value as the annotated type: lists become tuples, integers become floats where floats are wanted."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any or type(value) is wanted:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    if type(None) in parts:
        return None if value is None else _typed(value, parts[0])
    if origin is dict and isinstance(value, dict):
        return {key: _typed(part, parts[1]) for key, part in value.items()}
    if origin is tuple and isinstance(value, list):
        if parts[-1] is ...:
            return tuple(_typed(part, parts[0]) for part in value)
        if len(value) == len(parts):
            return tuple(map(_typed, value, parts))
    raise TypeError(f"{type(value).__name__} instead of {wanted}")
