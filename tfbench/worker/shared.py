"""State that the processes of a worker share."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import BenchmarkError, error_line
from tfbench.fs import atomic_dir, locked
from tfbench.suite.functions import digest
from tfbench.untrusted import an_object, brief, parse_json, texts
from tfbench.worker import tf_runtime
from tfbench.worker.own_files import OwnFiles

# Options of pytest in the processes that collect benchmarks with the real TensorFlow


_INI = ("tfbench_paths", "tfbench_tf_test_benchmarks")
"""The ini options of tfbench, which the controller reads."""
_STRICTNESS = ("strict", "strict_config", "strict_markers", "strict_parametrization_ids", "strict_xfail")


def declare_ini(parser: pytest.Parser) -> None:
    """Let pytest know the ini options of tfbench, whose plugin is not loaded."""
    for name in _INI:
        parser.addini(name, "known to the controller", type="linelist", default=[])


def collecting(root: str, import_mode: str, cache: str) -> list[str]:
    """Return the options with which pytest collects below ``root``.

    The user's own pytest run reports warnings and unknown names. Here they must not fail the collection.
    A conftest.py writes into ``cache``, so that pytest's own cache stays as the user's run left it.
    """
    options = [f"--rootdir={root}", "-q", "--continue-on-collection-errors", "--override-ini=addopts="]
    options += [f"--import-mode={import_mode}", f"--override-ini=cache_dir={cache}"]
    options += ["-p", "no:tfbench.plugin", "-p", "no:warnings"]
    options += [f"--override-ini={key}=false" for key in _STRICTNESS]
    return [*options, "--override-ini=required_plugins="]  # plugins are not loaded here


# Shared set-ups: folders that one launch builds for all launches, such as a trained model or a converted file


_MANIFEST = "made.json"
_INPUTS, _OUTPUTS = "inputs", "files"


@dataclass(frozen=True)
class Shared:
    """The ``shared`` fixture in the process of a launch."""

    root: Path
    """Folder of all shared set-ups."""
    own_files: OwnFiles
    """The source tree of this side."""

    def __call__(self, build: Callable[..., object], *arguments: Any) -> Path:
        """Return the folder that ``build(folder, *arguments)`` has filled. Benchmarks may only read it.

        The first launch that asks builds it in a process of its own, which leaves the launch's memory and TensorFlow
        as they were. A result is used again if the arguments, the interpreter, the versions of all installed packages and
        each file of the source tree that the build has read or loaded are the same, on whatever side and in whatever run.

        Args:
            build: A function at the top level of a module.
            arguments: Strings, numbers, and folders that ``shared`` returned.

        Raises:
            BenchmarkError: ``build`` fails, its result was changed later, or an op has run in this process.
        """
        if tf_runtime.has_run_an_op():  # an error also if the folder exists, so that it does not depend on the cache
            raise BenchmarkError("shared(...) must come before the first op: TensorFlow that has run cannot be forked")
        name = f"{build.__name__}-{_key(build, arguments)}"
        with locked(self.root / f"{name}.lock"):
            place = self._built(name) or self._build(name, build, arguments)
        made = _manifest(place)
        if changed := sorted(set(made[_OUTPUTS].items()) ^ set(_digests(place).items())):
            raise _changed(place, changed[0][0])
        self.own_files.add(made[_INPUTS])
        return place

    def _built(self, name: str) -> Path | None:
        """Return an earlier result whose inputs are the files of this side's tree, if there is one."""
        for place in sorted(self.root.glob(f"{name}-*")):
            inputs = _manifest(place)[_INPUTS]
            if inputs == self.own_files.digests(inputs):
                return place
        return None

    def _build(self, name: str, build: Callable[..., object], arguments: tuple[Any, ...]) -> Path:
        """Build into a folder that is named after the inputs of the build."""
        fresh = self.root / f"new-{name}"
        with atomic_dir(fresh, replace=True) as folder:
            task = partial(_fill, folder, partial(build, folder, *arguments), self.own_files)
            code, reason = tf_runtime.forked(task)
            if code or reason:
                raise BenchmarkError(f"{build.__name__} failed: {reason or f'its process ended with status {code}'}")
        inputs = json.dumps(_manifest(fresh)[_INPUTS], sort_keys=True)
        place = self.root / f"{name}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
        if not place.exists():
            fresh.rename(place)
        return place


def _fill(folder: Path, build: Callable[[], object], own_files: OwnFiles) -> str:
    """Fill the folder and write its manifest; return the reason of a failure, ``""`` without one."""
    try:
        noted = own_files.anew()
        noted.watch()
        build()
        read = noted.read()
        inputs = own_files.digests(noted.all_files() if read is None else read)
        manifest = {_INPUTS: inputs, _OUTPUTS: _digests(folder)}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except BaseException as error:
        traceback.print_exc()
        return error_line(f"{type(error).__name__}: {error}")[:500]
    return ""


def _key(build: Callable[..., object], arguments: tuple[Any, ...]) -> str:
    if odd := [argument for argument in arguments if not isinstance(argument, (str, int, float, type(None), Path))]:
        given = brief(repr(odd[0]))
        raise BenchmarkError(f"shared({build.__name__}, {given}): pass strings, numbers and folders of shared()")
    plain = [argument.name if isinstance(argument, Path) else argument for argument in arguments]
    known = json.dumps([digest(inspect.getmodule(build)), build.__qualname__, plain, sys.version, _distributions()])
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def _distributions() -> list[str]:
    """Return the installed distributions: the names of their records, which have the version. To read each takes 50 ms."""
    found: set[str] = set()
    for folder in sys.path:
        with suppress(OSError):
            found |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}
    return sorted(found)


def _digests(folder: Path) -> dict[str, str]:
    """Return file -> SHA-256 of its content."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != _MANIFEST)
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _manifest(place: Path) -> Mapping[str, dict[str, str]]:
    """Return the inputs and the outputs of a build: file -> SHA-256 of its content."""
    try:
        manifest = an_object(parse_json((place / _MANIFEST).read_text(encoding="utf-8")), "it")
        return {key: texts(manifest[key], key) for key in (_INPUTS, _OUTPUTS)}
    except (OSError, ValueError, KeyError):
        raise _changed(place, _MANIFEST) from None


def _changed(place: Path, file: str) -> BenchmarkError:
    return BenchmarkError(f"{place}: {file} was changed after it was built; delete the folder to build it again")
