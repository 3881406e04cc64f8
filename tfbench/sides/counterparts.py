"""Match the cases of another source tree, which pytest collects in a process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.errors import ReportError, SideError
from tfbench.model import Case
from tfbench.sides.collector import collect
from tfbench.sides.side import Side
from tfbench.untrusted import a_flag, a_text, an_object, described


@dataclass(frozen=True)
class Benchmark:
    """A case of another source tree."""

    source: str
    """Digest of its code."""
    scope: str = ""
    """Digest of its code and of what that uses in its modules, ``""`` if unknown."""
    skipped: bool = False
    """Whether a mark of pytest skips it there."""


def benchmarks_of(
    side: Side, selection: Sequence[str], paths: Sequence[str], command: Sequence[str], seconds: float
) -> dict[str, Benchmark]:
    """Collect the cases of a side, by name.

    Args:
        selection: Options of pytest that select cases, such as ``-k`` and its expression.
        paths: Files, folders and cases relative to the root. Paths that the side does not have are ignored.
        command: Collects a source tree and writes the result to a file. Its last argument is the request as JSON.
        seconds: Time limit.

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
    try:
        listed = collect(command, request, Path(side.root), seconds)
        found = {name: _benchmark(one) for name, one in listed.items()}
    except SideError as error:
        raise SideError(f"{side.spec}: {error}") from None
    except (ReportError, ValueError, KeyError) as error:
        raise SideError(f"{side.spec}: the list of its benchmarks is damaged ({described(error)})") from None
    if present and all("::" in path for path in present):
        return {name: one for name, one in found.items() if name.startswith(tuple(present))}
    return found


def _benchmark(content: object) -> Benchmark:
    found = an_object(content, "a benchmark")
    source, scope = (a_text(found[key], key) for key in ("source", "scope"))
    return Benchmark(source, scope, a_flag(found["skipped"], "skipped"))


class Counterparts:
    """Find the case of another source tree for a case of this run, renamed ones included.

    Benchmarks with the same code and variant under another name match, if that code uses the same definitions, imports
    and fixtures. A benchmark that only moved to another file is preferred. Ambiguous and doubtful matches are left out:
    the old case is then missing and the new one new. ``before`` comes from `benchmarks_of` that tree.
    """

    def __init__(self, before: Mapping[str, Benchmark], now: Sequence[Case]) -> None:
        self._before = before
        gone = set(before) - {case.name for case in now}
        found = {}
        for case in now:
            if case.name not in before and case.scope:
                variant = case.name.partition("[")[2]
                same = [one for one in gone if before[one].scope == case.scope and one.partition("[")[2] == variant]
                moved = [one for one in same if one.rpartition("::")[2] == case.short_name]
                if len(matches := moved or same) == 1:
                    found[case.name] = matches[0]
        uses = Counter(found.values())
        self._renamed = {new: old for new, old in found.items() if uses[old] == 1}

    def of(self, case: Case) -> Case | None:
        """Return the case under its name in that tree, or ``None`` if the tree does not have it."""
        if case.name in self._before:
            return case
        old = self._renamed.get(case.name)
        return replace(case, name=old) if old else None

    def runs(self, case: Case) -> bool:
        """Return whether that tree has the case and no mark of pytest skips it there."""
        there = self.of(case)
        return there is not None and not self._before[there.name].skipped

    def gone(self, collected: Collection[str]) -> list[Case]:
        """Return that tree's cases that are neither in ``collected`` nor renamed."""
        known = {*collected, *self._renamed.values()}
        functions = ((name, name.partition("[")[0]) for name in self._before if name not in known)
        return [Case(name, function.rpartition("::")[2], function) for name, function in functions]
