"""Kernel stats: the resources that each GPU kernel used, and the op that it ran for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfbench.errors import ProfileError
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, Section, column, table_of
from tfbench.profiles.xprof import KERNELS, Answers, row_of

NO_KERNELS = (
    "no kernel ran on a GPU. If the step uses one, the profiler had no access: run as root, or set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the driver, or start the container with --cap-add=SYS_ADMIN. Also check "
    "that libcupti of TensorFlow's CUDA version is found (the log shows CUPTI_ERROR_INSUFFICIENT_PRIVILEGES or similar)"
)


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
