"""Kernel stats: what each kernel of a GPU used, and which op it ran for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Column, Section, Table
from tfbench.profiles.xprof import KERNELS, Answers, number

NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler was not allowed to look: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, start a container with --cap-add=SYS_ADMIN, and check that "
    "libcupti of TensorFlow's CUDA version is found (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES and its like in the log)"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one op."""

    name: str
    op: str
    registers: int
    """A thread."""
    shared: int
    """Bytes of shared memory a block."""
    block: str
    grid: str
    occupancy: float
    """Fraction of the warps that a multiprocessor holds."""
    eligible: bool
    """Whether its op could use Tensor Cores."""
    tensor_cores: bool
    """Whether it did."""
    occurrences: int
    total: float
    """Seconds."""


@dataclass(frozen=True)
class KernelStats:
    """The kernels of a profile, the longest first."""

    kernels: Sequence[Kernel]

    def section(self) -> Section:
        whole = sum(kernel.total for kernel in self.kernels) or 1.0
        missed = sum(kernel.total for kernel in self.kernels if kernel.eligible and not kernel.tensor_cores)
        table = Table(
            "kernels", "Kernels",
            (Column("kernel", NAME), Column("op", NAME), Column("registers", COUNT), Column("shared memory", BYTES),
             Column("block"), Column("grid"), Column("occupancy", SHARE), Column("Tensor Cores possible"),
             Column("Tensor Cores used"), Column("occurrences", COUNT), Column("total", SECONDS), Column("share", SHARE)),
            tuple(
                (one.name, one.op, one.registers, one.shared, one.block, one.grid, one.occupancy, one.eligible,
                 one.tensor_cores, one.occurrences, one.total, one.total / whole)
                for one in self.kernels
            ),
        )  # fmt: skip
        notes = (f"{missed / whole:.0%} of the time in kernels of ops that could use Tensor Cores and do not",)
        return Section("kernels", "Kernel stats", (table,), notes if missed else ())


def kernel_stats(answers: Answers) -> KernelStats:
    """From xprof's kernel stats.

    Raises:
        ProfileError: xprof gave none, or no kernel ran.
    """
    rows = answers.grids(KERNELS)[0].rows
    if not rows:
        raise ProfileError(NO_KERNELS)
    kernels = [
        Kernel(
            name=str(row["kernel_name"]),
            op=str(row["op_name"]),
            registers=int(number(row["registers_per_thread"])),
            shared=int(number(row["shmem_bytes"])),
            block=str(row["block_dim"]),
            grid=str(row["grid_dim"]),
            occupancy=number(row["occupancy_pct"]) / 100,
            eligible=bool(row["is_op_tensor_core_eligible"]),
            tensor_cores=bool(row["is_kernel_using_tensor_core"]),
            occurrences=int(number(row["occurrences"])),
            total=number(row["total_duration_us"]) * 1e-6,
        )
        for row in rows
    ]
    return KernelStats(sorted(kernels, key=lambda kernel: -kernel.total))
