"""Have xprof read a profile, and lay out its answers as sections.

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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from tfbench.errors import ProfileError
from tfbench.fs import python_path, scratch_dir
from tfbench.profiles import (
    BYTES,
    COUNT,
    NAME,
    SECONDS,
    SHARE,
    TEXT,
    Cell,
    Column,
    Section,
    Table,
    parts_table,
)
from tfbench.profiles.tfdata import without_numbers
from tfbench.profiles.xplane import NO_MARKER
from tfbench.untrusted import plural

# Ask xprof about a profile, and return its tables as rows keyed by column


OVERVIEW, INPUT, OPS = "overview_page", "input_pipeline_analyzer", "framework_op_stats"
KERNELS, MEMORY = "kernel_stats", "memory_profile"
TOOLS = (OVERVIEW, INPUT, OPS, KERNELS, MEMORY)
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
        """Parse a table from JSON. Raises `ProfileError` if the JSON is not a table."""
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
        return [Grid.of(table) for table in (content if isinstance(content, list) else [content])]

    def content(self, tool: str) -> Any:
        """Return the JSON of a tool. Raises `ProfileError`, which says why there is none."""
        if self.absent:
            raise ProfileError(self.absent)
        if tool not in self.data:
            raise ProfileError(f"xprof has no answer: {self.errors.get(tool, 'this tool was not asked')}")
        return self.data[tool]


def ask(file: Path, seconds: float, run: Callable[..., Any] = subprocess.run) -> Answers:
    """Have xprof read an XPlane file in so many seconds at most."""
    with tempfile.TemporaryDirectory(prefix="xprof-", dir=scratch_dir()) as folder:
        # xprof writes cache files next to the file that it reads.
        copy, answer = Path(folder, "run", file.name), Path(folder, "answer.json")
        copy.parent.mkdir()
        shutil.copyfile(file, copy)
        order = json.dumps({"file": str(copy), "tools": TOOLS, "answer": str(answer)})
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
        {tool: answer[key] for tool, answer in content["tools"].items() if key in answer} for key in ("data", "error")
    )
    return Answers(data, errors)


def number(value: Any) -> float:
    """Parse a cell as a number. An empty cell, or a ratio of 0 to 0, is 0."""
    try:
        amount = float(value or 0)
    except (TypeError, ValueError):
        return 0.0
    return amount if math.isfinite(amount) else 0.0


def integer(value: Any) -> int:
    """Parse a cell as a whole number, like `number`."""
    return int(number(value))


def with_column(grids: Sequence[Grid], name: str) -> Grid:
    """Return the first table that has this column, an empty one if there is none."""
    return next((grid for grid in grids if name in grid.columns), Grid())


def main(order: Mapping[str, Any]) -> None:
    """Ask xprof and write ``{"tools": {tool: {"data": …} or {"error": "…"}}}`` or ``{"error": "…"}``.

    ``order`` has the ``file`` to read, the ``tools`` to ask, and ``answer``, the file to write.
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


# Lay out xprof's answers: each column of a table names its cell in xprof's rows


Row = Mapping[str, Any]
IDLE = "IDLE"
NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler had no access: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, or start the container with --cap-add=SYS_ADMIN. Also check "
    "that libcupti of TensorFlow's CUDA version is found (the log shows CUPTI_ERROR_INSUFFICIENT_PRIVILEGES or similar)"
)


class Source(NamedTuple):
    """A column, and the cell of xprof that has its value."""

    name: str
    cell: str
    unit: str = TEXT
    per: float = 1.0
    """xprof's units per unit of the column, such as 1e6 for microseconds."""

    def read(self, row: Row) -> Cell:
        """Read the cell of a row. Raises `KeyError` if the row has no such cell."""
        value = row[self.cell]
        if self.unit in (TEXT, NAME):
            return value if isinstance(value, bool) else str(value)
        return integer(value) if self.unit in (BYTES, COUNT) else number(value) / self.per


def table_of(
    name: str, title: str, sources: Sequence[Source], rows: Iterable[Row], share: Callable[[Row], float] | None = None
) -> Table:
    """Lay out rows of xprof. ``share`` computes a last column, a fraction of 1."""
    columns = [Column(source.name, source.unit) for source in sources] + ([Column("share", SHARE)] if share else [])
    cells = ((*(source.read(row) for source in sources), *([share(row)] if share else [])) for row in rows)
    return Table(name, title, tuple(columns), tuple(cells))


