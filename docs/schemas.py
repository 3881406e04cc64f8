"""Write the JSON Schemas of tfbench/schemas from the classes of the formats: ``python docs/schemas.py``."""

from __future__ import annotations

import json
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfbench import ruling  # noqa: E402
from tfbench.fleet import jobs  # noqa: E402
from tfbench.model import Report  # noqa: E402
from tfbench.report import json_format  # noqa: E402
from tfbench.storage import baselines, history  # noqa: E402

LINES = history._RunLine, history._CaseLine, history._AcceptLine
FORMATS: dict[str, tuple[str, str, Any]] = {
    "report": (json_format.SCHEMA, "What --report-json writes.", Report),
    "job": (jobs.SCHEMA, "A part of a suite for one machine, as tfbench fleet plan writes it.", jobs.Job),
    "baseline": (baselines.SCHEMA, "What --save-baseline writes, as far as tfbench reads it.", baselines.BaselineFile),
    "history": (history.SCHEMA, "A line of a file of a history.", LINES),
    "accepted": ("tfbench-accepted/1", "Accepted regressions, as people write them in TOML.", ruling.Acceptances),
}
"""File -> name and description of its format, and its class, or those of its lines."""
TARGET = ROOT / "tfbench" / "schemas"


def schema(name: str, description: str, classes: Any) -> dict[str, Any]:
    """Return the JSON Schema of a format whose files, or lines of them, are objects of one of the classes."""

    def custom(kind: Any) -> dict[str, Any]:
        if not issubclass(kind, dict):
            return {"type": ["number", "null"], "minimum": 0}
        _, definitions = msgspec.json.schema_components([kind.fields])
        return {"type": "object", **next(iter(definitions.values()), {})}

    kinds = classes if isinstance(classes, tuple) else [classes]
    roots, definitions = msgspec.json.schema_components(kinds, schema_hook=custom, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:  # a docstring, which Python keeps with its indentation before 3.13
            definition["description"] = cleandoc(definition["description"])
        for field in definition.get("properties", {}).values():
            if field.get("default") == {}:  # msgspec writes it for all fields since 0.23, and for some before
                del field["default"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':')}",
        "title": name,
        "description": description,
        "anyOf": list(roots),
        "$defs": definitions,
    }


def texts() -> dict[Path, str]:
    """Return the content of each file."""
    return {TARGET / f"{name}.json": json.dumps(schema(*about), indent=1) + "\n" for name, about in FORMATS.items()}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
