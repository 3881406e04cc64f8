"""Shared set-ups: folders that one launch builds for all launches, such as a trained model or a converted file."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.fs import atomic_dir, locked
from tfbench.suite.fingerprint import digest
from tfbench.worker import tf_runtime
from tfbench.worker.environment import packages

_MANIFEST, _FAILED = "made.json", "failed.txt"


@dataclass(frozen=True)
class Shared:
    """The ``shared`` fixture in the process of a launch."""

    root: Path
    """Folder of all shared set-ups."""

    def __call__(self, build: Callable[..., object], *arguments: Any) -> Path:
        """Return the folder that ``build(folder, *arguments)`` has filled. Benchmarks may only read it.

        The first launch that asks builds it in a process of its own, which leaves the launch's memory and TensorFlow
        as they were. Another source file of ``build``, other arguments or other versions of TensorFlow's packages
        lead to another build.

        Args:
            build: A function at the top level of a module.
            arguments: Strings, numbers, and folders that ``shared`` returned.

        Raises:
            BenchmarkError: ``build`` fails, its result was changed later, or an op has run in this process.
        """
        if tf_runtime.has_run_an_op():  # an error also if the folder exists, so that it does not depend on the cache
            raise BenchmarkError("shared(...) must come before the first op: TensorFlow that has run cannot be forked")
        name = f"{build.__name__}-{_key(build, arguments)}"
        place = self.root / name
        with locked(self.root / f"{name}.lock"):
            if not (place / _MANIFEST).exists():
                shutil.rmtree(place, ignore_errors=True)
                with atomic_dir(place) as folder:
                    _build(folder, build, arguments)
        _check(place)
        return place


def _build(folder: Path, build: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    parent = os.getpid()
    if (pid := os.fork()) == 0:
        tf_runtime.run_and_exit(parent, partial(_fill, folder, partial(build, folder, *arguments)))
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        failed = [report.read_text(encoding="utf-8") for report in folder.glob(_FAILED)]
        reason = failed[0] if failed else f"its process ended with status {code}"
        raise BenchmarkError(f"{build.__name__} failed: {reason}")


def _fill(folder: Path, build: Callable[[], object]) -> None:
    """Fill the folder and write its manifest, or the reason of a failure."""
    try:
        build()
        (folder / _MANIFEST).write_text(json.dumps(_digests(folder), indent=1), encoding="utf-8")
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        (folder / _FAILED).write_text(text[:500], encoding="utf-8")
        raise


def _key(build: Callable[..., object], arguments: tuple[Any, ...]) -> str:
    if odd := [argument for argument in arguments if not isinstance(argument, (str, int, float, type(None), Path))]:
        raise BenchmarkError(f"shared({build.__name__}, {odd[0]!r}): pass strings, numbers and folders of shared()")
    plain = [argument.name if isinstance(argument, Path) else argument for argument in arguments]
    known = json.dumps([digest(inspect.getmodule(build)), build.__qualname__, plain, packages()], sort_keys=True)
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def _digests(folder: Path) -> dict[str, str]:
    """Return file -> SHA-256 of its content."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != _MANIFEST)
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _check(place: Path) -> None:
    try:
        wanted = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
        changed = sorted(set(wanted.items()) ^ set(_digests(place).items()))
    except (OSError, ValueError, AttributeError):
        changed = [(_MANIFEST, "")]
    if changed:
        file = changed[0][0]
        raise BenchmarkError(f"{place}: {file} was changed after it was built; delete the folder to build it again")
