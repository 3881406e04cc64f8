"""Kernel stats: the resources that each GPU kernel used, and the op that it ran for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Section, column, table_of
from tfbench.profiles.xprof import KERNELS, Answers, integer, number

NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler had no access: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, or start the container with --cap-add=SYS_ADMIN. Also check "
    "that libcupti of TensorFlow's CUDA version is found (the log shows CUPTI_ERROR_INSUFFICIENT_PRIVILEGES or similar)"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one op."""

    name: str = field(metadata=column("kernel", NAME))
    op: str = field(metadata=column("op", NAME))
    registers: int = field(metadata=column("registers", COUNT))
    """Per thread."""
    shared: int = field(metadata=column("shared memory", BYTES))
    """Bytes per block."""
    block: str = field(metadata=column("block"))
    grid: str = field(metadata=column("grid"))
    occupancy: float = field(metadata=column("occupancy", SHARE))
    """Fraction of the warps that a multiprocessor can hold."""
    eligible: bool = field(metadata=column("Tensor Cores possible"))
    """Whether its op could use Tensor Cores."""
    tensor_cores: bool = field(metadata=column("Tensor Cores used"))
    occurrences: int = field(metadata=column("occurrences", COUNT))
    total: float = field(metadata=column("total", SECONDS))


@dataclass(frozen=True)
class KernelStats:
    """The kernels of a profile, the longest first."""

    kernels: Sequence[Kernel]

    def section(self) -> Section:
        whole = sum(kernel.total for kernel in self.kernels) or 1.0
        missed = sum(kernel.total for kernel in self.kernels if kernel.eligible and not kernel.tensor_cores)
        note = f"kernels that could use Tensor Cores but do not take {missed / whole:.0%} of the kernel time"
        table = table_of("kernels", "Kernels", Kernel, self.kernels, lambda kernel: kernel.total / whole)
        return Section("kernels", "Kernel stats", (table,), (note,) if missed else ())


def kernel_stats(answers: Answers) -> KernelStats:
    """Read xprof's kernel stats.

    Raises:
        ProfileError: xprof gave no answer, or no kernel ran.
    """
    rows = answers.grids(KERNELS)[0].rows
    if not rows:
        raise ProfileError(NO_KERNELS)
    kernels = [
        Kernel(
            name=str(row["kernel_name"]),
            op=str(row["op_name"]),
            registers=integer(row["registers_per_thread"]),
            shared=integer(row["shmem_bytes"]),
            block=str(row["block_dim"]),
            grid=str(row["grid_dim"]),
            occupancy=number(row["occupancy_pct"]) / 100,
            eligible=bool(row["is_op_tensor_core_eligible"]),
            tensor_cores=bool(row["is_kernel_using_tensor_core"]),
            occurrences=integer(row["occurrences"]),
            total=number(row["total_duration_us"]) * 1e-6,
        )
        for row in rows
    ]
    return KernelStats(sorted(kernels, key=lambda kernel: -kernel.total))
