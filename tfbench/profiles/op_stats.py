"""Time by op and by kernel: TensorFlow stats, the input pipeline analyzer, and kernel stats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Section, Table, column, parts_table, table_of
from tfbench.profiles.tfdata_events import without_numbers
from tfbench.profiles.xprof import INPUT, KERNELS, OPS, Answers, Grid, number, row_of, with_column

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