def _longest_first(rows: Iterable[Row], cell: str) -> list[Row]:
    return sorted(rows, key=lambda row: -number(row[cell]))


_OPS = (
    Source("op", "operation", NAME),
    Source("type", "type"),
    Source("where", "host_or_device"),
    Source("occurrences", "occurrences", COUNT),
    Source("total", "total_time", SECONDS, 1e6),
    Source("self", "total_self_time", SECONDS, 1e6),
)
_INPUT_OPS = (
    Source("op", "opName", NAME),
    Source("category", "category"),
    Source("calls", "count", COUNT),
    Source("total", "timeInMs", SECONDS, 1e3),
    Source("self", "selfTimeInMs", SECONDS, 1e3),
)
_INPUT_PARTS = {
    "reading on demand": "demanded_file_read_us",
    "reading in advance": "advanced_file_read_us",
    "preprocessing": "preprocessing_us",
    "enqueuing": "enqueue_us",
    "not classified": "unclassified_nonequeue_us",
}
"""The host's work for the input -> xprof's name of it."""
_USED = "is_kernel_using_tensor_core"
_ON_TENSOR_CORES = ("nvjet_",)
"""Starts of the names of kernels on Tensor Cores that xprof 2.22 does not know: cuBLAS's for Hopper. One of a float16 product
does 759 TFLOP/s on an H200, which has 134 without them."""
_KERNELS = (
    Source("kernel", "kernel_name", NAME),
    Source("op", "op_name", NAME),
    Source("registers", "registers_per_thread", COUNT),
    Source("shared memory", "shmem_bytes", BYTES),
    Source("block", "block_dim"),
    Source("grid", "grid_dim"),
    Source("occupancy", "occupancy_pct", SHARE, 100),
    Source("Tensor Cores possible", "is_op_tensor_core_eligible"),
    Source("Tensor Cores used", _USED),
    Source("occurrences", "occurrences", COUNT),
    Source("total", "total_duration_us", SECONDS, 1e6),
)


def op_stats(answers: Answers) -> tuple[Sequence[Row], Section]:
    """Read xprof's framework op stats. Return the ops without idle time, the longest first.

    Raises `ProfileError` if xprof gave no answer.
    """
    keys, sums = ("host_or_device", "type", "operation"), ("occurrences", "total_time", "total_self_time")
    with_idle, *others = (
        _longest_first(
            ({**row, "host_or_device": str(row["host_or_device"]).lower()} for row in _merged(grid, keys, sums)),
            "total_self_time",
        )
        for grid in answers.grids(OPS)
    )
    ops = others[0] if others else [row for row in with_idle if row["type"] != IDLE]
    return ops, Section(
        "ops", (_op_table("ops", "Ops", ops), _op_table("ops_with_idle", "Ops and idle time", with_idle))
    )


def _op_table(name: str, title: str, rows: Sequence[Row]) -> Table:
    """Lay out ops. A share is a fraction of the time on the same device, or on the host."""
    whole: dict[str, float] = defaultdict(float)
    for row in rows:
        whole[row["host_or_device"]] += number(row["total_self_time"])
    return table_of(
        name, title, _OPS, rows, lambda row: number(row["total_self_time"]) / (whole[row["host_or_device"]] or 1.0)
    )


def _merged(grid: Grid, keys: Sequence[str], sums: Sequence[str]) -> list[dict[str, Any]]:
    """Merge the rows of one op, whose names, the last of ``keys``, differ only in the numbers of iterators."""
    merged: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in grid.rows:
        named = {**row, keys[-1]: without_numbers(str(row[keys[-1]]))}
        into = merged.setdefault(tuple(named[key] for key in keys), {**named, **dict.fromkeys(sums, 0.0)})
        for name in sums:
            into[name] += number(row[name])
    return list(merged.values())


def input_pipeline(answers: Answers, waiting: float) -> Section:
    """Read xprof's input pipeline analyzer. Raises `ProfileError` if xprof gave no answer.

    ``waiting`` is the share of step time spent waiting for input, from the overview.
    """
    grids = answers.grids(INPUT)
    listed = with_column(grids, "opName")
    ops = _longest_first(_merged(listed, ("opName",), ("count", "timeInMs", "selfTimeInMs")), "selfTimeInMs")
    host = {part: number(listed.notes.get(name)) / 1e6 for part, name in _INPUT_PARTS.items()}
    tables = (
        parts_table("input_host", "The host's work for the input", host, sum(host.values())),
        table_of("input_ops", "Ops of the input", _INPUT_OPS, ops),
    )
    conclusions = [text for grid in grids if (text := grid.notes.get("input_conclusion"))]
    return Section("input", tables, (f"{waiting:.1%} of step time is spent waiting for input", *conclusions[:1]))


