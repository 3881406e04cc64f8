"""Match the cases of another source tree, which pytest collects in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfbench.errors import SideError
from tfbench.fs import isolated_package_dir, python_path
from tfbench.model import Case
from tfbench.sides.side import Side


def benchmarks_of(side: Side, selection: Sequence[str], paths: Sequence[str], command: Sequence[str]) -> dict[str, str]:
    """Collect the cases of a side: name -> digest of the benchmark's code.

    Args:
        selection: Options of pytest that select cases, such as ``-k`` and its expression.
        paths: Files, folders and cases relative to the root. Paths that the side does not have are ignored.
        command: Collects a source tree and prints the result as JSON. Its last argument is the request as JSON.

    Raises:
        SideError: pytest cannot collect the side's benchmarks.
    """
    present = [path for path in paths if Path(side.root, path.partition("::")[0]).exists()]
    if paths and not present:
        return {}
    request = {
        "root": str(side.root),
        "arguments": [*selection, *dict.fromkeys(path.partition("::")[0] for path in present)],
        "tree_redirect": side.tree_redirect,
    }
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env["PYTHONPATH"] = python_path(side.root, env.get("PYTHONPATH", ""))
    done = subprocess.run(
        [*command, json.dumps(request)],
        cwd=isolated_package_dir(), env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SideError(f"{side.spec}: pytest cannot collect its benchmarks\n{(done.stderr or done.stdout).strip()}")
    found: dict[str, str] = json.loads(done.stdout)
    if present and all("::" in path for path in present):
        return {name: source for name, source in found.items() if name.startswith(tuple(present))}
    return found


class Counterparts:
    """Find the case of another source tree for a case of this run, renamed ones included.

    Args:
        before: Cases of that tree, see `benchmarks_of`.
        now: Cases of this run.
    """

    def __init__(self, before: Mapping[str, str], now: Sequence[Case]) -> None:
        self._before = before
        self._renamed = renamed(before, now)

    def of(self, case: Case) -> Case | None:
        """Return the case under its name in that tree, or ``None`` if the tree does not have it."""
        if case.name in self._before:
            return case
        old = self._renamed.get(case.name)
        return replace(case, name=old) if old else None

    def gone(self, collected: Collection[str]) -> list[Case]:
        """Return that tree's cases that are neither in ``collected`` nor renamed."""
        known = {*collected, *self._renamed.values()}
        functions = ((name, name.partition("[")[0]) for name in self._before if name not in known)
        return [Case(name, function.rpartition("::")[2], function) for name, function in functions]


def renamed(before: Mapping[str, str], now: Sequence[Case]) -> dict[str, str]:
    """Match benchmarks with the same code and variant under another name: new name -> old name.

    A benchmark that only moved to another file is preferred. Ambiguous matches are left out.
    """
    names = {case.name for case in now}
    gone = [name for name in before if name not in names]
    found = {}
    for case in now:
        if case.name not in before and case.source:
            same = [name for name in gone if before[name] == case.source and _variant(name) == _variant(case.name)]
            moved = [name for name in same if name.rpartition("::")[2] == case.name.rpartition("::")[2]]
            if len(matches := moved or same) == 1:
                found[case.name] = matches[0]
    uses = Counter(found.values())
    return {new: old for new, old in found.items() if uses[old] == 1}


def _variant(name: str) -> str:
    return name.partition("[")[2]
