"""The GPUs of a run: selected, locked and monitored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tfbench.errors import GpuError, UsageError
from tfbench.gpus.locks import lock
from tfbench.gpus.monitor import GpuMonitor, family
from tfbench.gpus.nvml import Nvml
from tfbench.gpus.readings import Driver, Identity
from tfbench.gpus.selection import VISIBLE, choose, doubtful_order, environment, has_driver, visible
from tfbench.model import JSON, Case
from tfbench.policy import Policy


class GpuSession:
    """The GPUs that a run measures on. Call `close` at the end.

    Args:
        kind: ``cpu``, ``gpu`` or ``all``.
        names: Indices or UUIDs, empty for all GPUs.
        required: Whether a missing GPU is an error. The workers report it.
        opened: Opens NVML.
        locks: Folder of the lock files, by default in Linux's folder for locks of all users.
        driver: Whether the machine has a driver.

    Raises:
        UsageError: A named GPU is missing.
        GpuError: A named GPU is not usable: no driver, no library, or another run's lock.
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
        """Environment of the workers."""
        self._held = ExitStack()
        """The driver and the locks."""
        left = visible(os.environ)
        there = bool(names) or (driver() and left != ())
        self._kind = kind
        self._may_have_gpus = kind != "cpu" and (there or required)
        if kind == "cpu":
            self.environment = {VISIBLE: "-1"}
        if kind == "cpu" or not there:
            return
        try:
            nvml = opened()
        except GpuError as error:
            if names:
                raise
            # Without names, the run goes on with the GPUs that TensorFlow sees.
            self._doubts.append(f"GPUs are not monitored, so throttling and sharing go unnoticed: {error}")
            return
        with ExitStack() as held:
            held.callback(nvml.close)
            self.gpus = self._chosen(nvml.identities(), names, left)
            if self.gpus:
                _check_modes(self.gpus)
                shared = "/run/lock" if os.access("/run/lock", os.W_OK) else tempfile.gettempdir()
                held.enter_context(lock(self.gpus, locks or Path(shared, "tfbench")))
                self.gpu_monitor = GpuMonitor(self.gpus, nvml, policy, family)
                self.environment = environment(self.gpus) if names or left else {}
                self._held = held.pop_all()

    def _chosen(self, there: Sequence[Identity], names: Sequence[str], left: tuple[str, ...] | None) -> list[Identity]:
        """Return the GPUs that the user named; otherwise the visible ones, or all."""
        if names:
            return choose(there, names)
        if left is not None:
            if doubt := doubtful_order(there, left, os.environ):
                self._doubts.append(doubt)
            return choose(there, left, f"{VISIBLE}=")
        if len(there) > 1 and (parts := [gpu.uuid for gpu in there if gpu.instance is not None]):
            text = "CUDA sees one part of a divided GPU (MIG) at a time"
            raise UsageError(f"{text}: select one with --device gpu:UUID, from {', '.join(parts)}")
        return list(there)

    def skip_reason(self, case: Case) -> str:
        """Return why a case cannot run here for want of a GPU, ``""`` if it may.

        Under ``--device gpu`` this is every case, and otherwise a case of the level ``device=gpu`` whose process needs
        variables, because its start would fail without a reason. Others report it themselves.
        """
        alone = case.levels.get("device") == "gpu" and bool(case.env)
        if self._may_have_gpus or not (alone or self._kind == "gpu"):
            return ""
        return "no GPU here: there is no NVIDIA driver"

    @property
    def notes(self) -> list[str]:
        """Notes for the user so far."""
        causes = self.gpu_monitor.discarded if self.gpu_monitor else {}
        counts = (
            (cause, "1 launch was" if count == 1 else f"{count} launches were") for cause, count in causes.items()
        )
        return self._doubts + [f"{were} discarded and repeated: {cause}" for cause, were in counts]

    @property
    def machine(self) -> dict[str, str]:
        """The properties that runs must share for their times to be comparable."""
        return {key: value for gpu in self.gpus for key, value in gpu.as_machine().items()}

    def as_json(self) -> JSON:
        """Return the GPUs and discarded launches for the report, ``{}`` without a GPU."""
        if self.gpu_monitor is None:
            return {}
        return {"gpus": self.gpu_monitor.as_json(), "discarded": dict(self.gpu_monitor.discarded)}

    def close(self) -> None:
        """Release the GPUs for other runs."""
        self._held.close()


def _check_modes(gpus: Sequence[Identity]) -> None:
    """Refuse exclusive modes: a race has two processes on a GPU, in turns."""
    for gpu in gpus:
        if gpu.compute_mode not in (None, "default"):
            text = f"GPU {gpu.index} is in compute mode {gpu.compute_mode!r}, but a race needs two processes on it"
            raise GpuError(f"{text}: run sudo nvidia-smi -i {gpu.index} -c DEFAULT")
