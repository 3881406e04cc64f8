"""Read, write and check files by typed classes, from which their JSON Schema follows too.

A file format is a frozen dataclass whose annotations have the bounds of its fields. The names of the fields are the
names in the file. Workers import no module that imports this one: they have no msgspec.
"""

from __future__ import annotations

import functools
import gc
import json
import math
import operator
import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from tfbench.model.case import JSON, Case
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
Cost = Annotated[float, Meta(ge=0, le=1e9), "to milliseconds"]
"""Wall time that something took, in seconds. Files have it to milliseconds."""
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


# Reading and writing


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


class FormError(ValueError):
    """Parsed JSON has another form at a place, ``""`` for the top."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"at {place or 'the top'}, {brief(what)}")
        self.place, self.what = place, what


def convert(kind: type[Typed], content: Any) -> Typed:
    """Build a typed object from parsed JSON. Keys that the class lacks are ignored.

    Raises `ValueError` if it has another form. The message starts with the place: ``at verdicts[0].ratio, …``.
    """
    try:
        return msgspec.convert(content, kind, dec_hook=_from_file)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _placed(error) from None


def _placed(error: Exception) -> FormError:
    what, _, place = str(error).partition(" - at `")  # msgspec's own form; it names the top by no place
    place = place.replace("`", "").replace("key in $", "a key of $").replace("$.", "").removeprefix("$")
    inner = error.__cause__
    if isinstance(inner, FormError):  # of free JSON
        return FormError(".".join(part for part in (place, inner.place) if part), inner.what)
    return FormError(place, what)


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


def read(kind: type[Typed], text: str) -> Typed:
    """Read JSON text strictly, see `parse_json`. Invisible characters are replaced.

    Raises `ValueError` if the text is not JSON, or has another form. The message starts with the place.
    """
    value = own(kind, text)
    return convert(kind, visible(parse_json(text))) if value is None else value


def own(kind: type[Typed], text: str, write: Callable[[Typed], str] = line) -> Typed | None:
    """Read text that ``write`` makes again from the result, as tfbench's own files; ``None`` of other text.

    No key of such text is there twice, and none is ignored. This takes a quarter of the time of the strict parser.
    """
    if "\\u" in text or printable(text) != text:
        return None
    try:
        value = msgspec.json.decode(text, type=kind, dec_hook=_from_file)
        return value if write(value) == text else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # the strict parser names the place


def visible(content: Any) -> Any:
    """Replace the invisible characters in all texts of parsed JSON."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [visible(item) for item in content]
    if isinstance(content, dict):
        return {printable(key): visible(value) for key, value in content.items()}
    return content


def check_schema(content: Any, schema: str) -> None:
    """Raise ValueError if parsed JSON is not of this schema, such as ``tfbench-job/1``."""
    written = content.get("schema") if isinstance(content, dict) else None
    if written == schema:
        return
    family = schema.partition("/")[0]
    newer = isinstance(written, str) and re.fullmatch(rf"{family}/\d{{1,4}}", written)
    fix = ": another version of tfbench wrote it" if newer else ""
    raise ValueError(f"at schema, expected {schema!r}, got {brief(repr(written))}{fix}")