def kernel_stats(answers: Answers) -> Section:
    """Read xprof's kernel stats. Raises `ProfileError` if xprof gave no answer, or no kernel ran."""
    rows = _longest_first(answers.grids(KERNELS)[0].rows, "total_duration_us")
    if not rows:
        raise ProfileError(NO_KERNELS)
    rows = [{**row, _USED: row[_USED] or str(row["kernel_name"]).startswith(_ON_TENSOR_CORES)} for row in rows]

    def seconds(chosen: Iterable[Row]) -> float:
        return sum(number(row["total_duration_us"]) for row in chosen)

    whole = seconds(rows) or 1.0
    used = seconds(row for row in rows if row[_USED])
    missed = seconds(row for row in rows if row["is_op_tensor_core_eligible"] and not row[_USED])
    notes = [f"kernels on Tensor Cores take {used / whole:.0%} of the kernel time"]
    if missed:
        notes.append(f"kernels that could use Tensor Cores but do not take {missed / whole:.0%} of the kernel time")
    table = table_of("kernels", "Kernels", _KERNELS, rows, lambda row: number(row["total_duration_us"]) / whole)
    return Section("kernels", (table,), tuple(notes))


# Memory: what each allocator held, over time and at its peak


_ALLOCATORS = (
    Source("allocator", "allocator"),
    Source("peak", "peakBytesInUse", BYTES),
    Source("lifetime peak", "peakBytesUsageLifetime", BYTES),
    Source("capacity", "memoryCapacity", BYTES),
    Source("fragmentation at the peak", "fragmentation", SHARE),
    Source("time of the peak", "peakStatsTimePs", SECONDS, 1e12),
)
_AT_PEAK = (
    Source("allocator", "allocator"),
    Source("op", "tfOpName", NAME),
    Source("region", "regionType"),
    Source("type", "dataType"),
    Source("shape", "tensorShape"),
    Source("bytes", "amount", BYTES),
    Source("count", "numOccurrences", COUNT),
)
_TIMELINE = (
    Source("allocator", "allocator"),
    Source("time", "timeOffsetPs", SECONDS, 1e12),
    Source("used", "heapAllocatedBytes", BYTES),
    Source("free", "freeMemoryBytes", BYTES),
    Source("fragmentation", "fragmentation", SHARE),
    Source("activity", "activity"),
    Source("op", "tfOpName", NAME),
    Source("bytes", "allocationBytes", BYTES),
)


def memory_profile(answers: Answers) -> Section:
    """Read xprof's memory profile, with the allocator of the highest peak first.

    Raises `ProfileError` if xprof gave no answer, or no allocation was recorded.
    """
    content = answers.content(MEMORY)
    if not isinstance(content, dict) or not (given := content.get("memoryProfilePerAllocator")):
        raise ProfileError(
            "no allocation was recorded: all were too small (below 256 KiB on CPUs), or the level of the host tracer "
            "was below 2"
        )
    allocators: list[Row] = []
    timeline: list[Row] = []
    at_peak: list[Row] = []
    for name, profile in given.items():
        summary = profile.get("profileSummary", {})
        allocators.append(_cells(summary, summary.get("peakStats", {}), allocator=name))
        at_peak += _held(name, profile)
        for snapshot in profile.get("sampledTimelineSnapshots", []):
            about = snapshot.get("activityMetadata", {})
            activity = str(about.get("memoryActivity", "")).lower()
            cells = (snapshot, snapshot.get("aggregationStats", {}), about)
            timeline.append(_cells(*cells, allocator=name, activity=activity))
    return Section("memory", (
        table_of("allocators", "Allocators", _ALLOCATORS, _longest_first(allocators, "peakBytesInUse")),
        table_of("at_peak", "Allocations at the peak", _AT_PEAK, _longest_first(at_peak, "amount")),
        table_of("timeline", "Memory over time", _TIMELINE, timeline),
    ))  # fmt: skip


def _cells(*messages: Row, **others: Any) -> Row:
    """Merge messages, in which xprof leaves out zeros and empty texts."""
    return defaultdict(str, {key: value for message in (*messages, others) for key, value in message.items()})


