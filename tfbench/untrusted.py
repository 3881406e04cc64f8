"""Handle text and JSON of unknown origin: read it strictly, and print it without effect on terminals and runners."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

DIGITS = 18
"""Maximum digits of a whole number. Seeds have ten."""
DEEPEST = 32
"""Maximum nesting of JSON. A report has 9 levels, and code that walks a text of thousands would exhaust the stack."""
TIMES = (1e-15, 1e9)
"""Shortest and longest time in seconds that a file may state. Ratios of such times are finite numbers."""

# Output

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters, which move a terminal's cursor; bidirectional controls, which reorder text; lone surrogates,
which cannot be written; and characters without width."""
_PLAIN = bytes([*b"\t\n", *range(32, 127)])
"""The visible characters of ASCII."""
_COMMAND = re.compile(r"^(\s*):(?=:|$)|##(?=\[)", re.MULTILINE)
"""Where GitHub's runner starts to read a command: ``::`` at the start of a line, ``##[`` anywhere."""


def printable(text: str) -> str:
    """Replace every character without a visible form, apart from newlines and tabs."""
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text  # a seventh of the time
    return _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def harmless(text: str) -> str:
    """Return text that neither a terminal nor, in one of its jobs, GitHub's runner takes for a command."""
    shown = printable(text)
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return shown
    return _COMMAND.sub(lambda match: f"{match[1]}: " if match[1] is not None else "## ", shown)


def brief(value: object, longest: int = 200) -> str:
    """Quote foreign text in a message: one line of visible characters, cut in its middle."""
    text = str(value)
    if len(text) > 4 * longest:
        text = f"{text[: 2 * longest]} {text[-2 * longest :]}"
    line = " ".join(printable(text).split())
    half = longest // 2
    return line if len(line) <= longest else f"{line[: half - 2]} … {line[1 - half :]}"


def some(names: Sequence[str], most: int) -> str:
    """List the first names, and count the rest: ``a, b and 3 more`` of five, if ``most`` is 2."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 case``, ``2 cases``, ``1,234 launches``."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith(('ch', 's')) else 's'}"


def described(error: Exception) -> str:
    """Quote an error that a reader of a file met. A KeyError's own text is only the key."""
    return f"{brief(error)} is missing" if isinstance(error, KeyError) else f"{type(error).__name__}: {brief(error)}"


_REST = re.compile(r"(?!.*<[A-Za-z!/?][^>]*>)[^`\x00-\x1f\x7f]+")
_FILE = re.compile(r"(?![/~@-])(?!(?:.*/)?\.\.(?:/|$))[^<>`\\\x00-\x1f\x7f]+")
_SHARED_SPEC = re.compile(
    r"(?:self|git:[A-Za-z0-9][\w./-]{0,99}(?:[~^]\d{0,3}){0,3}|(?:tensorflow|tensorflow-cpu|keras)==\d[\w.]{0,29}|tf-nightly)"
    r"(?:\+(?!self|git:)(?:(?:tensorflow|tensorflow-cpu|keras)==\d[\w.]{0,29}|tf-nightly)){0,2}", re.ASCII
)  # fmt: skip


NO_CASE = "which is no name of a benchmark: give its parameters ids without backticks and HTML tags"
"""What a message says of another name, and the fix."""


def is_case(name: str) -> bool:
    """Whether pytest can give this name to a benchmark below its root; it is then no option, ``@file`` or other path.

    The part after the file may be any printable text without backticks and HTML tags, such as ``test_x[<f4]``.
    """
    file, _, rest = name.partition("::")
    named = bool(_REST.fullmatch(rest)) or (file == name and file.endswith(".py"))
    return printable(name) == name and named and _FILE.fullmatch(file) is not None


def is_shared_spec(text: str) -> bool:
    """Whether a specification may stand in a command that strangers propose: it starts no program, sets no variable,
    and installs no package but TensorFlow and Keras."""
    return _SHARED_SPEC.fullmatch(text) is not None


