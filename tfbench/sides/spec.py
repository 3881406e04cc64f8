"""What the user writes behind ``--against``: from text to a `Side`."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.sides.environments import Environments
from tfbench.sides.side import Side
from tfbench.sides.source_tree import materialise, tree_of

KINDS = "self, tensorflow==VERSION, tf-nightly, env:NAME=VALUE, python:PATH, git:REV, joined by +"
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tf-nightly")
OLDEST = (2, 12)
"""Of TensorFlow: the measuring process uses what came with it."""
PACKAGE = re.compile(r"[A-Za-z0-9][\w.\-]*(\[[\w,\-]+\])?==[\w.!]+")
"""A package with its version."""


def parse(spec: str, contender: Side, cache: Path, environments: Environments) -> Side:
    """The baseline side that ``spec`` describes, everything it does not name being the contender's.

    Args:
        cache: Folder for source trees that have to be made.
        environments: Where other packages are installed.

    Raises:
        UsageError: The text is no specification, or names what is not there.
        SideError: A source tree or an environment cannot be made.
    """
    side = replace(contender, name="baseline", spec=spec, slowdown=0.0)
    packages = []
    for part in (one.strip() for one in spec.split("+")):
        kind, _, value = part.partition(":")
        if part == "self":
            continue
        if _is_package(part):
            _check_age(part)
            packages.append(part)
        elif kind == "env" and (setting := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", value)):
            side = replace(side, env={**side.env, setting[1]: setting[2]})
        elif kind == "python" and value:
            executable = shutil.which(value)
            if executable is None:
                raise UsageError(f"--against {part}: there is no interpreter {value}")
            side = replace(side, executable=str(Path(executable).absolute()))
        elif kind == "git" and value:
            made = materialise(contender.root, tree_of(contender.root, value), cache)
            side = replace(side, root=made.root, tree_redirect=(made.top, made.instead))
        else:
            raise UsageError(f"--against {part!r} is not understood; there are {KINDS}")
    if packages:
        if side.executable != contender.executable:
            raise UsageError(f"--against {spec}: python: names an interpreter with its packages; give one of the two")
        side = replace(side, executable=environments.get(_with_tensorflow(packages)).executable)
    return side


def of_version(text: str) -> str:
    """The specification that the user means: a bare version is one of TensorFlow, ``latest`` its newest release."""
    if text == "latest":
        return "tensorflow"
    return f"tensorflow=={text}" if re.match(r"\d+\.\d", text) else text


def packages_of(spec: str) -> list[str]:
    """The packages that a specification asks for, TensorFlow with them; none if it asks for none."""
    packages = [part for part in map(str.strip, of_version(spec).split("+")) if _is_package(part)]
    return _with_tensorflow(packages) if packages else []


def _is_package(part: str) -> bool:
    """A package with its version, or a TensorFlow whose newest one is meant."""
    return bool(PACKAGE.fullmatch(part)) or part in TENSORFLOWS


def _check_age(package: str) -> None:
    name, _, version = package.partition("==")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if _name(name) in TENSORFLOWS and numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise UsageError(f"--against {package}: TensorFlow {OLDEST[0]}.{OLDEST[1]} is the oldest that can be measured")


def _name(package: str) -> str:
    """Without extras and version."""
    return re.split(r"[\[=]", package)[0].lower()


def _with_tensorflow(packages: list[str]) -> list[str]:
    """The packages, with the TensorFlow of this environment where they name none."""
    if any(_name(package) in TENSORFLOWS for package in packages):
        return packages
    for name in TENSORFLOWS:
        try:
            return [*packages, f"{name}=={metadata.version(name)}"]
        except metadata.PackageNotFoundError:
            continue
    raise UsageError(f"--against {'+'.join(packages)}: there is no TensorFlow here to go with it; name one as well")
