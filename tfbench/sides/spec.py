"""Sides and how they are written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from tfbench.errors import SideError, UsageError
from tfbench.model import SlowCalls
from tfbench.sides.environments import VERSIONS, Environments, minor, version_of
from tfbench.sides.source_tree import Snapshot, code_of, commit_of
from tfbench.sides.yardstick import JudgedTree, Yardstick, judged_tree

WORKING_TREE = "working tree"
"""What reports have instead of a specification for a side that has none."""

# Describe a side: where a case runs


@dataclass(frozen=True)
class Side:
    """An interpreter, a source tree and settings.

    ``name`` is ``baseline`` or ``contender``. A comparison of variants has only a contender.
    """

    name: str
    executable: str
    root: Path
    """pytest's root directory of the benchmarks on this side."""
    spec: str = ""
    """The user's specification, such as ``self`` or ``env:TF_ENABLE_ONEDNN_OPTS=1``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of this side, in addition to the controller's own."""
    slowdown: float = 0.0
    """Fraction of extra iterations that this side really does, uncounted."""
    slow_calls: SlowCalls | None = None
    """Slow calls that this side really makes, uncounted: what `tfbench calibrate --tails` injects."""
    tree_redirect: tuple[str, str] | None = None
    """Top of the working tree, and top of the source tree that replaces it on this side."""
    files: tuple[str, ...] = ()
    """Benchmark files to collect instead of those of the run, relative to its root."""
    yardstick: Yardstick = field(default_factory=Yardstick)
    """The benchmarks of the working tree, which judge other source trees as well."""
    judged: JudgedTree | None = None
    """Where the source tree comes from that replaces the working tree on this side."""
    code: Snapshot | None = None
    """The code of its source tree; ``None`` where no report tells it."""
    named: tuple[str, ...] = ()
    """Variables in ``env`` that the user's specification names, so that no level of an axis may replace them in silence."""
    unset: tuple[str, ...] = ()
    """Environment variables of the controller that this side does not have."""


# Parse the specification of a side, such as the value of ``--against``, into a `Side`


KINDS = "self, tensorflow==VERSION or just VERSION, tf-nightly, python==MINOR, env:NAME=VALUE, python:PATH, git:REV, joined by +"
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tf-nightly")
UNPINNED = (*TENSORFLOWS, "keras", "tf-keras", "tensorflow-model-optimization")
"""Packages that may stand without a version, for the newest one that goes with the others."""
OLDEST = (2, 10)
"""Oldest TensorFlow that can be measured: the first whose optimizers are those of later versions."""
_NAME = re.compile(r"^[\w.\-]+")
_NO_PLUS = " (so no part can contain a +, such as the local version 2.20.0+cpu)"
_PYTHON = re.compile(r"python==(.+)")
"""The Python of an environment with other packages."""
PACKAGE = re.compile(r"[A-Za-z0-9][\w.\-]*(\[[\w,\-]+\])?==[\w.!]+")
"""A package pinned to a version."""


