"""Mutations of files that know their structure: JSON by its nodes, archives by their entries, the rest by lines and bytes."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable

EVIL = "\x1b]0;x\x07\x1b[2J \u202e\u2066 \r\n::error::x ##[x] [/x] $(id) `id` ; \x00 \u2028 @all"
NAMES = [
    "-p", "@x", "/etc/passwd", "../x::y", "a" * 300, "", "\ud800", "x\n--rootdir=/", "b/x.py::y[z]", "NaN", "__class__",
]  # fmt: skip
NUMBERS = [
    0, -1, 1, 2**31, 2**53 + 1, 10**17, -(10**17), 0.5, -0.0, 1e-320, 1e-16, 1e-9, 1e9, 1e17, 1e300, -1e300, True, False,
]  # fmt: skip
RAW = [
    "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "9" * 19, "[" * 3000, "[" * 100 + "]" * 100, '{"a":' * 500,
    '{"a":1,"a":2}', '"\\ud800"', '"\\u0000"', "nul", "'x'", "01", "1.", '"' + "x" * 30_000 + '"', "[]]", "",
]  # fmt: skip
"""JSON that no writer writes."""
_MARK = "\x02raw\x02"


def some_value(rng: random.Random) -> object:
    """Draw a value of any kind, often an extreme one."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice([EVIL, *NAMES])
    if kind == 2:
        return rng.choice([None, [], {}, [[]], {"": {}}, [None], {"a": [1, "x"]}])
    if kind == 3:
        return [some_value(rng) for _ in range(rng.randrange(3))]
    if kind == 4:
        return {str(some_value(rng))[:50]: some_value(rng) for _ in range(rng.randrange(3))}
    if kind == 5:
        deep: object = rng.choice(NUMBERS)
        for _ in range(rng.choice([2, 40])):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        return deep
    return "x" * rng.choice([1, 300, 25_000])


def _places(content: object) -> list[tuple[dict | list, str | int]]:
    """List every node of a tree of JSON as its container and key."""
    found: list = []
    left = [content]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            found += [(one, key) for key in (list(one) if isinstance(one, dict) else range(len(one)))]
            left += list(one.values()) if isinstance(one, dict) else one
    return found


def mutated_json(text: str, rng: random.Random) -> str:
    """Change one to three nodes of JSON text, and seldom its characters."""
    content = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = _places(content)
        if not places:
            break
        container, key = rng.choice(places)
        act = rng.randrange(10)
        if act < 4:
            container[key] = some_value(rng)
        elif act == 4:
            del container[key]
        elif act == 6 and isinstance(container, dict):
            container[rng.choice([*NAMES, EVIL])] = container.pop(key)
        elif act == 7:
            container[key] = [container[key]] * rng.choice([1, 2, 50])
        elif act == 8 and isinstance(container[key], str):
            at = rng.randrange(len(container[key]) + 1)
            container[key] = container[key][:at] + rng.choice([EVIL, *NAMES]) + container[key][at:]
        else:
            container[key] = _MARK
    made = json.dumps(content, indent=rng.choice([None, 1]))
    made = re.sub(re.escape(json.dumps(_MARK)), lambda _: rng.choice(RAW), made)
    return mutated_text(made, rng) if rng.random() < 0.05 else made


def mutated_text(text: str, rng: random.Random) -> str:
    """Cut, repeat, insert or replace a part of a text."""
    at, width = rng.randrange(len(text) + 1), rng.choice([0, 1, 1, 2, 20])
    insert = rng.choice(["", "", EVIL, *RAW[:6], '"', "{", "]", "\n", "=", "\ufeff", text[at : at + width] * 3])
    return text[:at] if rng.random() < 0.1 else text[:at] + insert + text[at + width :]


def mutated_toml(text: str, rng: random.Random) -> str:
    """Replace a value or a key of a line, or a part of the text."""
    if rng.random() < 0.3:
        return mutated_text(text, rng)
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    key, _, _ = lines[at].partition("=")
    values = [
        "nan", "inf", "-inf", "1e400", "9" * 5000, "true", "[]", "{}", "'x'", '""', "2027-02-30", "9999-12-31T00:00:00Z",
        "07:32:00", "2027-01-31", "-1", "0", "1.08", "[" * 3000, "{a=" * 500, '"\\u0000"', "'''\n'''", '"' + "x" * 30_000 + '"',
    ]  # fmt: skip
    other = rng.choice(["x", "gone", "up_to", "metric"])
    value = rng.choice(values)
    lines[at] = rng.choice([f"{key} = {value}", f"{other} = {value}", "[[accept]]", "[accept]", ""])
    return "\n".join(lines)


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or overwrite bytes."""
    made = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not made:
            break
        at, act = rng.randrange(len(made)), rng.randrange(6)
        if act == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif act == 1:
            made[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif act == 2:
            del made[at : at + rng.choice([1, 4, 100])]
        elif act == 3:
            made[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 4])))
        elif act == 4:
            made[at : at + 8] = struct.pack("<q", rng.choice([0, -1, 2**31, 2**63 - 1, -(2**63)]))
        else:
            del made[at:]
    return bytes(made)


def mutated_archive(texts: dict[str, str], rng: random.Random) -> bytes:
    """Build an archive of mutated entries, and seldom damage its bytes."""
    made = io.BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(made, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as writing,
    ):
        warnings.simplefilter("ignore")  # a name may be there twice
        for name, text in texts.items():
            if rng.random() < 0.05:
                continue
            entry = zipfile.ZipInfo(rng.choice([*NAMES[:5], "a/b.json", "b.json"]) if rng.random() < 0.1 else name)
            if rng.random() < 0.2:
                entry.external_attr = rng.choice([0, 0o100644, 0o120777, 0o40755, 0o10644]) << 16
            content = mutated_json(text, rng) if rng.random() < 0.7 else text
            writing.writestr(entry, content.encode("utf-8", "surrogatepass"))
    return mutated_bytes(made.getvalue(), rng) if rng.random() < 0.3 else made.getvalue()


def encoded(mutate: Callable[[str, random.Random], str]) -> Callable[[str, random.Random], bytes]:
    """Make bytes of a mutation of text; seldom they are no UTF-8."""

    def mutation(text: str, rng: random.Random) -> bytes:
        made = mutate(text, rng).encode("utf-8", "surrogatepass")
        return mutated_bytes(made, rng) if rng.random() < 0.03 else made

    return mutation
