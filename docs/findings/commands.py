"""Run tfbench in a process and write the page, for find.py and survey.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfbench.untrusted import command

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "findings.md"
_TAIL = 1500
"""Characters of a failed command that are kept."""


def run(*words: str, seconds: float, makes: str = "report") -> dict:
    """Return the command, its seconds, and what it made: its ``report``, its ``file``, or the last output if it ``failed``.

    Args:
        seconds: Time limit.
        makes: ``report`` for commands with ``--report-json``, ``file`` for ``repro``.
    """
    print(command("tfbench", *words), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report, file = Path(folder, "report.json"), Path(folder, "repro_case.py")
        option = f"--report-json={report}" if makes == "report" else f"--output={file}"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tfbench", *words, option], cwd=ROOT, stdin=subprocess.DEVNULL,
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
        if file.exists():
            return {**found, "file": file.read_text(encoding="utf-8")}
    return {**found, "failed": printed.strip()[-_TAIL:]}


def within(page: str, begin: str, text: str, end: str) -> str:
    """Return the page with this text between two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}"
