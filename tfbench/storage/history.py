"""Save and read the floors of each session, which give the spread between sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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
        context = record.context
        path = self.folder / f"{context.session.replace(':', '')}.json"
        cases = {
            case: {"source": record.sources.get(case, ""), "floors": list(floors)}
            for case, floors in record.floors.items()
        }
        content = {
            "schema": SCHEMA,
            "session": context.session,
            "policy": context.policy,
            "way": context.way,
            "tree": context.tree,
            "recipe": context.environment.as_json(),
            "cases": cases,
        }
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
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema {content['schema']!r} instead of {SCHEMA!r}")
    floors = {case: tuple(map(float, row["floors"])) for case, row in content["cases"].items()}
    if not all(row and all(math.isfinite(floor) and floor > 0 for floor in row) for row in floors.values()):
        raise ValueError("a case has no usable times")
    context = MeasurementContext(
        session=str(content["session"]),
        environment=EnvironmentInfo.of_json(content["recipe"]),
        tree=str(content["tree"]),
        policy=str(content["policy"]),
        way=str(content["way"]),
    )
    return SessionRecord(context, floors, {case: str(row["source"]) for case, row in content["cases"].items()})