def parse(spec: str, contender: Side, cache: Path, environments: Environments) -> Side:
    """Return the baseline side that ``spec`` describes, in full or as a shorthand of `of_version`.

    The contender gives everything else. ``cache`` is the folder for source trees of other revisions.

    Raises:
        UsageError: The text is no specification, or names an interpreter that is missing or no Python.
        SideError: A source tree or an environment cannot be created.
    """
    spec = of_version(spec)
    side = replace(contender, name="baseline", spec=spec, slowdown=0.0)
    packages: list[str] = []
    python = ""
    taken: set[str] = set()

    def take(what: str) -> None:
        """Refuse a second one, of which the side could have only the last."""
        if what in taken:
            raise UsageError(f"--against {spec}: it names {what} twice; leave one of them out")
        taken.add(what)

    for part in parts_of(spec):
        kind, _, value = part.partition(":")
        if part == "self":
            continue
        if wanted := _PYTHON.fullmatch(part):
            take("the Python")
            if (python := wanted[1]) not in VERSIONS:
                raise UsageError(
                    f"--against {part}: tfbench measures on Python {', '.join(VERSIONS)}; name one of them"
                )
        elif is_package(part):
            take("TensorFlow" if _name(part) in TENSORFLOWS else _name(part))
            numbers = re.match(r"(\d+)\.(\d+)", part.partition("==")[2])
            if numbers and _name(part) in TENSORFLOWS and tuple(map(int, numbers.groups())) < OLDEST:
                text = "TensorFlow {}.{} is the oldest version that tfbench can measure".format(*OLDEST)
                raise UsageError(f"--against {part}: {text}")
            packages.append(part)
        elif kind == "env" and (setting := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", value)):
            name, value = setting.groups()
            take(name)
            side = replace(side, env={**side.env, name: value}, named=(*side.named, name))
        elif kind == "python" and value:
            take("the Python")
            if (executable := shutil.which(value)) is None:
                raise UsageError(f"--against {part}: no interpreter {value} on this machine")
            side = replace(side, executable=str(Path(executable).absolute()))
        elif kind == "git" and value:
            take("the source tree")
            code = code_of(contender.root, value)
            side = replace(of_tree(side, judged_tree(contender.root, code.tree, contender.yardstick, cache)), code=code)
        else:
            fix = f"write {KINDS}{_NO_PLUS if '+' in spec else ''}"
            with suppress(SideError):
                commit_of(contender.root, part)
                fix = f"write git:{part} for this commit"
            raise UsageError(f"--against {part!r} is not understood; {fix}")
    if packages or python:
        if side.executable != contender.executable:
            text = "an interpreter has packages of its own; name either python: or packages"
            raise UsageError(f"--against {spec}: {text}")
        side = replace(side, executable=environments.get(_with_tensorflow(packages), python).executable)
    elif side.executable != contender.executable and minor(found := version_of(side.executable)) not in VERSIONS:
        wrong = f"Python {found}, on which tfbench cannot measure" if found else "no Python that starts"
        raise UsageError(f"--against {spec}: {side.executable} is {wrong}; name a Python with TensorFlow")
    return side


def of_tree(side: Side, tree: JudgedTree) -> Side:
    """Return the side with another source tree."""
    return replace(side, root=tree.root, tree_redirect=tree.tree_redirect, judged=tree)


def as_committed(side: Side) -> Side:
    """Return the side with its source tree as it was committed, without the yardstick of the working tree."""
    tree = side.judged
    return side if tree is None else replace(side, root=tree.own_root, tree_redirect=tree.own_redirect, judged=None)


def of_version(text: str) -> str:
    """Expand a shorthand: a bare version is one of TensorFlow, and ``latest`` its newest release."""
    if text == "latest":
        return "tensorflow"
    return f"tensorflow=={text}" if re.match(r"\d+\.\d", text) else text


def packages_of(spec: str) -> list[str]:
    """Return the packages that a specification names, TensorFlow included; none if it names none, or names their Python."""
    parts = parts_of(spec)
    if any(map(_PYTHON.fullmatch, parts)):
        return []
    packages = list(filter(is_package, parts))
    return _with_tensorflow(packages) if packages else []


def names_of(spec: str) -> list[str]:
    """Return the names of the packages that a specification pins, without TensorFlow's."""
    return [name for part in parts_of(spec) if is_package(part) and (name := _name(part)) not in TENSORFLOWS]


def parts_of(spec: str) -> list[str]:
    """Return the parts of a specification, with the names of packages as indexes write them (``tf-keras``, not ``tf_keras``)."""
    parts = (of_version(part.strip()) for part in spec.split("+"))
    return [_NAME.sub(lambda name: canonicalize_name(name[0]), part) if is_package(part) else part for part in parts]


def is_package(part: str) -> bool:
    """Whether the part is a package pinned to a version, or one for the newest that goes with the others."""
    return bool(PACKAGE.fullmatch(part)) or part in UNPINNED


def _name(package: str) -> str:
    """Return the name without extras and version."""
    return re.split(r"[\[=]", package)[0]


def _with_tensorflow(packages: list[str]) -> list[str]:
    """Add the TensorFlow of this environment if the packages name none."""
    if any(_name(package) in TENSORFLOWS for package in packages):
        return packages
    for name in TENSORFLOWS:
        with suppress(metadata.PackageNotFoundError):
            return [*packages, f"{name}=={metadata.version(name)}"]
    raise UsageError(
        f"--against {'+'.join(packages)}: this environment has no TensorFlow; add one, such as +tensorflow==2.20.0"
    )
