"""What can be asked of a GPU's driver, whoever answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tfbench.gpus.readings import GpuReading, Identity


class Driver(Protocol):
    """What can be asked about GPUs; `nvml.Nvml` is one."""

    def identities(self) -> list[Identity]:
        """Every GPU.

        Raises:
            GpuError: They cannot be listed.
        """

    def reading(self, gpu: Identity) -> GpuReading:
        """What a GPU does now.

        Raises:
            GpuError: It has vanished.
        """

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Keep the errors of these GPUs from now on."""

    def xids(self) -> list[int]:
        """Those that were reported since the last call."""

    def close(self) -> None:
        """Ask no more."""
