"""The GPUs of a run: which ones, locked and watched; where there are none, nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tfbench.errors import GpuError, UsageError
from tfbench.gpus.driver import Driver
from tfbench.gpus.locks import Locks
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.nvml import Nvml
from tfbench.gpus.process_tree import family
from tfbench.gpus.readings import Identity
from tfbench.gpus.selection import VISIBLE, choose, doubtful_order, environment, has_driver, visible
from tfbench.model import JSON, Case
from tfbench.policy import Policy

_LOCKS = Path("/run/lock")
"""Where Linux keeps locks of all users."""


class GpuSession:
    """The GPUs that a run measures on; to be closed.

    Args:
        kind: ``cpu``, ``gpu`` or ``all``.
        names: Indices or UUIDs; all GPUs without any.
        required: Whether it is an error if there is none, which the processes that measure will tell.
        opened: Opens NVML.

    Raises:
        UsageError: A GPU that is named is not there.
        GpuError: It cannot be had: no driver, no library to name it with, or another run's lock.
    """

    def __init__(
        self,
        kind: str,
        names: Sequence[str],
        policy: Policy,
        required: bool = False,
        opened: Callable[[], Driver] = Nvml,
        locks: Path | None = None,
        driver: Callable[[], bool] = has_driver,
    ) -> None:
        self.gpus: list[Identity] = []
        self.gpu_monitor: GpuMonitor | None = None
        self._doubts: list[str] = []
        self.environment: dict[str, str] = {}
        """Of the processes that measure."""
        self._nvml: Driver | None = None
        self._locks: Locks | None = None
        left = visible(os.environ)
        there = bool(names) or (driver() and left != ())
        self._may_have_gpus = kind != "cpu" and (there or required)
        if kind == "cpu":
            self.environment = {VISIBLE: "-1"}
            return
        if not there:
            return
        try:
            self._nvml = opened()
            self.gpus = self._chosen(self._nvml.identities(), names, left)
            if not self.gpus:
                return
            _check_modes(self.gpus)
            self._locks = Locks(self.gpus, locks or _folder())
            self.gpu_monitor = GpuMonitor(self.gpus, self._nvml, policy, family)
            self.environment = environment(self.gpus) if names or left else {}
        except GpuError as error:
            nvml, self._nvml = self._nvml, None
            if nvml is not None:
                nvml.close()
            if names or nvml is not None:
                self.close()
                raise
            # Measured all the same: on whatever TensorFlow sees.
            self._doubts.append(f"GPUs are not watched, so a throttled or shared one is not noticed: {error}")
        except BaseException:
            self.close()
            raise

    def _chosen(self, there: Sequence[Identity], names: Sequence[str], left: tuple[str, ...] | None) -> list[Identity]:
        """Those that are named, or that the environment leaves, or all."""
        if names:
            return choose(there, names)
        if left is not None:
            if doubt := doubtful_order(there, left, os.environ):
                self._doubts.append(doubt)
            return choose(there, left, f"{VISIBLE}=")
        if len(there) > 1 and (parts := [gpu.uuid for gpu in there if gpu.instance is not None]):
            text = "CUDA sees one part of a divided GPU (MIG) at a time"
            raise UsageError(f"{text}: name one with --device gpu:UUID, of {', '.join(parts)}")
        return list(there)

    def skip_reason(self, case: Case) -> str:
        """Why a case of the level ``device=gpu`` cannot run here, ``""`` if it may.

        Only of cases that need processes of their own, whose start would tell nothing else; others say it themselves.
        """
        if self._may_have_gpus or case.levels.get("device") != "gpu" or not case.env:
            return ""
        return "no GPU here: there is no driver of NVIDIA"

    @property
    def notes(self) -> list[str]:
        """What the user ought to know of them by now."""
        causes = self.gpu_monitor.discarded if self.gpu_monitor else {}
        discarded = [f"{_times(count)} discarded and repeated: {cause}" for cause, count in causes.items()]
        return self._doubts + discarded

    @property
    def machine(self) -> dict[str, str]:
        """What runs must have in common for their times to be comparable, as a recipe's machine has it."""
        return {key: value for gpu in self.gpus for key, value in gpu.as_machine().items()}

    def as_json(self) -> JSON:
        """What a report tells of them; nothing without any."""
        return (
            {"gpus": self.gpu_monitor.as_json(), "discarded": dict(self.gpu_monitor.discarded)}
            if self.gpu_monitor
            else {}
        )

    def close(self) -> None:
        """Let others have the GPUs."""
        if self._locks is not None:
            self._locks.close()
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


def _times(launches: int) -> str:
    return "1 launch was" if launches == 1 else f"{launches} launches were"


def _check_modes(gpus: Sequence[Identity]) -> None:
    """A race has two processes on a GPU, in turns."""
    for gpu in gpus:
        if gpu.compute_mode not in (None, "default"):
            text = (
                f"GPU {gpu.index} is in compute mode {gpu.compute_mode!r}, and a race has two processes there, in turns"
            )
            raise GpuError(f"{text}: sudo nvidia-smi -i {gpu.index} -c DEFAULT")


def _folder() -> Path:
    place = _LOCKS if os.access(_LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    return place / "tfbench"