def json_schema(schema: str, description: str, *kinds: Any) -> JSON:
    """Return the JSON Schema of a format whose files, or lines of them, have one of the kinds."""

    def custom(kind: Any) -> JSON:
        if not issubclass(kind, dict):
            return {"type": ["number", "null"], "minimum": 0}
        _, definitions = msgspec.json.schema_components([kind.fields])
        return {"type": "object", **next(iter(definitions.values()), {})}

    roots, definitions = msgspec.json.schema_components(kinds, schema_hook=custom, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:  # a docstring, which Python keeps with its indentation before 3.13
            definition["description"] = cleandoc(definition["description"])
        for field in definition.get("properties", {}).values():
            if field.get("default") == {}:  # msgspec writes it for all fields since 0.23, and for some before
                del field["default"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{schema.replace('/', ':')}",
        "title": schema,
        "description": description,
        "anyOf": list(roots),
        "$defs": definitions,
    }


# Classes whose form in a file is another one than in memory


def _same(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """The type of a value in a file, where it is another one than in memory, and the ways to it and back."""

    kind: Any
    to_file: Callable[[Any], Any] = _same
    of_file: Callable[[Any], Any] = _same
    item: Form | None = None
    """Of a tuple of any length: the form of its items."""


FORMS: dict[Any, Form] = {Cost: Form(Seconds, lambda seconds: round(seconds, 3))}
"""Type -> its form. The modules of formats add to it."""


def form_of(hint: Any) -> Form:
    """Find the form of a type, also within an optional one, a tuple of any length, or a mapping."""
    if hint in FORMS:
        return FORMS[hint]
    origin, given = get_origin(hint), get_args(hint)
    if origin is Annotated:
        to = form_of(given[0])
        annotated: Any = Annotated  # from Python 3.13 on it is no class
        parts = (to.kind, *given[1:])
        return to._replace(kind=annotated[parts])
    if origin in (Union, types.UnionType) and type(None) in given:
        to = form_of(functools.reduce(operator.or_, [kind for kind in given if kind is not type(None)]))
        if to.to_file is to.of_file is _same:
            return Form(hint)
        return Form(
            to.kind | None, lambda value: value and to.to_file(value), lambda value: value and to.of_file(value)
        )
    if origin is tuple and given[-1] is ...:
        to = form_of(given[0])
        if to.to_file is to.of_file is _same:
            return Form(hint, item=to)
        return Form(
            tuple.__class_getitem__((to.kind, ...)),
            lambda values: tuple(map(to.to_file, values)),
            lambda values: tuple(map(to.of_file, values)),
            to,
        )
    if isinstance(origin, type) and issubclass(origin, Mapping) and given[1] in FORMS:
        to = FORMS[given[1]]
        return Form(
            dict.__class_getitem__((given[0], to.kind)),
            lambda values: {key: to.to_file(value) for key, value in values.items()},
            lambda values: {key: to.of_file(value) for key, value in values.items()},
        )
    return Form(hint)


class Record:
    """The form of a dataclass in the file: its fields. Optional fields that are null or empty are left out.

    Args:
        columns: Name -> type, and value of a case: what a row has in place of the field ``case``.
        tag: Value of the field ``schema``.
    """

    def __init__(
        self,
        kind: Any,
        columns: Mapping[str, tuple[Any, Callable[[Case], Any]]] | None = None,
        case: Callable[[Any], Case] | None = None,
        tag: str | None = None,
    ) -> None:
        self._kind, self._columns, self._case = kind, columns or {}, case
        hints = get_type_hints(kind, include_extras=True)
        own = [field for field in fields(kind) if not (columns and field.name == "case")]
        self.forms = {field.name: form_of(hints[field.name]) for field in own}
        self._changed = [(name, form.of_file) for name, form in self.forms.items() if form.of_file is not _same]
        self.optional = {field.name: _empty(field) for field in own if _empty(field) is not MISSING}
        defaults = {
            name: (msgspec.field(default_factory=dict) if value == {} else value,)
            for name, value in self.optional.items()
        }
        rows = [
            (name, kind, None) if type(None) in get_args(kind) else (name, kind)
            for name, (kind, _) in self._columns.items()
        ]
        rows += [(name, form.kind, *defaults.get(name, ())) for name, form in self.forms.items()]
        more: JSON = {"tag": tag, "tag_field": "schema"} if tag else {}
        self.struct: Any = msgspec.defstruct(
            kind.__name__,
            rows,
            frozen=True,
            kw_only=True,
            omit_defaults=True,
            namespace={"__doc__": kind.__doc__},
            **more,
        )

    def form(self) -> Form:
        """Return the form of the class as the type of a field."""
        return Form(self.struct, self.to_file, self.of_file)

    def to_file(self, value: Any) -> Any:
        """Return the object of the file."""
        columns = {name: take(value.case) for name, (_, take) in self._columns.items()}
        return self.struct(**columns, **{name: self.field(value, name) for name in self.forms})

    def field(self, value: Any, name: str) -> Any:
        """Return a field in its form of the file."""
        made = self.forms[name].to_file(getattr(value, name))
        # An empty field is left out by identity, and Python 3.10 makes empty tuples that are not the one of its constant.
        return () if made == () else made

    def of_file(self, row: Any) -> Any:
        """Return the typed object of an object of the file."""
        content = {name: getattr(row, name) for name in self.forms}
        for name, of_file in self._changed:
            content[name] = of_file(content[name])
        return self._kind(self._case(row), **content) if self._case else self._kind(**content)


def _empty(field: Any) -> Any:
    """Return the default of a field if it is null or empty, else MISSING."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default if field.default in (None, (), "") else MISSING
