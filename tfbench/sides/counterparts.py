"""Find the cases of another side."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from tfbench.errors import ReportError, SideError
from tfbench.fs import isolated_package_dir, python_path, read_text, scratch_dir, without_repository
from tfbench.model import JSON, Case, own_thresholds, short_name
from tfbench.sides.spec import Side
from tfbench.untrusted import a_flag, a_list, a_text, an_object, described, parse_json

# Start a program that imports a source tree and writes down what it found there


_NAME_PLUGINS = "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
"""Variables that select the plugins of pytest."""
_TAIL = 4000
"""Characters of a failed process that a message quotes."""


def collect(
    command: Sequence[str],
    request: JSON,
    root: Path,
    seconds: float,
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> JSON:
    """Run the program, and return the object that it wrote.

    Raises `SideError` if it did not finish in time, failed, or wrote something else.

    Args:
        command: Its last argument will be the request as JSON, with the file to be written as ``answer``.
        root: The source tree, below which entries of ``PYTHONPATH`` are looked up.
        settings: Further variables of its environment.
        variables: Its environment; ``None`` for that of this process.
    """
    given = without_repository(os.environ if variables is None else variables)
    env = {key: value for key, value in given.items() if not key.startswith("PYTEST_")}
    env |= {"PYTHONPATH": python_path(root, env.get("PYTHONPATH", "")), **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="collect-", dir=scratch_dir()) as folder:
        answer = Path(folder, "benchmarks.json")  # what the tree's own code prints is not in the way there
        try:
            done = subprocess.run(
                [*command, json.dumps(request | {"answer": str(answer)})],
                cwd=isolated_package_dir(), env=env, capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SideError(f"pytest did not collect its benchmarks within {seconds:.0f} s") from None
        if done.returncode < 0:
            raise SideError(f"pytest was killed by signal {-done.returncode} while it collected its benchmarks")
        if done.returncode or not answer.exists():
            last = (done.stderr.strip() or done.stdout.strip())[-_TAIL:]
            raise SideError(f"pytest cannot collect its benchmarks\n{last}")
        try:
            return an_object(parse_json(read_text(answer)), "it")
        except ValueError as error:  # the tree's own code could write there
            raise SideError(f"the list of its benchmarks is damaged ({described(error)})") from None


# Match the cases of another source tree, which pytest collects in a process of its own


@dataclass(frozen=True)
class Benchmark:
    """A case of another source tree."""

    source: str
    """Digest of its code."""
    scope: str = ""
    """Digest of its code and of what that uses in its modules, ``""`` if unknown."""
    skipped: bool = False
    """Whether a mark of pytest skips it there."""
    selected: bool = True
    """Whether the run's options select it there, by its marks and the tree's own conftest.py and configuration."""
    thresholds: tuple[tuple[str, float], ...] = ()
    """Its own thresholds there."""
    statistic: str = ""
    """Its own statistic there."""

    @property
    def runs(self) -> bool:
        """Whether that tree would run it under the options of this run."""
        return self.selected and not self.skipped


@dataclass(frozen=True)
class Selection:
    """What the user asked for, without the configuration of a source tree, which each tree has for itself."""

    options: tuple[str, ...] = ()
    """Options of pytest that select cases, such as ``-k`` and its expression. Paths are relative to pytest's root."""
    paths: tuple[str, ...] = ()
    """Files, folders and cases, relative to pytest's root; empty for all benchmarks."""
    ignored: tuple[str, ...] = ()
    """Files and folders that are left out."""
    policy: str = ""
    """Name of the run's policy."""
    inifile: str = ""
    """Value of pytest's option ``-c``, relative to pytest's root; ``""`` without the option."""
    values: JSON = field(default_factory=dict)
    """Values of options that the project's conftest.py files define, by their names in Python."""
    reruns: bool = False
    """Whether pytest leaves out cases because of its earlier runs (``--lf``, ``--stepwise``). None of them is missing."""
    variables: Mapping[str, str] | None = None
    """The environment without what this tree's conftest.py and benchmarks have set; ``None`` for that of this process."""

    def has(self, name: str) -> bool:
        """Tell whether the case of this name lies below the paths."""
        return (not self.paths or _below(name, self.paths)) and not _below(name, self.ignored)


