"""The interface of a GPU driver, so that tests and recordings can replace NVML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tfbench.gpus.readings import GpuReading, Identity


class Driver(Protocol):
    """Queries about GPUs. `nvml.Nvml` implements it."""

    def identities(self) -> list[Identity]:
        """List all GPUs.

        Raises:
            GpuError: The driver cannot list them.
        """

    def reading(self, gpu: Identity) -> GpuReading:
        """Read the current state of a GPU.

        Raises:
            GpuError: The GPU does not answer any more.
        """

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Start to record the errors (XIDs) of these GPUs."""

    def xids(self) -> list[int]:
        """Return the XIDs reported since the last call."""

    def close(self) -> None:
        """Release the driver."""
