"""Write the JSON Schemas of tfbench/schemas from the classes of the formats: ``python docs/schemas.py``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfbench import ruling  # noqa: E402
from tfbench.fleet import jobs  # noqa: E402
from tfbench.report import json_format  # noqa: E402
from tfbench.storage import baselines, history  # noqa: E402

FORMATS = {"report": json_format, "job": jobs, "baseline": baselines, "history": history, "accepted": ruling}
TARGET = ROOT / "tfbench" / "schemas"


def texts() -> dict[Path, str]:
    """Return the content of each file."""
    return {TARGET / f"{name}.json": json.dumps(module.schema(), indent=1) + "\n" for name, module in FORMATS.items()}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
