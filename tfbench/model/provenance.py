"""What a side consists of and under which conditions a run measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfbench.model.case import JSON


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """What a side was made of, so that it can be made again."""

    python: str
    """Version of the interpreter, as ``3.11.7``."""
    executable: str
    packages: Mapping[str, str]
    """Distribution -> version, of those that can change a time."""
    commit: str
    """Commit of the tree that holds the benchmarks, ``""`` outside version control."""
    dirty: bool
    """Whether that tree had changes that the commit does not hold."""
    settings: Mapping[str, str]
    """Environment variables that change what TensorFlow does, as they were set."""
    cpus: tuple[int, ...]
    threads: int
    machine: Mapping[str, str]
    """What the machine is: processor, its flags' digest, cores, devices."""

    def as_json(self) -> JSON:
        return {
            "python": self.python,
            "executable": self.executable,
            "packages": dict(self.packages),
            "commit": self.commit,
            "dirty": self.dirty,
            "settings": dict(self.settings),
            "cpus": list(self.cpus),
            "threads": self.threads,
            "machine": dict(self.machine),
        }

    @staticmethod
    def of_json(content: JSON) -> EnvironmentInfo:
        """From `as_json`.

        Raises:
            TypeError, KeyError: It is none.
        """
        return EnvironmentInfo(**{**content, "cpus": tuple(content["cpus"])})


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """How and from what a run measured: what two sessions must have in common for their times to be comparable."""

    session: str
    """Names the run: the time of its start, and letters that no other run has."""
    environment: EnvironmentInfo
    tree: str
    """git's hash of the source tree, ``""`` outside version control."""
    policy: str
    way: str
    """``variants`` or ``sides``: what raced each other, since blocks follow on the blocks of others."""
