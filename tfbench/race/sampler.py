"""Sampling launches: the Python functions that a step runs in, and what it leaves in memory."""

from __future__ import annotations

from tfbench.policy import Policy
from tfbench.profiles.python_functions import PythonProfile
from tfbench.protocol.messages import Done, SampleCase, Sampled
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher

SECONDS = 1.0
"""A repeated step is sampled for so long, a thousand samples."""


class Sampler:
    """Samples cases in processes that are forked from the zygotes of their sides."""

    def __init__(self, launcher: ProcessLauncher, policy: Policy) -> None:
        self._launcher = launcher
        self._policy = policy

    def sample(self, entrant: Entrant, first: bool = False, memory: bool = False) -> PythonProfile:
        """Return the profile of one launch.

        Args:
            first: Sample the first call of the step alone.
            memory: Count memory instead of functions, since counting slows Python down.

        Raises:
            SideError: A zygote does not start.
            BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        """
        policy = self._policy
        request = SampleCase(self._launcher.processors.of(entrant.case), entrant.case.name, SECONDS, first, memory)
        with self._launcher.start(entrant, 0, request) as process:
            answer = process.answer(Sampled, "while it was sampled", policy.setup_seconds)
            process.answer(Done, "after it was sampled", policy.setup_seconds)
        return PythonProfile(answer.calls, answer.seconds, answer.samples, answer.functions, answer.memory)
