"""Start the zygotes of sides, and learn what each side consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfbench.errors import BenchmarkError, SideError
from tfbench.model import JSON, Case, EnvironmentInfo
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.stopwatch import Phase
from tfbench.session.metric_checks import MetricChecker
from tfbench.session.request import ProgressReporter, RunRequest
from tfbench.sides.side import Side


@dataclass
class SideStarter:
    """Start sides before their first race.

    Args:
        machine: Properties of the machine's GPUs, for the environment info.
    """

    request: RunRequest
    launcher: ProcessLauncher
    checker: MetricChecker
    machine: Mapping[str, str]
    report: ProgressReporter
    described: dict[str, JSON] = field(default_factory=dict, init=False)
    """Name of a side -> its environment, as its zygotes report it."""
    unbuilt: Sequence[Case] = field(default=(), init=False)
    """Cases of the run whose shared set-ups have not been built yet."""
    failure: SideError | None = field(default=None, init=False)
    """Why no case can be measured, whatever its side."""

    def start(self, cases: Sequence[Case], *sides: Side) -> None:
        """Start the missing zygotes of these sides, and ask each side for its environment.

        The first call must start the contender first, which is checked for GPUs.

        Raises:
            SideError: A side does not start. The launcher makes no second attempt in the same environment.
        """
        if self.failure is not None:
            raise self.failure
        self.report("starting the measuring processes")
        try:
            self._start(cases, sides)
        except BenchmarkError as error:
            self.failure = SideError(f"{error}\n{error.output}")
            raise self.failure from error
        if any(case.shared for case in cases):
            self._build_shared(cases, sides)

    def _build_shared(self, cases: Sequence[Case], sides: Sequence[Side]) -> None:
        """Build the shared set-ups of these cases, and of all others in the run with the same settings, several at once.

        Otherwise a race would spend its time limit on building them. The first launch that needs a set-up builds it.
        """
        alike = [case for case in self.unbuilt if case.env == cases[0].env]
        self.unbuilt = [case for case in self.unbuilt if case.env != cases[0].env]
        shared = {case.name: case for case in (*cases, *alike) if case.shared}
        self.report("building shared set-ups")
        with self.launcher.stopwatch.phase(Phase.SHARED_SETUP):
            # One side after the other: two launches that need the same set-up would wait for each other.
            entrants = [Entrant(case, side) for side in sides for case in shared.values()]
            self.checker.look(entrants, lambda done: self.report(f"building shared set-ups: {done} launches done"))

    def _start(self, cases: Sequence[Case], sides: Sequence[Side]) -> None:
        policy, first = self.request.policy, not self.described
        wanted = [(side, env) for side in sides for env in dict.fromkeys(case.env for case in cases)]
        # A race starts the other pairs when it needs them.
        entrants = [Entrant(cases[0], side) for side in sides]
        pairs = range(min(self.launcher.policy_of(policy, entrants).pairs(len(wanted)), policy.looks[0]))
        self.launcher.ready(wanted, pairs)
        self.described.update({side.name: self.launcher.environment(side) for side in sides})
        if first and self.request.require_gpu and not self.launcher.devices(sides[0]).get("GPU"):
            self.failure = SideError("--require-gpu: TensorFlow sees no GPU; check nvidia-smi and tensorflow[and-cuda]")
            raise self.failure

    def environment_info(self, side: Side) -> EnvironmentInfo:
        """Describe the environment of a started side; its commit is left empty."""
        described, cpus = self.described[side.name], self.request.processors.one
        return EnvironmentInfo(
            python=described["python"],
            executable=described["executable"],
            packages=described["packages"],
            commit="",
            dirty=False,
            settings=described["settings"],
            cpus=cpus,
            threads=len(cpus),
            machine={**described["machine"], **self.machine},
        )