def _below(name: str, paths: tuple[str, ...]) -> bool:
    return "." in paths or name in paths or name.startswith(_starts(paths))


@lru_cache(maxsize=4)
def _starts(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{path}{mark}" for path in paths for mark in ("/", "::", "["))


@dataclass(frozen=True)
class Listing:
    """What pytest collects of another source tree."""

    cases: Mapping[str, Benchmark] = field(default_factory=dict)
    """By name."""
    broken: tuple[str, ...] = ()
    """Files and folders that cannot be imported there, relative to its root; ``.`` for all."""
    seen: frozenset[str] = frozenset()
    """Files and folders that pytest has collected or skipped there, whether they have benchmarks or not."""
    gate: tuple[str, ...] = ()
    """Words of the options that decide what passes there: those of the command line, and of its own configuration file."""

    def joined(self, other: Listing) -> Listing:
        """Return both, of which this one counts where they differ."""
        broken = dict.fromkeys((*self.broken, *other.broken))
        return Listing({**other.cases, **self.cases}, tuple(broken), self.seen | other.seen, self.gate or other.gate)

    def unseen(self, files: Iterable[str], root: Path) -> tuple[str, ...]:
        """Return those of the files that the tree at ``root`` has, and of which this listing says nothing."""
        doubtful = (file for file in dict.fromkeys(files) if file not in self.seen and not _below(file, self.broken))
        return tuple(file for file in doubtful if (root / file).exists())


def benchmarks_of(side: Side, selection: Selection, command: Sequence[str], seconds: float) -> Listing:
    """Collect the cases of a side: all cases in the files and folders of the selection.

    Paths that the side does not have are ignored. ``command`` collects a source tree and writes the result to a file.
    Its last argument is the request as JSON.
    Raises `SideError` if pytest cannot collect the side's benchmarks, or the selection is outside of its tree.
    """
    if outside := [path for path in selection.paths if path.partition("/")[0] == ".."]:
        fix = "name a --rootdir that contains it"
        raise SideError(f"{side.spec}: {outside[0]} is outside of pytest's root, so this tree cannot have it; {fix}")
    files = dict.fromkeys(path.partition("::")[0] for path in selection.paths)
    present = [file for file in files if Path(side.root, file).exists()]
    if files and not present:
        return Listing()
    request = {
        "root": str(side.root),
        "arguments": [*selection.options, *present],
        "tree_redirect": side.tree_redirect,
        "policy": selection.policy,
        "inifile": selection.inifile,
        "values": selection.values,
    }
    variables = os.environ if selection.variables is None else selection.variables
    plugins = {name: variables[name] for name in _NAME_PLUGINS if name in variables}
    try:
        listed = collect(command, request, Path(side.root), seconds, plugins, selection.variables)
        cases = an_object(listed["cases"], "cases")
        keys = ("broken", "seen", "gate")
        broken, seen, gate = ([a_text(word, "a word") for word in a_list(listed[key], key)] for key in keys)
        benchmarks = {name: _benchmark(benchmark) for name, benchmark in cases.items()}
        return Listing(benchmarks, tuple(broken), frozenset(seen), tuple(gate))
    except SideError as error:
        raise SideError(f"{side.spec}: {error}") from None
    except (ReportError, ValueError, KeyError) as error:
        raise SideError(f"{side.spec}: the list of its benchmarks is damaged ({described(error)})") from None


def _benchmark(content: object) -> Benchmark:
    mapping = an_object(content, "a benchmark")
    return Benchmark(
        a_text(mapping["source"], "source"),
        a_text(mapping["scope"], "scope"),
        a_flag(mapping["skipped"], "skipped"),
        a_flag(mapping["selected"], "selected"),
        own_thresholds(mapping["thresholds"]),
        a_text(mapping["statistic"], "statistic"),
    )


def removed_files(before: Path, now: Path) -> list[str]:
    """Return the files of the tree ``before`` that may have benchmarks and that the tree ``now`` lacks, from their roots."""
    names = [path.relative_to(before).as_posix() for path in before.rglob("*.py") if path.name != "conftest.py"]
    gone = [name for name in sorted(names) if not (now / name).exists()]
    return [name for name in gone if b"bench" in (before / name).read_bytes().lower()]


def moved_files(before: Collection[str], now: Collection[str], root: Path) -> dict[str, str]:
    """Map each file of the cases ``before`` that ``root`` lacks to a file that has new cases of the same names ``now``."""
    places = {name.partition("::")[2]: name.partition("::")[0] for name in set(now).difference(before)}
    names: dict[str, str] = {}
    for name in sorted(before):
        file, _, rest = name.partition("::")
        if rest in places and file not in names and not (root / file).exists():
            names[file] = places[rest]
    return names


class Counterparts:
    """Find the case of another source tree for a case of this run, renamed ones included.

    Benchmarks with the same code and variant under another name match, if that code uses the same definitions, imports
    and fixtures. A benchmark that only moved to another file is preferred. Ambiguous and doubtful matches are left out:
    the old case is then missing and the new one new. The cases of a file that cannot be imported there are their own
    counterparts, and their races say so.

    Args:
        listing: What pytest collects of that tree, from `benchmarks_of`.
        now: The cases of this run, those of other shards included.
        collected: Names of all cases here, deselected ones included. They are not renamed.
    """

    def __init__(self, listing: Listing, now: Sequence[Case], collected: Collection[str] = ()) -> None:
        self._broken = listing.broken
        self._unlisted = tuple(set(listing.broken) - listing.seen)
        self._before = before = listing.cases
        gone = set(before) - {case.name for case in now} - set(collected)
        counterparts = {}
        for case in now:
            if case.name not in before and case.scope:
                variant = case.name.partition("[")[2]
                same = [old for old in gone if before[old].scope == case.scope and old.partition("[")[2] == variant]
                moved = [old for old in same if short_name(old) == case.short_name]
                if len(matches := moved or same) == 1:
                    counterparts[case.name] = matches[0]
        uses = Counter(counterparts.values())
        self._renamed = {new: old for new, old in counterparts.items() if uses[old] == 1}

    def of(self, case: Case) -> Case | None:
        """Return the case with its name and thresholds in that tree, or ``None`` if the tree does not have it."""
        name = case.name if case.name in self._before else self._renamed.get(case.name)
        if not name:
            return case if _below(case.name, self._broken) else None
        there = self._before[name]
        return replace(case, name=name, thresholds=there.thresholds, statistic=there.statistic)

    def unlisted(self, collected: Iterable[str]) -> list[str]:
        """Return the files of these cases that pytest could not list there, although a process has collected the cases."""
        return sorted({name.partition("::")[0] for name in collected if _below(name, self._unlisted)})

    def differs(self, case: Case) -> bool:
        """Return whether the benchmark's function there, or what it uses in the suite, is other code; false if unknown."""
        there = self.of(case)
        if there is None or (known := self._before.get(there.name)) is None:
            return False
        pairs = (known.scope, case.scope), (known.source, case.source)
        before, now = next((pair for pair in pairs if all(pair)), ("", ""))
        return before != now

    @property
    def names(self) -> Collection[str]:
        """Names of the cases of that tree."""
        return self._before

    def runs(self, case: Case) -> bool:
        """Return whether that tree has the case and would run it."""
        there = self.of(case)
        return there is not None and (there.name not in self._before or self._before[there.name].runs)

    def gone(self, known: Collection[str]) -> list[Case]:
        """Return the cases that that tree would run, and that are neither ``known`` nor renamed."""
        there = {*known, *self._renamed.values()}
        return [Case.named(name) for name, benchmark in self._before.items() if benchmark.runs and name not in there]