def _held(allocator: str, content: Row) -> Iterator[Row]:
    """Each active allocation refers by index to a snapshot, or to a special allocation."""
    known = content.get("memoryProfileSnapshots", [])
    special = content.get("specialAllocations", [])
    for active in content.get("activeAllocations", []):
        index, other = integer(active["snapshotIndex"]), integer(active["specialIndex"])
        if 0 <= index < len(known):
            about = known[index].get("activityMetadata", {})
        elif 0 <= other < len(special):
            about = special[other]
        else:
            continue
        count = integer(active.get("numOccurrences", 1))
        amount = integer(about.get("allocationBytes")) * count
        yield _cells(about, allocator=allocator, amount=amount, numOccurrences=count)


# Step time by category: the overview, with the longest ops and the hardware


PARTS = {
    "compilation": "compileTimeMs",
    "input": "infeedTimeMs",
    "output": "outfeedTimeMs",
    "kernel launch": "kernelLaunchTimeMs",
    "host compute": "hostComputeTimeMs",
    "device to device": "deviceToDeviceTimeMs",
    "device collectives": "deviceCollectivesTimeMs",
    "device compute": "deviceComputeTimeMs",
    "other": "otherTimeMs",
}
"""Category of step time -> xprof's column."""
_TITLES = {
    "input_pipeline_analyzer": "input pipeline analyzer",
    "framework_op_stats": "TensorFlow stats",
    "trace_viewer": "the trace",
    "gpu_kernel_stats": "kernel stats",
    "kernel_stats": "kernel stats",
    "memory_profile": "memory profile",
    "tf_data_bottleneck_analysis": "tf.data bottleneck analysis",
}
"""xprof's tool -> title of the section in tfbench's report."""
_HARDWARE = {"device": "device_type", "devices": "device_core_count", "hosts": "host_count"}
"""Fact of the environment -> xprof's name of it."""
TOP = 10
"""Ops in the table of the longest ops."""


_TOP_OPS = (
    Source("op", "operation", NAME),
    Source("type", "category"),
    Source("where", "where"),
    Source("share", "selfTimePercent", SHARE),
)
"""The share is a fraction of the time of all ops of the device, or of the host."""


def overview(answers: Answers, ops: Sequence[Row]) -> tuple[float, Section]:
    """Read xprof's overview page. Return the share of step time spent waiting for input.

    ``ops`` are those of the host, for the table of the longest ops of a profile without a device.
    Raises `ProfileError` if xprof gave no answer, or the profile has no step marker.
    """
    grids = answers.grids(OVERVIEW)
    times = with_column(grids, "stepTimeMs")
    if not times.rows:
        raise ProfileError(NO_MARKER)
    sources = (Source("step", "stepnum"), *(Source(part, cell, SECONDS, 1e3) for part, cell in PARTS.items()),
               Source("all", "stepTimeMs", SECONDS, 1e3))  # fmt: skip
    rows = [defaultdict(float, {**row, "stepnum": str(row["stepnum"]).removeprefix("step ")}) for row in times.rows]
    parts = {
        part: mean(number(row[cell]) for row in rows) / 1e3 for part, cell in (*PARTS.items(), ("step", "stepTimeMs"))
    }
    longest, hardware = with_column(grids, "selfTimePercent"), with_column(grids, "host_id").notes
    whole = sum(number(row["total_self_time"]) for row in ops) or 1.0
    top = [{**row, "where": "device"} for row in longest.rows if row["operation"] != IDLE] or [
        {**row, "category": row["type"], "where": row["host_or_device"],
         "selfTimePercent": number(row["total_self_time"]) / whole} for row in ops
    ]  # fmt: skip
    tables = (
        parts_table("breakdown", f"Mean of {plural(len(rows), 'step')}", parts, parts["step"]),
        table_of("top_ops", f"The {len(top[:TOP])} longest ops", _TOP_OPS, top[:TOP]),
        table_of("steps", "Each step", sources, rows),
    )
    notes = [times.notes.get("input_conclusion", "")]
    notes.append("hardware: " + ", ".join(f"{name}: {hardware.get(key, '')}" for name, key in _HARDWARE.items()))
    tips = with_column(grids, "tip_type").rows
    links = (str(row["link"]) for row in tips if row["tip_type"] in ("host", "device"))
    if next_ones := dict.fromkeys(_TITLES.get(link.partition(" ")[0], link) for link in links):
        notes.append(f"read next: {', '.join(next_ones)}")
    waiting = parts["input"] / (parts["step"] or math.inf)
    return waiting, Section("overview", tables, tuple(filter(None, notes)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
