"""Find the cases of another side."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from tfbench.errors import ReportError, SideError
from tfbench.fs import isolated_package_dir, python_path, read_text, scratch_dir, without_repository
from tfbench.model import JSON, Case, function_name, own_thresholds, short_name
from tfbench.model.formats import FormError, convert
from tfbench.sides.spec import Side, as_committed
from tfbench.untrusted import an_object, described, parse_json

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
    above: str = "."
    """Folder relative to pytest's root, above which pytest looks for no conftest.py file."""
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

    cases: Mapping[str, Case] = field(default_factory=dict)
    """By name, with the thresholds, the statistic and the marks that they have there."""
    skipped: frozenset[str] = frozenset()
    """Names of the cases that a mark of pytest skips there."""
    deselected: frozenset[str] = frozenset()
    """Names of the cases that the run's options leave out in that tree, where its own marks, conftest.py and configuration count."""
    broken: tuple[str, ...] = ()
    """Files and folders that cannot be imported there, relative to its root; ``.`` for all."""
    seen: frozenset[str] = frozenset()
    """Files and folders that pytest has collected or skipped there, whether they have benchmarks or not."""
    gate: tuple[str, ...] = ()
    """Words of the options that decide what passes there: those of the command line, and of its own configuration file."""

    def __post_init__(self) -> None:
        for case in self.cases.values():
            own_thresholds(dict(case.thresholds))

    def runs(self, case: str) -> bool:
        """Tell whether the tree would run this case of its own under the options of this run."""
        return case not in self.skipped and case not in self.deselected

    def has(self, case: str) -> bool:
        """Tell whether the tree has the case of this name, or may have it in a file that cannot be imported there."""
        return case in self.cases or _below(case, self.broken)

    def unlisted(self, collected: Iterable[str]) -> list[str]:
        """Return the files of these cases that pytest could not list, although a process of that tree has collected the cases."""
        unknown = tuple(set(self.broken) - self.seen)
        return sorted({name.partition("::")[0] for name in collected if _below(name, unknown)})


def benchmarks_of(side: Side, selection: Selection, command: Sequence[str], seconds: float) -> Listing:
    """Collect the cases that a side's own source tree has in the files and folders of the selection.

    Paths that the side does not have are ignored. ``command`` collects a source tree and writes the result to a file.
    Its last argument is the request as JSON.
    Raises `SideError` if pytest cannot collect the side's benchmarks, or the selection is outside of its tree.
    """
    if outside := [path for path in selection.paths if path.partition("/")[0] == ".."]:
        fix = "name a --rootdir that contains it"
        raise SideError(f"{side.spec}: {outside[0]} is outside of pytest's root, so this tree cannot have it; {fix}")
    side = as_committed(side)
    files = dict.fromkeys(path.partition("::")[0] for path in selection.paths)
    present = [file for file in files if Path(side.root, file).exists()]
    if not (present if files else side.root.is_dir()):
        return Listing()
    request = {
        "root": str(side.root),
        "arguments": [*selection.options, *present],
        "tree_redirect": side.tree_redirect,
        **{name: getattr(selection, name) for name in ("policy", "inifile", "above", "values")},
    }
    variables = os.environ if selection.variables is None else selection.variables
    plugins = {name: variables[name] for name in _NAME_PLUGINS if name in variables}
    try:
        listed = collect(command, request, Path(side.root), seconds, plugins, selection.variables)
        if listed.keys() != Listing.__dataclass_fields__.keys():
            raise FormError("", f"it has {', '.join(listed) or 'nothing'}")
        return convert(Listing, listed)
    except (SideError, FormError) as error:
        text = error if isinstance(error, SideError) else f"the list of its benchmarks is damaged ({described(error)})"
        raise SideError(f"{side.spec}: {text}") from None


def _paired(added: Mapping[str, str], removed: Mapping[str, str], kind: Callable[[str], str]) -> dict[str, str]:
    """Map added to removed cases of the same code and ``kind``, where each removed one has an added one."""
    ours, theirs = defaultdict[tuple[str, str], list[str]](list), defaultdict[tuple[str, str], list[str]](list)
    for names, groups in ((added, ours), (removed, theirs)):
        for name in sorted(names):
            groups[names[name], kind(name)].append(name)
    pairs = ((ours[key], names) for key, names in theirs.items() if len(names) <= len(ours[key]))
    return {new: old for news, olds in pairs for new, old in zip(news, olds, strict=False)}


def _defines(root: Path, name: str) -> bool:
    """Tell whether the file of a case is still there and defines its function, as far as its text tells."""
    file, function = name.partition("::")[0], function_name(name)
    try:
        text = read_text(root / file)
    except ReportError:  # it is gone
        return False
    return re.search(rf"^\s*(async\s+)?def\s+{re.escape(function)}\b", text, re.MULTILINE) is not None


class Counterparts:
    """What another source tree itself says about the cases of this run, and which of its cases this run lacks.

    A case of this run that the tree does not have stands for one that only the tree has, if both have the code of the
    function and the variant in common: the benchmark was renamed or moved. It races by its name of today.

    Args:
        listing: What pytest collects of that tree, from `benchmarks_of`.
        now: The cases of this run, those of other shards included.
        collected: Names of all cases here, deselected ones included. They are not renamed.
        root: The working tree. A case whose function is still there, although pytest no longer collects it, is not renamed.
    """

    def __init__(
        self, listing: Listing, now: Sequence[Case], collected: Collection[str] = (), root: Path | None = None
    ) -> None:
        self.listing = listing
        before = listing.cases
        here = {*collected, *(case.name for case in now)}
        added = {case.name: case.source for case in now if case.name not in before and case.source}
        removed = {name: before[name].source for name in before.keys() - here if not root or not _defines(root, name)}
        moved = _paired(added, removed, short_name)
        added = {name: added[name] for name in added.keys() - moved.keys()}
        removed = {name: removed[name] for name in removed.keys() - set(moved.values())}
        self.renamed = moved | _paired(added, removed, lambda name: name.partition("[")[2])
        """Name of a case of this run -> its name there."""

    def known(self, case: Case) -> Case | None:
        """Return the case as that tree has it."""
        return self.listing.cases.get(self.renamed.get(case.name, case.name))

    def of(self, case: Case) -> Case:
        """Return the case with its thresholds in that tree, if the tree has it."""
        there = self.known(case)
        return case if there is None else replace(case, thresholds=there.thresholds, statistic=there.statistic)

    def has(self, case: Case) -> bool:
        """Tell whether that tree has the case, or may have it in a file that cannot be imported there."""
        return case.name in self.renamed or self.listing.has(case.name)

    def runs(self, case: Case) -> bool:
        """Tell whether that tree would run the case, as far as is known."""
        there = self.known(case)
        return self.has(case) if there is None else self.listing.runs(there.name)

    def gone(self, known: Collection[str]) -> list[Case]:
        """Return the cases that that tree would run, and that are neither ``known`` nor renamed."""
        there = {*known, *self.renamed.values()}
        return [Case.named(name) for name in self.listing.cases if self.listing.runs(name) and name not in there]
