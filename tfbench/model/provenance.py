"""The environment of a side, and the conditions under which a run measured it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tfbench.model.case import JSON
from tfbench.untrusted import a_flag, a_list, a_text, an_integer, an_object, brief, texts


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
            ValueError, KeyError: The content has another form.
        """
        found = an_object(content, "recipe")
        packages, settings, machine = (texts(found[name], name) for name in ("packages", "settings", "machine"))
        for name, form, words in (
            ("package", _PACKAGE, (f"{package}=={version}" for package, version in packages.items())),
            ("setting", _SETTING, (f"{key}={value}" for key, value in settings.items())),
        ):
            if odd := next((word for word in words if not form.fullmatch(word)), None):
                raise ValueError(f"{brief(odd)!r} is no {name}")
        return EnvironmentInfo(
            python=a_text(found["python"], "python"),
            executable=a_text(found["executable"], "executable"),
            packages=packages,
            commit=a_text(found["commit"], "commit"),
            dirty=a_flag(found["dirty"], "dirty"),
            settings=settings,
            cpus=tuple(an_integer(cpu, "cpus", 0) for cpu in a_list(found["cpus"], "cpus")),
            threads=an_integer(found["threads"], "threads", 0),
            machine=machine,
        )


_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", re.ASCII)
"""What may be passed on to the installer: a name and a version, and neither an option nor an address."""
_SETTING = re.compile(r"[A-Za-z_]\w*=[^\0]*", re.ASCII | re.DOTALL)


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
