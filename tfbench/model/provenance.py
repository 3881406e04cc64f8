"""The environment of a side, and the conditions under which a run measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tfbench.model.case import JSON


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """The environment of a side, complete enough to recreate it."""

    python: str
    """Version of the interpreter, such as ``3.11.7``."""
    executable: str
    packages: Mapping[str, str]
    """Distribution -> version, of the packages that can change a time."""
    commit: str
    """Commit of the benchmarks' checkout, ``""`` outside version control."""
    dirty: bool
    """Whether the checkout had uncommitted changes."""
    settings: Mapping[str, str]
    """Environment variables that change TensorFlow's behaviour."""
    cpus: tuple[int, ...]
    threads: int
    machine: Mapping[str, str]
    """Processor, digest of its flags, cores, devices."""

    def as_json(self) -> JSON:
        return asdict(self) | {"cpus": list(self.cpus)}

    @staticmethod
    def of_json(content: JSON) -> EnvironmentInfo:
        """Parse the result of `as_json`.

        Raises:
            TypeError, KeyError: The content has another form.
        """
        return EnvironmentInfo(**{**content, "cpus": tuple(content["cpus"])})


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """The conditions of a run. Times of two sessions are comparable only under the same conditions."""

    session: str
    """Unique name of the run: its start time and random letters."""
    environment: EnvironmentInfo
    tree: str
    """git's hash of the source tree, ``""`` outside version control."""
    policy: str
    way: str
    """``variants`` or ``sides``: the entrants of the races. A block's time depends on the blocks before it."""
