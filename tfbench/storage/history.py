"""Save and read the floors of each session, which give the spread between sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.model import JSON, EnvironmentInfo, MeasurementContext

SCHEMA = "tfbench-session/1"


@dataclass(frozen=True)
class SessionRecord:
    """Floors and code digests of one session."""

    context: MeasurementContext
    floors: Mapping[str, tuple[float, ...]]
    """Case -> seconds per iteration in the fastest block of each launch, in time order."""
    sources: Mapping[str, str]
    """Case -> digest of the benchmark's code."""


class History:
    """The sessions of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, record: SessionRecord) -> Path:
        """Write the file of a session.

        Raises:
            OSError: The folder cannot be written.
        """
        path = self.folder / f"{record.context.session.replace(':', '')}.json"
        cases = {
            case: {"source": record.sources.get(case, ""), "floors": list(floors)}
            for case, floors in record.floors.items()
        }
        content = {"schema": SCHEMA, **context_json(record.context), "cases": cases}
        write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        return path

    def read(self) -> tuple[list[SessionRecord], list[str]]:
        """Return every session, oldest first, and one line per unreadable file, which stays unchanged."""
        found, problems = [], []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(_parsed(json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                problems.append(f"{path} is not a session that tfbench can read ({type(error).__name__}: {error})")
        return sorted(found, key=lambda record: record.context.session), problems


def _parsed(content: JSON) -> SessionRecord:
    check_schema(content, SCHEMA)
    floors = {case: tuple(map(float, row["floors"])) for case, row in content["cases"].items()}
    if not all(map(usable, floors.values())):
        raise ValueError("a case has no usable times")
    sources = {case: str(row["source"]) for case, row in content["cases"].items()}
    return SessionRecord(context_of(content), floors, sources)


# Parts of a file that baselines have as well


def check_schema(content: JSON, schema: str) -> None:
    """Raise ValueError if the content has another schema."""
    if content["schema"] != schema:
        raise ValueError(f"schema {content['schema']!r} instead of {schema!r}")


def usable(seconds: Sequence[float]) -> bool:
    """Whether these are times: at least one, all of them positive and finite."""
    return bool(seconds) and all(math.isfinite(second) and second > 0 for second in seconds)


CONTEXT = ("session", "tree", "policy", "way")
"""Text fields of a `MeasurementContext`."""


def context_json(context: MeasurementContext) -> JSON:
    """Return a context as files store it."""
    return {"recipe": context.environment.as_json(), **{name: getattr(context, name) for name in CONTEXT}}


def context_of(content: JSON) -> MeasurementContext:
    """Read a context from a file's content."""
    texts = {name: str(content[name]) for name in CONTEXT}
    return MeasurementContext(environment=EnvironmentInfo.of_json(content["recipe"]), **texts)
