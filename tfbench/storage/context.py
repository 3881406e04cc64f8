"""Store and read the conditions of a measurement, which files of histories and baselines have alike."""

from __future__ import annotations

import re

from tfbench.model import JSON, EnvironmentInfo, MeasurementContext
from tfbench.untrusted import a_text, an_object, brief


def check_schema(content: JSON, schema: str) -> None:
    """Raise ValueError if the content has another schema."""
    if (found := an_object(content, "the content")["schema"]) != schema:
        raise ValueError(f"schema {brief(found)!r} instead of {schema!r}")


CONTEXT = ("session", "tree", "policy", "way")
"""Text fields of a `MeasurementContext`."""


def context_json(context: MeasurementContext) -> JSON:
    """Return a context as files store it."""
    return {"recipe": context.environment.as_json(), **{name: getattr(context, name) for name in CONTEXT}}


def context_of(content: JSON) -> MeasurementContext:
    """Read a context from a file's content."""
    found = {name: a_text(content[name], name) for name in CONTEXT}
    if not _TREE.fullmatch(found["tree"]):  # it names a folder, and an argument of git
        raise ValueError(f"{brief(found['tree'])!r} is no tree of git")
    return MeasurementContext(environment=EnvironmentInfo.of_json(content["recipe"]), **found)


_TREE = re.compile(r"[0-9a-z]{0,64}")
