"""Ask xprof about a profile, and return its tables as rows keyed by column.

xprof is native code that prints, writes cache files next to its input, and returns ``None`` on failure. To isolate all
this, a process of its own, ``python -m tfbench.profiles.xprof ORDER``, asks it.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from tfbench.errors import ProfileError
from tfbench.fs import python_path

OVERVIEW, INPUT, OPS = "overview_page", "input_pipeline_analyzer", "framework_op_stats"
KERNELS, MEMORY, PODS = "kernel_stats", "memory_profile", "pod_viewer"
TOOLS = (OVERVIEW, INPUT, OPS, KERNELS, MEMORY, PODS)
"""Tools to ask about the first host's file. The other files are only asked for the pod view: xprof merges several files
only in its own server, and its memory profile always takes one file."""
_TAG = re.compile(r"<[^>]*>")



@dataclass(frozen=True)
class Grid:
    """One of xprof's tables, in the format of Google Charts."""

    rows: Sequence[Mapping[str, Any]] = ()
    """Keyed by column id."""
    columns: Sequence[str] = ()
    """Column ids, also of a table without rows."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """xprof's notes on the table: figures as text with a unit, and sentences."""

    @classmethod
    def of(cls, content: Any) -> Grid:
        """Parse a table from JSON.

        Raises:
            ProfileError: The JSON is not a table.
        """
        try:
            names = [column["id"] for column in content.get("cols", [])]
            cells = ([cell.get("v") if cell else None for cell in row["c"]] for row in content.get("rows", []))
            rows = [dict(zip(names, row, strict=False)) for row in cells]
            notes = {key: html.unescape(_TAG.sub("", str(value))) for key, value in content.get("p", {}).items()}
            return cls(rows, names, {key: " ".join(text.split()) for key, text in notes.items()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ProfileError(
                f"xprof's table has an unknown format ({error}): install another version of xprof"
            ) from None


@dataclass(frozen=True)
class Answers:
    """xprof's answers for one run."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """Tool -> its JSON."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Tool -> why it has no answer."""
    absent: str = ""
    """Why there is no answer at all."""

    def grids(self, tool: str) -> list[Grid]:
        """Return the tables of a tool, like `content`."""
        content = self.content(tool)
        return [Grid.of(one) for one in (content if isinstance(content, list) else [content])]

    def content(self, tool: str) -> Any:
        """Return the JSON of a tool.

        Raises:
            ProfileError: There is none, and why.
        """
        if self.absent:
            raise ProfileError(self.absent)
        if tool not in self.data:
            raise ProfileError(f"xprof has no answer: {self.errors.get(tool, 'this tool was not asked')}")
        return self.data[tool]


def ask(files: Sequence[Path], seconds: float, run: Callable[..., Any] = subprocess.run) -> Answers:
    """Have xprof read the files of one run, one per host. The pod viewer's content is keyed by file name.

    Args:
        seconds: Time limit per file.
    """
    found = [_asked(file, TOOLS if file is files[0] else (PODS,), seconds, run) for file in files]
    named = zip((file.name.removesuffix(".xplane.pb") for file in files), found, strict=True)
    reported = {name: answers.data[PODS] for name, answers in named if PODS in answers.data}
    return replace(found[0], data={**found[0].data, **({PODS: reported} if reported else {})})


def _asked(file: Path, tools: Sequence[str], seconds: float, run: Callable[..., Any]) -> Answers:
    with tempfile.TemporaryDirectory(prefix="tfbench-xprof-") as folder:
        # xprof writes cache files next to the file that it reads.
        copy, answer = Path(folder, "run", file.name), Path(folder, "answer.json")
        copy.parent.mkdir()
        shutil.copyfile(file, copy)
        order = json.dumps({"file": str(copy), "tools": tools, "answer": str(answer)})
        path = python_path(Path.cwd(), os.environ.get("PYTHONPATH", ""))
        try:
            done = run(
                [sys.executable, "-m", "tfbench.profiles.xprof", order],
                cwd=folder, env={**os.environ, "PYTHONPATH": path}, timeout=seconds, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answers(absent=f"xprof did not read the profile within {seconds:g} s")
        except OSError as error:
            return Answers(absent=f"xprof could not be started: {error.strerror}")
        text = answer.read_bytes() if answer.exists() else b""
    try:
        content = json.loads(text)
    except ValueError:
        return Answers(absent=f"xprof failed while it read the profile (exit code {done.returncode})")
    if "error" in content:
        return Answers(absent=f"{content['error']}; pip install 'tfbench[profile]'")
    data, errors = (
        {tool: one[key] for tool, one in content["tools"].items() if key in one} for key in ("data", "error")
    )
    return Answers(data, errors)


def number(value: Any) -> float:
    """Parse a cell as a number. An empty cell, or a ratio of 0 to 0, is 0."""
    try:
        found = float(value or 0)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0


def integer(value: Any) -> int:
    """Parse a cell as a whole number, like `number`."""
    return int(number(value))


_PARSERS: Mapping[type, Callable[[Any], Any]] = {str: str, bool: bool, int: integer, float: number}


def row_of(kind: type[Row], cells: Mapping[str, Any], **others: Any) -> Row:
    """Build a dataclass instance from the cells that its fields declare with `tfbench.profiles.tables.column`.

    Args:
        others: Fields to set to these values instead.

    Raises:
        KeyError: A cell is missing.
    """
    types = get_type_hints(kind)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in others:
            value = _PARSERS[types[one.name]](cells[one.metadata["source"]])
            others[one.name] = value / one.metadata["per"] if types[one.name] is float else value
    return kind(**others)


def with_column(grids: Sequence[Grid], name: str) -> Grid:
    """Return the first table that has this column, an empty one if there is none."""
    return next((grid for grid in grids if name in grid.columns), Grid())


def main(order: Mapping[str, Any]) -> None:
    """Ask xprof and write ``{"tools": {tool: {"data": …} or {"error": "…"}}}`` or ``{"error": "…"}``.

    Args:
        order: ``file`` to read, ``tools`` to ask, ``answer``, the file to write.
    """
    answer: dict[str, Any] = {"tools": {}}
    try:
        from xprof.convert import raw_to_tool_data
    except Exception as error:  # whatever prevents the import, the other sections do not need xprof
        kind = "is not installed" if isinstance(error, ImportError) else "cannot be loaded"
        answer = {"error": f"xprof {kind} ({type(error).__name__}: {error})"}
    else:
        for tool in order["tools"]:
            try:
                data, _ = raw_to_tool_data.xspace_to_tool_data([order["file"]], tool, {"use_saved_result": False})
                answer["tools"][tool] = {"data": json.loads(data)} if data else {"error": "xprof gave nothing"}
            except Exception as error:
                answer["tools"][tool] = {"error": f"{type(error).__name__}: {error}"}
    Path(order["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
