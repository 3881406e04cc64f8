"""What benchmarks another source tree has: pytest's own collection there, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfbench.errors import SideError
from tfbench.fs import isolated_package_dir, python_path
from tfbench.model import Case
from tfbench.sides.side import Side


def benchmarks_of(side: Side, selection: Sequence[str], paths: Sequence[str], command: Sequence[str]) -> dict[str, str]:
    """Cases that a run there would have: name -> digest of the benchmark's code.

    Args:
        selection: Options of pytest's that choose, as ``-k`` and what follows it.
        paths: Files, folders and cases relative to the root; those that are not there are left out.
        command: Collects there and prints what this returns as JSON; its last argument says where and what.

    Raises:
        SideError: pytest cannot collect it.
    """
    there = [path for path in paths if Path(side.root, path.partition("::")[0]).exists()]
    if paths and not there:
        return {}
    order = {
        "root": str(side.root),
        "arguments": [*selection, *dict.fromkeys(path.partition("::")[0] for path in there)],
        "tree_redirect": side.tree_redirect,
    }
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env["PYTHONPATH"] = python_path(side.root, env.get("PYTHONPATH", ""))
    started = [*command, json.dumps(order)]
    done = subprocess.run(started, cwd=isolated_package_dir(), env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{side.spec}: its benchmarks cannot be collected\n{(done.stderr or done.stdout).strip()}")
    found: dict[str, str] = json.loads(done.stdout)
    named = [path for path in there if "::" in path]
    if len(named) == len(there) and named:
        return {name: source for name, source in found.items() if name.startswith(tuple(named))}
    return found


class Counterparts:
    """Which case of another source tree is which one here.

    Args:
        before: What that tree has, see `benchmarks_of`.
        now: The cases of this run.
    """

    def __init__(self, before: Mapping[str, str], now: Sequence[Case]) -> None:
        self._before = before
        self._renamed = renamed(before, now)

    def of(self, case: Case) -> Case | None:
        """The case as it is called there, ``None`` if it is not there."""
        if case.name in self._before:
            return case
        old = self._renamed.get(case.name)
        return replace(case, name=old) if old else None

    def gone(self, collected: Collection[str]) -> list[Case]:
        """Those that are there and not among ``collected``, renamed ones left out."""
        known = {*collected, *self._renamed.values()}
        return [
            Case(name, name.partition("[")[0].rpartition("::")[2], name.partition("[")[0])
            for name in self._before
            if name not in known
        ]


def renamed(before: Mapping[str, str], now: Sequence[Case]) -> dict[str, str]:
    """New name -> old name, of benchmarks that are the same code in the same variant under another name.

    One that has only moved to another file is meant before others; where several could be meant, none is.
    """
    names = {case.name for case in now}
    gone = [name for name in before if name not in names]
    found = {}
    for case in now:
        if case.name not in before and case.source:
            same = [name for name in gone if before[name] == case.source and _variant(name) == _variant(case.name)]
            moved = [name for name in same if name.rpartition("::")[2] == case.name.rpartition("::")[2]]
            if len(meant := moved or same) == 1:
                found[case.name] = meant[0]
    once = [old for old in found.values() if list(found.values()).count(old) == 1]
    return {new: old for new, old in found.items() if old in once}


def _variant(name: str) -> str:
    return name.partition("[")[2]
