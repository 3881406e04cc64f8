"""Save and read the floors of each session, which give the spread between sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import ReportError
from tfbench.fs import read_text, write_whole
from tfbench.model import JSON, EnvironmentInfo, MeasurementContext
from tfbench.untrusted import a_list, a_text, an_object, brief, described, parse_json, times

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
                found.append(_parsed(parse_json(read_text(path))))
            except (ReportError, ValueError, KeyError) as error:
                problems.append(f"{brief(path)} is not a session that tfbench can read ({described(error)})")
        return sorted(found, key=lambda record: record.context.session), problems


def _parsed(content: JSON) -> SessionRecord:
    check_schema(content, SCHEMA)
    cases = {case: an_object(row, case) for case, row in an_object(content["cases"], "cases").items()}
    floors = {case: times(a_list(row["floors"], "floors"), case) for case, row in cases.items()}
    sources = {case: a_text(row["source"], "source") for case, row in cases.items()}
    return SessionRecord(context_of(content), floors, sources)


# Parts of a file that baselines have as well


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