def command(*words: str) -> str:
    """Write a command for a shell. Each word is quoted where the shell would read more than a word."""
    return shlex.join(words)


def render_json(content: Any, indent: int | None = None) -> str:
    """Write JSON that `parse_json` reads. Half a character, as in names of files that are not UTF-8, becomes ``?``.

    Raises `ValueError` if a number is NaN or infinite.
    """
    text = json.dumps(content, indent=indent, allow_nan=False)
    if "\\ud" not in text:
        return text
    whole = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    return json.dumps(json.loads(whole), indent=indent)


# Input


def parse_json(text: str, *, constants: bool = False) -> Any:
    """Parse JSON text strictly, and within limits of depth and size.

    With ``constants``, ``NaN`` and ``Infinity``, which other tools write, are read as ``None``.

    Raises:
        ValueError: The text is not JSON, is nested deeper than `DEEPEST`, has a number that is not finite or longer
            than `DIGITS`, has a key twice, or has half a character.
    """

    def refuse(word: str) -> None:
        if not constants:
            raise ValueError(f"{word} is not a JSON number")

    def finite(word: str) -> float:
        if not math.isfinite(number := float(word)):
            raise ValueError(f"{brief(word)} is too large for a number")
        return number

    def whole(word: str) -> int:
        if len(word) > DIGITS:
            raise ValueError(f"a number of {len(word)} digits")
        return int(word)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise ValueError(f"the key {brief(key)!r} is duplicated")
        return content

    try:
        content = json.loads(text, parse_constant=refuse, parse_float=finite, parse_int=whole, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("it is empty; write it again") from None
        raise ValueError(str(error)) from None
    if _depth(content) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    if re.search(r"\\u[dD][89a-fA-F]", text):
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it has half a character, a lone surrogate") from None
    return content


def _depth(content: Any) -> int:
    """Count the levels of nested lists and objects, up to one more than `DEEPEST`."""
    level, depth = [content], 0
    while depth <= DEEPEST and (level := [part for part in level if isinstance(part, (dict, list))]):
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
        depth += 1
    return depth


def an_object(value: Any, what: str) -> dict[str, Any]:
    """Return a value that must be a JSON object, or raise ValueError."""
    return value if isinstance(value, dict) else _refuse(value, what, "an object")


def a_list(value: Any, what: str) -> list[Any]:
    """Return a value that must be a JSON list, or raise ValueError."""
    return value if isinstance(value, list) else _refuse(value, what, "a list")


def a_text(value: Any, what: str) -> str:
    """Return a value that must be a text, or raise ValueError."""
    return value if isinstance(value, str) else _refuse(value, what, "a text")


def a_number(value: Any, what: str, low: float = -math.inf) -> float:
    """Return a value that must be a finite number of at least ``low``, or raise ValueError."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    least = f" of at least {low:g}" if math.isfinite(low) else ""
    return float(value) if usable and low <= value else _refuse(value, what, f"a number{least}")


def texts(value: Any, what: str) -> dict[str, str]:
    """Return an object whose values must be texts, or raise ValueError."""
    return {key: a_text(text, f"{what}/{key}") for key, text in an_object(value, what).items()}


def times(value: Sequence[Any], what: str) -> tuple[float, ...]:
    """Return times in seconds, of which there must be one, or raise ValueError."""
    if not value:
        raise ValueError(f"{brief(what)} has no usable times")
    low, high = TIMES
    for element in value:
        if isinstance(element, bool) or not isinstance(element, (int, float)) or not low <= element <= high:
            raise ValueError(f"{brief(what)} has no usable times: {_shown(element)}")
    return tuple(map(float, value))


def _refuse(value: Any, what: str, wanted: str) -> NoReturn:
    raise ValueError(f"{brief(what)} is {_shown(value)} instead of {wanted}")


def _shown(value: Any) -> str:
    """Name a wrong value. A list or object may be of any size, so only its type is named."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value)) or brief(repr(value[:100] if isinstance(value, str) else value), 60)
