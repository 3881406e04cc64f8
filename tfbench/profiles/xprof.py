"""Tables of xprof: operations and their statistics.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from tfbench.errors import ProfileError
from tfbench.fs import python_path
from tfbench.model import JSON
from tfbench.profiles.tfdata import without_numbers

# Tables of numbers with units, independent of the output format, for the sections of a profile


Cell = str | float | int | bool | None
Row = TypeVar("Row")

SECONDS, BYTES, SHARE, COUNT, TEXT, NAME = "s", "B", "1", "count", "", "name"
"""Units of a column. A share is a fraction of 1. A name, such as that of an op, may be very long."""

SHORT = 20
"""Rows per table in a report of many profiles."""

TITLES = {
    "errors": "Errors of the profiler",
    "overview": "Overview",
    "advice": "Advice",
    "input": "Input pipeline analyzer",
    "tf_data": "tf.data bottleneck analysis",
    "ops": "TensorFlow stats",
    "kernels": "Kernel stats",
    "memory": "Memory profile",
    "pods": "Pod view",
}
"""Name of a tool -> title of its section, in reading order."""


@dataclass(frozen=True, slots=True)
class Column:
    """Heading and unit of a column."""

    name: str
    unit: str = TEXT


def column(name: str, unit: str = TEXT, source: str = "", per: float = 1.0) -> dict[str, Any]:
    """Return the ``metadata`` that makes a dataclass field a column of `table_of`.

    Args:
        source: xprof's name of the value, which `tfbench.profiles.xprof.row_of` reads.
        per: xprof's units per unit of the column, such as 1e6 for microseconds.
    """
    return {"column": Column(name, unit), "source": source, "per": per}


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a section, with the most important rows first."""

    name: str
    """Unique within its section and part of a file name: letters, digits and ``_``."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table_of(
    name: str, title: str, kind: type[Row], rows: Iterable[Row], share: Callable[[Row], float] | None = None
) -> Table:
    """Build a table from dataclass instances: one row each, one column per field declared with `column`.

    Args:
        kind: The dataclass of the rows, which gives the columns even without any row.
        share: Computes a last column ``share``, a fraction of 1.
    """
    shown = [field for field in fields(kind) if "column" in field.metadata]  # type: ignore[arg-type]
    columns = [field.metadata["column"] for field in shown] + ([Column("share", SHARE)] if share else [])
    cells = (
        (*(getattr(row, field.name) for field in shown), *([share(row)] if share else []))
        for row in rows
    )  # fmt: skip
    return Table(name, title, tuple(columns), tuple(cells))


def parts_table(name: str, title: str, parts: Mapping[str, float], whole: float) -> Table:
    """Build a table of seconds by part, each with its share of the whole."""
    columns = (Column("part"), Column("time", SECONDS), Column("share", SHARE))
    return Table(name, title, columns, tuple((part, time, time / (whole or math.inf)) for part, time in parts.items()))


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one tool, or the reason for their absence."""

    tool: str
    """A key of `TITLES`."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Findings as sentences, the most important first."""
    absent: str = ""
    """Why the section is empty, with the fix. ``""`` if it is not."""

    @property
    def title(self) -> str:
        return TITLES[self.tool]

    def short(self) -> Section:
        """Keep only the first `SHORT` rows of each table, for a report of many profiles."""
        tables = tuple(replace(table, rows=table.rows[:SHORT]) for table in self.tables)
        return replace(self, tables=tables)

    def as_json(self) -> JSON:
        return {
            "tool": self.tool,
            "title": self.title,
            "sheets": [asdict(table) for table in self.tables],
            "notes": list(self.notes),
            "absent": self.absent,
        }


# Ask xprof about a profile, and return its tables as rows keyed by column


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
        return Answers(absent=f"{content['error']}; pip install 'pytest-tfbench[profile]'")
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
    """Build a dataclass instance from the cells that its fields declare with `tfbench.profiles.xprof.column`.

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


# Time by op and by kernel: TensorFlow stats, the input pipeline analyzer, and kernel stats


IDLE = "IDLE"
INPUT_PARTS = {
    "reading on demand": "demanded_file_read_us",
    "reading in advance": "advanced_file_read_us",
    "preprocessing": "preprocessing_us",
    "enqueuing": "enqueue_us",
    "not classified": "unclassified_nonequeue_us",
}
"""The host's work for the input -> xprof's name of it."""
NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler had no access: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, or start the container with --cap-add=SYS_ADMIN. Also check "
    "that libcupti of TensorFlow's CUDA version is found (the log shows CUPTI_ERROR_INSUFFICIENT_PRIVILEGES or similar)"
)


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the program, over the whole profile, in seconds with (``total``) and without the ops that it calls."""

    name: str = field(metadata=column("op", NAME, "operation"))
    kind: str = field(metadata=column("type", source="type"))
    where: str = field(metadata=column("where"))
    """``host`` or ``device``."""
    occurrences: int = field(metadata=column("occurrences", COUNT, "occurrences"))
    total: float = field(metadata=column("total", SECONDS, "total_time", 1e6))
    own: float = field(metadata=column("self", SECONDS, "total_self_time", 1e6))


