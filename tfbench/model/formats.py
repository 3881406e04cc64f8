"""Read, write and check files by typed classes, from which their JSON Schema follows too.

A file format is a frozen dataclass, or a struct of msgspec, whose annotations have the bounds of its fields. The fields
of the class are those of the file. Workers import no module that imports this one: they have no msgspec.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from tfbench.errors import ReportError, TfbenchError
from tfbench.fs import read_text
from tfbench.model.case import JSON
from tfbench.untrusted import DEEPEST, DIGITS, TIMES, brief, parse_json, printable

Typed = TypeVar("Typed")

# Bounds of fields, which are part of the published schemas


def exactly(pattern: str) -> Meta:
    """Return the constraint that a text as a whole matches a pattern, without a line break after it."""
    return Meta(pattern=rf"^(?:{pattern})$(?!\n)")


Name = Annotated[str, Meta(min_length=1, max_length=2000, pattern=r"^[^\n\t]+$")]
Text = Annotated[str, Meta(max_length=20_000)]
Texts = dict[Annotated[str, Meta(max_length=2000)], Text]
Digest = Annotated[str, exactly("[0-9a-f]{64}")]
Count = Annotated[int, Meta(ge=0, lt=10**DIGITS)]
Number = Annotated[int, Meta(ge=1, le=1_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""A duration that may be 0."""
Time = Annotated[float, Meta(ge=TIMES[0], le=TIMES[1])]
"""A measured time in seconds, of which ratios are formed."""
Amount = Annotated[float, Meta(ge=0, le=1e18)]

if TYPE_CHECKING:
    Unbounded = float
    Unknown = float
    Free = JSON
else:

    class Unbounded(float):
        """A number of at least 0 that is infinite in memory where the file has null."""

        absent = math.inf

    class Unknown(float):
        """A number of at least 0 that is NaN in memory where the file has null."""

        absent = math.nan

    class Free(dict):
        """An object of any JSON whose size is bounded. A subclass has ``fields``, a TypedDict of those with a type."""

        fields = dict


def _bounded(value: Any, levels: int = DEEPEST) -> None:
    """Raise ValueError for free JSON that is larger, deeper or has longer texts than tfbench writes."""
    sizes = {str: 20_000, list: 100_000, dict: 10_000}
    if isinstance(value, (str, list, dict)) and len(value) > sizes[type(value)]:
        raise ValueError(f"expected at most {sizes[type(value)]} items or characters, got {len(value)}")
    if isinstance(value, int) and abs(value) >= 10**DIGITS:
        raise ValueError(f"expected at most {DIGITS} digits")
    if not levels:
        raise ValueError(f"expected at most {DEEPEST} levels")
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            _bounded(item, levels - 1)


def _from_file(kind: Any, value: Any) -> Any:
    if issubclass(kind, dict):
        convert(kind.fields, value)
        _bounded(value)
        return kind(value)
    if value is None:
        return kind(kind.absent)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"expected a number >= 0 or null, got {brief(repr(value), 60)}")
    return kind(value)


def _to_file(value: Any) -> Any:
    if isinstance(value, float):  # a subclass of it, such as numpy's
        return float(value)
    raise TypeError(f"a file cannot have a {type(value).__name__}")


# Writing


def plain(value: Any) -> Any:
    """Return the JSON content of a typed object."""
    return json.loads(line(value))


def line(value: Any) -> str:
    """Write a typed object as JSON on one line. Half a character, as in names of files that are not UTF-8, becomes ``?``.

    NaN and infinity become null, so that a reader refuses them where its class does not allow null.
    """
    try:
        return _ENCODER.encode(value).decode()
    except UnicodeEncodeError:
        content = json.dumps(msgspec.to_builtins(value, enc_hook=_to_file), ensure_ascii=False)
        return _ENCODER.encode(json.loads(content.encode(errors="replace"))).decode()


_ENCODER = msgspec.json.Encoder(enc_hook=_to_file)


# Reading


class FormError(ValueError):
    """Parsed JSON has another form at a place, ``""`` for the top."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"at {place or 'the top'}, {brief(what)}")
        self.place, self.what = place, what


def convert(kind: type[Typed], content: Any) -> Typed:
    """Build a typed object from parsed JSON. Keys that the class lacks are ignored, unless it forbids them.

    Raises `FormError` if it has another form. The message starts with the place: ``at verdicts[0].ratio, …``.
    """
    try:
        return msgspec.convert(content, kind, dec_hook=_from_file)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, place = str(error).partition(" - at `")  # msgspec's own form; it names the top by no place
        place = place.replace("`", "").replace("key in $", "a key of $").replace("$.", "").removeprefix("$")
        inner = error.__cause__
        if isinstance(inner, FormError):  # of free JSON
            place, what = ".".join(part for part in (place, inner.place) if part), inner.what
        raise FormError(place, what) from None


def parsed(text: str, *, constants: bool = False) -> Any:
    """Parse JSON text strictly, see `parse_json`. In all texts, characters without a visible form are replaced."""
    content = parse_json(text, constants=constants)
    return content if "\\u" not in text and printable(text) == text else _visible(content)


def read(kind: type[Typed], text: str, schema: str = "") -> Typed:
    """Read JSON text strictly, see `parsed`. Raises `ValueError` with the place if the text has another schema or form."""
    content = parsed(text)
    if schema:
        check_schema(content, schema)
    return convert(kind, content)


def read_named(
    kind: type[Typed],
    text: str,
    name: str | Path,
    schema: str = "",
    fix: str = "",
    error: type[TfbenchError] = ReportError,
) -> Typed:
    """Read the text of a file. Raises ``error`` with one line: the file, its fault with the place, and the fix."""
    try:
        return read(kind, text, schema)
    except ValueError as fault:
        noun = schema.partition("/")[0].removeprefix("tfbench-").replace("-", " ")
        what = f"is not a {noun} of the schema {schema}" if schema else "cannot be read"
        raise error("; ".join(filter(None, (f"{brief(name)} {what}: {brief(fault)}", fix)))) from None


def read_file(
    path: Path, kind: type[Typed], schema: str = "", fix: str = "", error: type[TfbenchError] = ReportError
) -> Typed:
    """Read a JSON file, see `read_named`."""
    try:
        text = read_text(path)
    except ReportError as fault:
        raise error("; ".join(filter(None, (str(fault), fix)))) from None
    return read_named(kind, text, path, schema, fix, error)


@contextmanager
def uncollected() -> Iterator[None]:
    """Search for no cycles until the block ends, and never among what it made: a large file makes a million objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def _visible(content: Any) -> Any:
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [_visible(item) for item in content]
    if isinstance(content, dict):
        return {printable(key): _visible(value) for key, value in content.items()}
    return content


def check_schema(content: Any, schema: str) -> None:
    """Raise ValueError if parsed JSON is not of this schema, such as ``tfbench-job/1``."""
    head = content.get("tfbench", content) if isinstance(content, dict) else None  # a baseline has it there
    written = head.get("schema") if isinstance(head, dict) else None
    if written == schema:
        return
    family = schema.partition("/")[0]
    newer = isinstance(written, str) and re.fullmatch(rf"{family}/\d{{1,4}}", written)
    fix = ": another version of tfbench wrote it" if newer else ""
    raise ValueError(f"at schema, expected {schema!r}, got {brief(repr(written))}{fix}")
