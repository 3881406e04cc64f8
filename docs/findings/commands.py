"""Run tfbench in a process and write the page, for find.py and survey.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfbench.fs import write_whole
from tfbench.untrusted import command

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "findings.md"
_TAIL = 1500
"""Characters of a failed command that are kept."""


def run(*words: str, seconds: float) -> dict:
    """Return the command, its seconds, and its ``report``, or the last output if it ``failed`` or took too long."""
    print(command("tfbench", *words), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tfbench", *words, f"--report-json={report}"], cwd=ROOT, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=seconds, check=False,
            )  # fmt: skip
            printed = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            printed = f"it took longer than {seconds:.0f} s"
        found = {"command": command("tfbench", *words), "wall_seconds": round(time.monotonic() - began, 1)}
        if report.exists():
            content = json.loads(report.read_text(encoding="utf-8"))
            content.pop("policy", None)
            return {**found, "report": content}
    return {**found, "failed": printed.strip()[-_TAIL:]}


class Records:
    """A file of recorded results by name, with a row a line: about a result, each of its cases, and each slower one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict]:
        found: dict[str, dict] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            row = json.loads(line)
            content = found.setdefault(row.pop("name"), {})
            if "row" in row:
                content["report"]["cases"].append(row["row"])
            elif "slower" in row:
                content.setdefault("slower", []).append(row["slower"])
            else:
                content.update(row)
        return found

    def write(self, name: str, content: dict) -> None:
        """Add a result, or replace the one of this name."""
        rows = []
        for key, known in {**self.read(), name: content}.items():
            about = {key: value for key, value in known.items() if key != "slower"}
            if report := about.get("report"):
                about["report"] = {**report, "cases": []}
            rows += [{"name": key, **about}]
            rows += [{"name": key, "row": row} for row in (report or {}).get("cases", ())]
            rows += [{"name": key, "slower": row} for row in known.get("slower", ())]
        self.path.parent.mkdir(exist_ok=True)
        write_whole(self.path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def within(page: str, begin: str, text: str, end: str) -> str:
    """Return the page with this text between two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}"
