"""Print the tables of method.md again from the journals in docs/data: ``python docs/figures/tables.py``.

After a comment ``<!-- OUTPUT: command -->``, the file has what the command prints; after ``<!-- TOTALS: command -->``, it
has the totals over all workloads. The legend of the columns stands once in the text.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tfbench.fs import write_whole

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "method.md"
BLOCK = re.compile(r"<!-- (OUTPUT|TOTALS): (tfbench calibrate .*?) -->\n```\n.*?```", re.DOTALL)
COLUMNS = "104"


def main() -> None:
    text = TARGET.read_text(encoding="utf-8")
    write_whole(TARGET, BLOCK.sub(lambda found: block(found[1], found[2]), text))


def block(kind: str, command: str) -> str:
    """Return the comment of a command, and what it prints now.

    Raises:
        subprocess.CalledProcessError: The command failed.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = subprocess.run(
        shlex.split(command), cwd=ROOT, env={**os.environ, "COLUMNS": COLUMNS, "PATH": path}, check=True,
        stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    lines = [line.rstrip() for line in printed.splitlines()]
    legend = next(number for number, line in enumerate(lines) if line.startswith("false positives:"))
    table = lines[lines.index("all workloads") + 1 if kind == "TOTALS" else 0 : legend]
    facts = [line for line in lines[legend:] if line.startswith(("coverage of", "median time", "runs:"))]
    shown = "\n".join(["\n".join(table).strip("\n"), "", *facts])
    return f"<!-- {kind}: {command} -->\n```\n{shown}\n```"


if __name__ == "__main__":
    main()
