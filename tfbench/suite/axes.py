"""Axes of benchmarks.

An axis is declared once and combined with others::

    COMPILER = Axis("compiler",
        Level("none", compile=lambda function: tf.function(function)),
        Level("xla", compile=lambda function: tf.function(function, jit_compile=True)))

    @across(PRECISION, COMPILER)
    def test_matmul(bench, variant): ...

The keywords of a level other than ``setup``, ``requires`` and ``env`` are its helpers. They become
methods of the benchmark's ``variant``, so ``variant.compile(step)`` calls the level's ``compile``.
Node ids are canonical: they do not depend on the order of the axes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfbench.errors import DeclarationError, UsageError

if TYPE_CHECKING:
    import pytest


# The scale of a run: how large the shapes of its benchmarks are. Names of cases contain it


SMALL, *_ = SCALES = ("small", "medium", "large", "huge")
VARIABLE = "TFBENCH_SCALE"
"""Environment variable that tells the scale to benchmarks, in all processes of a run."""
_PARAMETER = "_tfbench_scale"


def set_scale(name: str) -> None:
    """Set the scale of this process and its child processes. Raises `UsageError` if the scale is unknown."""
    if name not in SCALES:
        raise UsageError(f"--scale {name!r}: choose from {', '.join(SCALES)}")
    if name == SMALL:
        os.environ.pop(VARIABLE, None)  # the default has no name, so that earlier baselines stay valid
    else:
        os.environ[VARIABLE] = name


def add_scale(metafunc: pytest.Metafunc) -> None:
    """Add the scale to the name of a benchmark, such as ``test_matmul[compiler=xla-scale=large]``."""
    if "bench" in metafunc.fixturenames and (scale := os.environ.get(VARIABLE)):
        metafunc.fixturenames.append(_PARAMETER)
        metafunc.parametrize(_PARAMETER, [scale], ids=[f"scale={scale}"])


def case_words(name: str) -> tuple[str, ...]:
    """Return the words of a command that select a case: the scale that `add_scale` has put into its name, and the name."""
    scale = next((scale for scale in SCALES if name.endswith((f"[scale={scale}]", f"-scale={scale}]"))), "")
    return ("--scale", scale, name) if scale else (name,)


# Declare axes and levels, and combine them into the variants of a benchmark with ``across``


_NAME = re.compile(r"[A-Za-z0-9_.+-]+")


def _checked(kind: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(f"{kind} {name!r}: use only letters, digits and _ . + - since node ids contain the name")
    return name


@dataclass(frozen=True, init=False)
class Level:
    """One value of an axis, and its effect on a benchmark.

    Args:
        name: Name in node ids.
        setup: Called in the worker before the benchmark, to set a Keras policy or grappler options.
        requires: Called in the worker before ``setup``. Returns ``None`` if the level can run here;
            otherwise the reason and the fix, which become the reason of the skipped case.
        env: Environment variables that TensorFlow reads at import. A level with any gets its own zygotes.
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
    """A dimension of variation with its levels; the first level is the reference.

    Raises:
        DeclarationError: There is no level, two levels have the same name, or a name does not fit into node ids.
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
        """Return the axis with only these levels, in this order; the first becomes the reference.

        Raises:
            DeclarationError: The axis lacks one of the levels.
        """
        known = {level.name: level for level in self.levels}
        if unknown := [name for name in names if name not in known]:
            raise DeclarationError(f"axis {self.name!r} has no level {unknown[0]!r}; it has {', '.join(known)}")
        return Axis(self.name, *(known[name] for name in names))


@dataclass(frozen=True)
class Variant:
    """One level of each axis, passed to the benchmark; iterates over (axis, level name), sorted by axis."""

    levels: Mapping[str, Level] = field(default_factory=dict)
    reference: bool = True
    """Whether each axis is at its first level."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((axis, self.levels[axis].name) for axis in sorted(self.levels))

    def __getitem__(self, axis: str) -> str:
        """Return the name of the axis's level.

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
        levels: Mapping[str, Level] = self.__dict__.get("levels", {})  # absent while the object is copied or unpickled
        for level in levels.values():
            if helper in level.helpers:
                return level.helpers[helper]
        raise AttributeError(
            f"variant has no {helper!r}: no axis of this benchmark ({', '.join(levels) or 'none'}) provides it; "
            f"add the axis that provides it to across(...)"
        )

    @property
    def id(self) -> str:
        """The variant in node ids, such as ``compiler=xla,precision=float32``, sorted by axis."""
        return ",".join(f"{axis}={level}" for axis, level in self)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of all levels."""
        return {key: value for level in self.levels.values() for key, value in level.env.items()}

    def enter(self) -> str | None:
        """Run the setups of all levels in this process; returns the reason if a level cannot run here."""
        for level in self.levels.values():
            if level.requires is not None and (reason := level.requires()) is not None:
                return reason
        for level in self.levels.values():
            if level.setup is not None:
                level.setup()
        return None


def across(*axes: Axis) -> pytest.MarkDecorator:
    """Decorate a benchmark to run in every combination of the axes' levels, passed as ``variant``.

    Raises:
        DeclarationError: There is no axis, an axis is given twice, or two axes provide the same helper
            or environment variable.
    """
    if not axes:
        raise DeclarationError("across() needs an axis; a benchmark without axes takes only `bench`")
    for axis in axes:
        if not isinstance(axis, Axis):
            raise DeclarationError(f"across({axis!r}): not an Axis; declare it with Axis(name, Level(...), ...)")
    names = [axis.name for axis in axes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(f"across: the axis {twice[0]!r} is given twice")
    for kind in ("helpers", "env"):
        providers: dict[str, str] = {}
        for axis in axes:
            for word in {word for level in axis.levels for word in getattr(level, kind)}:
                if (other := providers.setdefault(word, axis.name)) != axis.name:
                    raise DeclarationError(f"across: the axes {other!r} and {axis.name!r} both provide {word!r}")
    variants = [
        Variant(
            levels={axis.name: level for axis, level in zip(axes, levels, strict=True)},
            reference=all(level is axis.levels[0] for axis, level in zip(axes, levels, strict=True)),
        )
        for levels in itertools.product(*(axis.levels for axis in axes))
    ]
    import pytest  # `tfbench COMMAND` imports this package, and most commands need no pytest

    return pytest.mark.parametrize("variant", [pytest.param(variant, id=variant.id) for variant in variants])
