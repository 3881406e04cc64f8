"""Validate JSON content by a schema, and name the outermost violation."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from tfbench.model import JSON
from tfbench.untrusted import brief

if TYPE_CHECKING:
    from jsonschema import ValidationError

Value = TypeVar("Value")
_RECURSIVE = "anything"
"""The definition of a schema that refers to itself."""
_ERRORS = 100
"""Violations among which the message names the outermost."""


class Validator:
    """A schema of JSON Schema 2020-12.

    The extra ``fleet`` has a second, faster library. It only decides that content is valid: a small report takes it 0.02 ms
    instead of 3 ms, and a fleet has a hundred thousand. Messages always come from the first library.
    """

    def __init__(self, schema: JSON) -> None:
        self._schema = schema

    def violation(self, content: Any) -> str:
        """Return where and how the content violates the schema, ``""`` if it does not."""
        if self._is_valid is not None and self._is_valid(content):
            return ""
        errors = islice(self._validator.iter_errors(content), _ERRORS)
        error = min(errors, key=lambda error: len(error.absolute_path), default=None)
        if error is None:
            return ""
        return f"at {brief('/'.join(map(str, error.absolute_path)) or 'the top')}, {brief(error.message)}"

    @cached_property
    def _is_valid(self) -> Callable[[Any], bool] | None:
        with suppress(ImportError):
            fast: Callable[[Any], bool] = (
                importlib.import_module("jsonschema_rs").Draft202012Validator(self._schema).is_valid
            )
            return fast
        return None

    @cached_property
    def _validator(self) -> Any:
        # Importing it would cost every start of tfbench a tenth of a second, and most runs read no report.
        from jsonschema import Draft202012Validator, validators

        # The library's own check of uniqueItems takes quadratic time for items of mixed types.
        validator = validators.extend(Draft202012Validator, {"uniqueItems": _unique})
        return validator(_inlined(self._schema, self._schema.get("$defs", {})))


def _inlined(schema: Any, definitions: JSON) -> Any:
    """Replace references by their definitions: looking them up takes half of the time. A recursive one stays."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name and name != _RECURSIVE:
        return _inlined(definitions[name], definitions)
    return {key: one if key == "$defs" else _inlined(one, definitions) for key, one in schema.items()}


def _unique(_: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema import ValidationError

    texts = [one for one in instance if isinstance(one, str)] if isinstance(instance, list) else []
    if unique and len(set(texts)) != len(texts):
        yield ValidationError(f"{duplicate(texts)!r} is there twice")


def duplicate(values: Iterable[Value]) -> Value:
    """Return a value that occurs more than once. The caller knows that there is one."""
    return Counter(values).most_common(1)[0][0]
