"""Race a canary: unchanged code, and a slowdown that a fit machine detects."""

from __future__ import annotations

import random
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.errors import TfbenchError
from tfbench.gpus.selection import parse_device
from tfbench.gpus.session import GpuSession
from tfbench.model import JSON, TIME, Case, Outcome
from tfbench.policy import preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.workers import Suite
from tfbench.sides.side import Side

SLOWDOWN = 0.10
"""Injected fraction of extra iterations. The policy quick detects 5% on a fit machine, so this has room for a noisy one
that still decides."""
ATTEMPTS = 2
"""A canary that fails is raced once more. A fit machine fails one by chance in a hundred, and two in ten thousand."""
_ON_CPU = Path(__file__).with_name("canary_workload.py"), "test_canary"
_ON_GPU = Path(__file__).parents[1] / "worker" / "workloads" / "test_product.py", "test_product"
"""File and benchmark. The first needs no TensorFlow, so its processes start within a second."""
_CASES = 2
"""Verdicts of a canary, which share alpha."""


@dataclass(frozen=True)
class Canary:
    """The result of a canary."""

    unchanged: str
    """Outcome of unchanged code against itself."""
    slowed: str
    """Outcome of code with the injected slowdown."""
    seconds: float
    failure: str = ""
    """Why the machine is not fit, ``""`` if it is."""

    def as_json(self) -> JSON:
        return {
            "unchanged": self.unchanged,
            "slowed": self.slowed,
            "slowdown": SLOWDOWN,
            "seconds": round(self.seconds, 3),
            "failure": self.failure,
        }


def judge(unchanged: Outcome, slowed: Outcome, seconds: float) -> Canary:
    """Decide from both outcomes whether a machine is fit."""
    why = ""
    if unchanged in (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ERROR):
        why = f"unchanged code is {unchanged}"
    elif slowed is not Outcome.REGRESSED:
        why = f"code slowed by {SLOWDOWN:.0%} is {slowed} instead of regressed"
    return Canary(unchanged.value, slowed.value, seconds, why)


def race(processors: Processors, rng: random.Random, device: str = "cpu") -> Canary:
    """Race the canary, again after a failure. It never raises: a machine that cannot race it is not fit.

    Args:
        device: What the job measures on, as ``--device`` names it. If that includes a GPU, the canary is raced there.
    """
    began = time.perf_counter()
    found = _raced(processors, rng, device, began)
    for _ in range(ATTEMPTS - 1):
        found = _raced(processors, rng, device, began) if found.failure else found
    return found


def _raced(processors: Processors, rng: random.Random, device: str, began: float) -> Canary:
    try:
        with closing(GpuSession(*parse_device(device), preset("quick"))) as gpu_session:
            outcomes = _outcomes(processors, rng, gpu_session)
        return judge(*outcomes, time.perf_counter() - began)
    except TfbenchError as error:
        lines = str(error).strip().splitlines()
        why = f"it could not run: {lines[-1] if lines else type(error).__name__}"
        return Canary("error", "error", time.perf_counter() - began, why)


def _outcomes(processors: Processors, rng: random.Random, gpu_session: GpuSession) -> tuple[Outcome, Outcome]:
    policy, on_gpu = preset("quick"), bool(gpu_session.gpus)
    file, function = _ON_GPU if on_gpu else _ON_CPU
    suite = Suite((file.name,), "", "importlib", made="", cpus=processors.every, imports_tensorflow=on_gpu)
    sides = [Side(name, sys.executable, file.parent, env=gpu_session.environment) for name in ("baseline", "contender")]
    name = f"{file.name}::{function}"
    case = Case(name, function, name)
    with closing(ProcessLauncher(suite, policy, processors, gpu_session.gpu_monitor)) as launcher:
        of_sides = launcher.policy_of(policy, [Entrant(case, side) for side in sides])

        def outcome(slowdown: float) -> Outcome:
            entrants = [Entrant(case, sides[0]), Entrant(case, replace(sides[1], slowdown=slowdown))]
            raced = ConfirmedRace(entrants, launcher, of_sides, _CASES, time.perf_counter, rng, False, (TIME,))
            raced.run()
            for failure in raced.failures.values():
                raise failure
            decided = raced.decision.outcome if raced.decision else None
            return decided or Outcome.INCONCLUSIVE

        return outcome(0.0), outcome(SLOWDOWN)