@dataclass(frozen=True, slots=True)
class InputOp:
    """One op of the input, over the whole profile, with times like those of `OpRow`."""

    name: str = field(metadata=column("op", NAME, "opName"))
    category: str = field(metadata=column("category", source="category"))
    calls: int = field(metadata=column("calls", COUNT, "count"))
    total: float = field(metadata=column("total", SECONDS, "timeInMs", 1e3))
    own: float = field(metadata=column("self", SECONDS, "selfTimeInMs", 1e3))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one op."""

    name: str = field(metadata=column("kernel", NAME, "kernel_name"))
    op: str = field(metadata=column("op", NAME, "op_name"))
    registers: int = field(metadata=column("registers", COUNT, "registers_per_thread"))
    """Per thread."""
    shared: int = field(metadata=column("shared memory", BYTES, "shmem_bytes"))
    """Bytes per block."""
    block: str = field(metadata=column("block", source="block_dim"))
    grid: str = field(metadata=column("grid", source="grid_dim"))
    occupancy: float = field(metadata=column("occupancy", SHARE, "occupancy_pct", 100))
    """Fraction of the warps that a multiprocessor can hold."""
    eligible: bool = field(metadata=column("Tensor Cores possible", source="is_op_tensor_core_eligible"))
    """Whether its op could use Tensor Cores."""
    tensor_cores: bool = field(metadata=column("Tensor Cores used", source="is_kernel_using_tensor_core"))
    occurrences: int = field(metadata=column("occurrences", COUNT, "occurrences"))
    total: float = field(metadata=column("total", SECONDS, "total_duration_us", 1e6))


def op_stats(answers: Answers) -> tuple[Sequence[OpRow], Section]:
    """Read xprof's framework op stats: the ops without idle time, the longest first.

    Raises:
        ProfileError: xprof gave no answer.
    """
    with_idle, *others = [_rows(grid) for grid in answers.grids(OPS)]
    ops = others[0] if others else [row for row in with_idle if row.kind != IDLE]
    return ops, Section("ops", (_table("ops", "Ops", ops), _table("ops_with_idle", "Ops and idle time", with_idle)))


def _table(name: str, title: str, rows: Sequence[OpRow]) -> Table:
    """A share is a fraction of the time on the same device, or on the host."""
    whole = {where: sum(row.own for row in rows if row.where == where) or 1.0 for where in ("host", "device")}
    return table_of(name, title, OpRow, rows, lambda row: row.own / whole[row.where])


def _rows(grid: Grid) -> list[OpRow]:
    keys, sums = ("host_or_device", "type", "operation"), ("occurrences", "total_time", "total_self_time")
    rows = (row_of(OpRow, one, where=str(one["host_or_device"]).lower()) for one in _merged(grid, keys, sums))
    return sorted(rows, key=lambda row: -row.own)


def _merged(grid: Grid, keys: Sequence[str], sums: Sequence[str]) -> list[dict[str, Any]]:
    """Merge the rows of one op, whose names, the last of ``keys``, differ only in the numbers of iterators."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in grid.rows:
        named = {**row, keys[-1]: without_numbers(str(row[keys[-1]]))}
        into = found.setdefault(tuple(named[key] for key in keys), {**named, **dict.fromkeys(sums, 0.0)})
        for name in sums:
            into[name] += number(row[name])
    return list(found.values())


def input_pipeline(answers: Answers, waiting: float) -> tuple[Sequence[InputOp], Section]:
    """Read xprof's input pipeline analyzer: the ops, the longest first.

    Args:
        waiting: Share of step time spent waiting for input, from the overview.

    Raises:
        ProfileError: xprof gave no answer.
    """
    grids = answers.grids(INPUT)
    found = with_column(grids, "opName")
    ops = [row_of(InputOp, row) for row in _merged(found, ("opName",), ("count", "timeInMs", "selfTimeInMs"))]
    ops.sort(key=lambda op: -op.own)
    host = {part: number(found.notes.get(name)) / 1e6 for part, name in INPUT_PARTS.items()}
    tables = (
        parts_table("input_host", "The host's work for the input", host, sum(host.values())),
        table_of("input_ops", "Ops of the input", InputOp, ops),
    )
    conclusions = [text for grid in grids if (text := grid.notes.get("input_conclusion"))]
    notes = (f"{waiting:.1%} of step time is spent waiting for input", *conclusions[:1])
    return ops, Section("input", tables, notes)


def kernel_stats(answers: Answers) -> tuple[Sequence[Kernel], Section]:
    """Read xprof's kernel stats: the kernels, the longest first.

    Raises:
        ProfileError: xprof gave no answer, or no kernel ran.
    """
    kernels = [row_of(Kernel, row) for row in answers.grids(KERNELS)[0].rows]
    if not kernels:
        raise ProfileError(NO_KERNELS)
    kernels.sort(key=lambda kernel: -kernel.total)
    whole = sum(kernel.total for kernel in kernels) or 1.0
    missed = sum(kernel.total for kernel in kernels if kernel.eligible and not kernel.tensor_cores)
    note = f"kernels that could use Tensor Cores but do not take {missed / whole:.0%} of the kernel time"
    table = table_of("kernels", "Kernels", Kernel, kernels, lambda kernel: kernel.total / whole)
    return kernels, Section("kernels", (table,), (note,) if missed else ())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
