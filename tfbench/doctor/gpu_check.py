"""Try the GPUs of a machine: driver, libraries, visibility, CUPTI and races.

Each step needs the steps before it, so the first failure ends the check.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tfbench.doctor.machine import Finding, State
from tfbench.errors import BenchmarkError, TfbenchError
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Identity
from tfbench.model import TIME, Case, Outcome
from tfbench.policy import Policy
from tfbench.profiles.xplane import DEVICE, load
from tfbench.profiles.xprof import NO_KERNELS
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.launch import Entrant
from tfbench.race.prober import Profiler
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.workers import Suite
from tfbench.sides.spec import Side
from tfbench.untrusted import plural

FILE = Path(__file__).resolve().parents[1] / "worker" / "workloads" / "test_product.py"
CASE = Case(f"{FILE.name}::test_product", "test_product", f"{FILE.name}::test_product")
SLOWDOWN = 0.1
"""The injected slowdown of the last step."""
Tell = Callable[[str], None]


class GpuCheck:
    """Try the GPUs of this machine step by step. The caller must `close` it.

    Args:
        gpu_session: The GPUs, locked and monitored.
        kind: The device that TensorFlow must see: ``GPU``, or ``CPU`` to test the check without a GPU.
    """

    def __init__(self, gpu_session: GpuSession, where: Processors, policy: Policy, kind: str = "GPU") -> None:
        self._gpu_session = gpu_session
        self._policy = policy
        self._kind = kind
        suite = Suite((FILE.name,), "", "importlib", made="", cpus=where.every)
        self._launcher = ProcessLauncher(suite, policy, where, gpu_session.gpu_monitor)

    def close(self) -> None:
        """End every process and unlock the GPUs."""
        self._launcher.close()
        self._gpu_session.close()

    def findings(self, tell: Tell) -> Iterator[Finding]:
        """Yield the finding of each step, up to the first that is bad."""
        for step in (self._devices, self._seen, self._profiled, self._same, self._slower):
            try:
                finding = step(tell)
            except TfbenchError as error:
                headline, _, rest = str(error).partition("\n")
                finding = Finding(step.__name__.strip("_"), State.BAD, headline, rest.strip()[-400:])
            yield finding
            if finding.state is State.BAD:
                return

    def _side(self, name: str, slowdown: float = 0.0) -> Side:
        return Side(name, sys.executable, FILE.parent, env=self._gpu_session.environment, slowdown=slowdown)

    def _devices(self, tell: Tell) -> Finding:
        tell("reading the devices")
        gpus = self._gpu_session.gpus
        if not gpus:
            return Finding("devices", State.UNKNOWN, "no GPU is monitored here")
        described = "; ".join(map(_describe, gpus))
        if sleepy := [gpu.place for gpu in gpus if gpu.persistence is False]:
            fix = "sudo nvidia-smi -pm 1; without it, every start reloads the driver and resets the clocks"
            return Finding("devices", State.WARN, f"{described}; no persistence mode on {', '.join(sleepy)}", fix)
        return Finding("devices", State.OK, described)

    def _seen(self, tell: Tell) -> Finding:
        tell("starting the processes that import TensorFlow")
        side = self._side("contender")
        # Those of the races too, since they import at the same time.
        self._launcher.ready([(one, ()) for one in (self._side("baseline"), side)], range(self._policy.looks[0]))
        devices = self._launcher.devices(side).get(self._kind, [])
        packages = self._launcher.environment(side).get("packages", {})
        version = next((f"{name} {packages[name]}" for name in packages if name.startswith("tensorflow")), "TensorFlow")
        if not devices:
            fix = "pip install 'tensorflow[and-cuda]'; its CUDA must not be newer than the driver's"
            return Finding("TensorFlow", State.BAD, f"{version} sees no {self._kind}", fix)
        return Finding("TensorFlow", State.OK, f"{version} sees {', '.join(devices)}")

    def _profiled(self, tell: Tell) -> Finding:
        tell("profiling a matrix product")
        with tempfile.TemporaryDirectory(prefix="tfbench-check-") as folder:
            profiler, entrant = Profiler(self._launcher, self._policy), Entrant(CASE, self._side("contender"))
            place = profiler.profile(entrant, Path(folder), 0)
            spaces = [load(file) for file in place.iterdir()]
        prefix = DEVICE if self._kind == "GPU" else "/host:CPU"
        events = sum(len(line.events) for space in spaces for plane in space.of(prefix) for line in plane.lines)
        errors = "; ".join(error for space in spaces for error in space.errors)
        if not events:
            what = f"the profile has no GPU kernel{f' ({errors})' if errors else ''}"
            return Finding("CUPTI", State.BAD, what, NO_KERNELS)
        return Finding("CUPTI", State.OK, f"the profile has {events} device events")

    def _same(self, tell: Tell) -> Finding:
        return self._raced(tell, "A/A", 0.0, Outcome.UNCHANGED)

    def _slower(self, tell: Tell) -> Finding:
        return self._raced(tell, f"{SLOWDOWN:.0%} slower", SLOWDOWN, Outcome.REGRESSED)

    def _raced(self, tell: Tell, name: str, slowdown: float, wanted: Outcome) -> Finding:
        tell(f"racing a matrix product against itself{f' plus {slowdown:.0%}' if slowdown else ''}")
        entrants = [Entrant(CASE, self._side("baseline")), Entrant(CASE, self._side("contender", slowdown))]
        race = ConfirmedRace(
            entrants, self._launcher, self._policy, 1, time.perf_counter, random.Random(), metrics=(TIME,)
        )
        race.run()
        if race.failures:
            raise BenchmarkError(str(next(iter(race.failures.values()))))
        if race.abort_reason:
            return Finding(name, State.BAD, f"too many launches were disturbed: {race.abort_reason}")
        if race.decision is None or race.decision.outcome is None:
            return Finding(name, State.BAD, "the race ended without a decision")
        outcome, message = race.decision.outcome, race.decision.reason.message
        what = f"{outcome}: {message}, in {plural(race.launches, 'launch')}, {race.wall_seconds:.1f} s"
        if outcome is wanted:
            return Finding(name, State.OK, what)
        state = State.WARN if outcome is Outcome.INCONCLUSIVE else State.BAD
        return Finding(name, state, what, "tfbench doctor; lock the clock: sudo nvidia-smi -lgc RATE")


def _describe(gpu: Identity) -> str:
    parts = [f"{gpu.place}: {gpu.name}", f"driver {gpu.driver}", f"CUDA {gpu.cuda}", gpu.pcie or ""]
    parts += [f"limit {gpu.power_limit:g} W" if gpu.power_limit else "", "MIG" if gpu.mig else ""]
    return ", ".join(filter(None, parts))
