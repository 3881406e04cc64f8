"""Axis, level, variant, and ``across``: a benchmark's table of variants, with canonical ids.

An axis is declared once and combined with others::

    COMPILER = Axis("compiler",
        Level("none", compile=lambda function: tf.function(function)),
        Level("xla", compile=lambda function: tf.function(function, jit_compile=True)))

    @across(PRECISION, COMPILER)
    def test_matmul(bench, variant): ...

The keywords of a level other than ``setup``, ``requires`` and ``env`` are its helpers: they become
methods of the benchmark's ``variant``, so ``variant.compile(step)`` does what the level says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tfbench.errors import DeclarationError

_NAME = re.compile(r"[A-Za-z0-9_.+-]+")


def _checked(kind: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(f"{kind} {name!r}: use letters, digits and _ . + - only, as it is part of node ids")
    return name


@dataclass(frozen=True, init=False)
class Level:
    """One value of an axis, and what it means.

    Args:
        name: As it appears in node ids.
        setup: Called in the measuring process before the benchmark (a Keras policy, grappler options).
        requires: Called there before ``setup``; returns ``None`` where the level can run and
            otherwise the reason and the fix, with which the case is skipped.
        env: Environment variables that TensorFlow reads when it is imported. A level that has
            some is raced in processes of its own.
        helpers: Functions that the benchmark calls as methods of ``variant``.
    """

    name: str
    setup: Callable[[], object] | None
    requires: Callable[[], str | None] | None
    env: Mapping[str, str]
    helpers: Mapping[str, Callable[..., Any]]

    def __init__(
        self,
        name: str,
        *,
        setup: Callable[[], object] | None = None,
        requires: Callable[[], str | None] | None = None,
        env: Mapping[str, str] | None = None,
        **helpers: Callable[..., Any],
    ) -> None:
        for helper, function in helpers.items():
            if not callable(function):
                raise DeclarationError(f"level {name!r}: {helper}= must be a function, not {function!r}")
        object.__setattr__(self, "name", _checked("level", name))
        object.__setattr__(self, "setup", setup)
        object.__setattr__(self, "requires", requires)
        object.__setattr__(self, "env", dict(env or {}))
        object.__setattr__(self, "helpers", dict(helpers))


@dataclass(frozen=True, init=False)
class Axis:
    """What is varied, and its levels; the first level is the reference.

    Raises:
        DeclarationError: No level, a level twice, or a name that cannot stand in a node id.
    """

    name: str
    levels: tuple[Level, ...]

    def __init__(self, name: str, *levels: Level) -> None:
        names = [level.name for level in levels]
        if not names:
            raise DeclarationError(f"axis {name!r} has no level")
        if twice := sorted({level for level in names if names.count(level) > 1}):
            raise DeclarationError(f"axis {name!r} has the level {twice[0]!r} twice")
        object.__setattr__(self, "name", _checked("axis", name))
        object.__setattr__(self, "levels", levels)

    def only(self, *names: str) -> Axis:
        """The same axis with these levels alone, in this order; the first becomes the reference.

        Raises:
            DeclarationError: The axis has no level of such a name.
        """
        known = {level.name: level for level in self.levels}
        if unknown := [name for name in names if name not in known]:
            raise DeclarationError(f"axis {self.name!r} has no level {unknown[0]!r}; it has {', '.join(known)}")
        return Axis(self.name, *(known[name] for name in names))


@dataclass(frozen=True)
class Variant:
    """One level of each axis, handed to the benchmark; iterates as (axis, level name), sorted by axis."""

    levels: Mapping[str, Level] = field(default_factory=dict)
    reference: bool = True
    """Whether every axis is at its first level."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((axis, self.levels[axis].name) for axis in sorted(self.levels))

    def __getitem__(self, axis: str) -> str:
        """The name of this axis' level.

        Raises:
            DeclarationError: The benchmark is not across this axis.
        """
        try:
            return self.levels[axis].name
        except KeyError:
            raise DeclarationError(
                f"variant[{axis!r}]: the benchmark is across {', '.join(self.levels) or 'no axis'}"
            ) from None

    def __getattr__(self, helper: str) -> Callable[..., Any]:
        for level in self.__dict__.get("levels", {}).values():
            if helper in level.helpers:
                function: Callable[..., Any] = level.helpers[helper]
                return function
        raise AttributeError(
            f"variant has no {helper!r}: no axis of this benchmark ({', '.join(self.__dict__.get('levels', {})) or 'none'}) "
            f"gives it; add the axis that does to across(...)"
        )

    @property
    def id(self) -> str:
        """Canonical text whatever the order of the axes: ``compiler=xla,precision=float32``."""
        return ",".join(f"{axis}={level}" for axis, level in self)

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that the levels need from the start of the process."""
        return {key: value for level in self.levels.values() for key, value in level.env.items()}

    def enter(self) -> str | None:
        """Act in this process: the reason why a level cannot run here, or its setups done and ``None``."""
        for level in self.levels.values():
            if level.requires is not None and (reason := level.requires()) is not None:
                return reason
        for level in self.levels.values():
            if level.setup is not None:
                level.setup()
        return None


def across(*axes: Axis) -> pytest.MarkDecorator:
    """Decorator: run the benchmark in every combination of the axes' levels, as ``variant``.

    Raises:
        DeclarationError: No axis, an axis twice, or two axes that give the same tool or
            the same environment variable.
    """
    if not axes:
        raise DeclarationError("across() needs an axis; a benchmark without one takes `bench` alone")
    for axis in axes:
        if not isinstance(axis, Axis):
            raise DeclarationError(f"across({axis!r}): not an Axis; declare it with Axis(name, Level(...), ...)")
    names = [axis.name for axis in axes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(f"across: the axis {twice[0]!r} is given twice")
    for kind in ("helpers", "env"):
        givers: dict[str, str] = {}
        for axis in axes:
            for word in {word for level in axis.levels for word in getattr(level, kind)}:
                if word in givers:
                    raise DeclarationError(f"across: the axes {givers[word]!r} and {axis.name!r} both give {word!r}")
                givers[word] = axis.name
    variants = [
        Variant(
            levels={axis.name: level for axis, level in zip(axes, levels, strict=True)},
            reference=all(level is axis.levels[0] for axis, level in zip(axes, levels, strict=True)),
        )
        for levels in itertools.product(*(axis.levels for axis in axes))
    ]
    return pytest.mark.parametrize("variant", [pytest.param(variant, id=variant.id) for variant in variants])
