"""Write a single file that reproduces a slowdown."""

from __future__ import annotations

import ast
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import machine, settings
from tfbench.fs import scratch_dir
from tfbench.model import JSON, TIME, Case, Outcome, Ratio
from tfbench.model.words import times
from tfbench.policy import Policy
from tfbench.race.launch import Entrant
from tfbench.race.prober import Profiler
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import TEMPORARY, end_processes
from tfbench.session.profiling import BASELINE, CONTENDER, take
from tfbench.sides.spec import TENSORFLOWS, Side
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.untrusted import brief, command, plural
from tfbench.versions import standalone
from tfbench.versions.changes import Difference, changes, difference
from tfbench.versions.rewrite import AVAILABLE, Extract, extract

_LIMIT = 5
"""A file with five launches may take so many times the policy's seconds for the set-up of one."""

# Compose the file of a repro, run it, and write the text of a bug report about it


def reproduce(
    function: pytest.Function,
    case: Case,
    sides: tuple[Side, Side],
    labels: tuple[str, str],
    root: Path,
    file: Path,
    launcher: ProcessLauncher,
    policy: Policy,
    made: str,
    *,
    variables: Mapping[str, str],
    profiled: bool,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> dict[Path, str]:
    """Race a case, extract it into a file that shows the same, and return the texts of the file and of its report.

    Args:
        sides: The other side, and this one, whose interpreter runs the file.
        file: Where the file will be written, its report beside it.
        made: The command that makes it.
        variables: Environment variables that the project's files have set.

    Raises:
        UsageError: The case or a side cannot be in such a file, or a file exists.
        TfbenchError: There is no difference, or the file does not show it.
    """
    report = file.with_suffix(".md")
    if file.stem in AVAILABLE or file.suffix != ".py":  # Python would import the file instead of the module
        raise UsageError(f"--output {brief(file)}: name a .py file unlike a module, such as repro_{file.stem}.py")
    for path in (file, report):
        if path.exists():
            raise UsageError(f"{brief(path)} exists; remove it, or give another name with --output")
    for label, side in zip(labels, sides, strict=True):
        if side.tree_redirect is not None:
            raise UsageError(f"{label}: {_WITHOUT_TREES}")
    search = [root, *(Path(folder) for folder in sys.path if folder)]
    # This fails before anything takes long.
    code = compose(function, case, sides, search, about(case, *labels), policy.repro_launches, variables)
    entrants = Entrant(case, sides[0]), Entrant(case, sides[1])
    tell(f"racing {case.short_name}")
    comparison = _raced(launcher, policy, entrants)
    if comparison.outcome is Outcome.INCONCLUSIVE:
        tell(f"racing {case.short_name} once more, with more launches")
        comparison = _raced(launcher, policy.patient(), entrants)
    assert comparison.ratio is not None
    ratio = comparison.ratio
    show(f"{case.short_name}: {comparison.outcome}, ratio to {labels[0]} {times(ratio)}")
    if comparison.outcome not in (Outcome.REGRESSED, Outcome.IMPROVED):
        raise TfbenchError(f"there is no difference to show: {comparison.reason}")
    tell("running the extracted file")
    shown = _confirmed(code, file.name, sides, ratio.center, policy)
    show(shown.output)
    if abs(shown.ratio / ratio.center - 1) > _AGREE:
        show(f"note: the file shows {shown.ratio:.2f}, the race {ratio.center:.2f}")
    tell("reading what changed")
    profile = _profile(launcher, policy, entrants, ratio.center - 1, tell) if profiled else []
    environments = {label: launcher.environment(side) for label, side in zip(labels, sides, strict=True)}
    changed = [*changes(launcher, policy, *entrants), *map(str.strip, profile)]
    text = bug_report(case, environments, (ratio, comparison.launches), shown, changed, made, file.name, code)
    return {file: code, report: text}


def _confirmed(code: str, name: str, sides: tuple[Side, Side], raced: float, policy: Policy) -> ReproResult:
    """Run the file under a name in a folder of its own; ``raced`` is the ratio of the race.

    Raises `TfbenchError` if it fails, takes too long, or does not show the difference of the race.
    """
    other, own = sides
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
        place = Path(folder, name)
        place.write_text(code, encoding="utf-8")
        shown = run(place, own.executable, other.executable, policy.setup_seconds * _LIMIT)
    if not shown.agrees(raced):
        text = f"the race found a ratio of {raced:.3f}, the extracted file {shown.ratio:.3f}"
        raise TfbenchError(f"the file does not show the difference, so it was not written: {text}")
    return shown


def _raced(launcher: ProcessLauncher, policy: Policy, entrants: tuple[Entrant, Entrant]) -> Difference:
    case = entrants[0].case
    result = difference(launcher, launcher.policy_of(policy, entrants), TIME, entrants)
    for entrant, failure in result.failures.items():
        raise TfbenchError(f"{case.short_name} breaks on the {('other', 'own')[entrant]} side: {failure}")
    if result.outcome is None:
        raise TfbenchError(f"{case.short_name} could not be compared: {result.reason}")
    return result


def _profile(
    launcher: ProcessLauncher,
    policy: Policy,
    entrants: tuple[Entrant, Entrant],
    slowdown: float,
    tell: Callable[[str], None],
) -> list[str]:
    """Return what profiles of both sides show, or why there are none, a line each."""
    sides = dict(zip((BASELINE, CONTENDER), entrants, strict=True))
    try:
        with tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
            return list(take(Profiler(launcher, policy), sides, Path(folder), policy, slowdown, tell).why)
    except TfbenchError as error:
        return [f"profile: none: {brief(error)}"]


_WITHOUT_TREES = "a file alone cannot have another source tree; give versions, python:PATH or env:NAME=VALUE"
_AGREE = 0.2
"""Relative difference between the file's ratio and the race's that is worth a warning."""
_OPTIONAL = ("PlainLevel", "PlainVariant", "shared", "folder")
"""Parts of `standalone` that only some benchmarks need."""
_START = """

if __name__ == "__main__" and CHILD not in sys.argv:
    sys.exit(main(__file__))

# The step. Only the processes of the sides get here.

"""
_TAIL = 15
"""Lines of a failed run that an error shows."""


@dataclass(frozen=True)
class ReproResult:
    """The result of running the file."""

    ratio: float
    shown: bool
    """Whether every launch shows the difference."""
    output: str

    def agrees(self, raced: float) -> bool:
        """Whether the file shows a difference in the direction of the race's ratio."""
        return self.shown and (self.ratio > 1) == (raced > 1)


def compose(
    function: pytest.Function,
    case: Case,
    sides: tuple[Side, Side],
    search: Sequence[Path],
    about: str,
    launches: int,
    variables: Mapping[str, str],
) -> str:
    """Return the text of the file. Raises `UsageError` if the case cannot be extracted.

    Args:
        sides: The other side, and this one.
        search: Folders that the project's modules are imported from.
        about: What the file shows, for its docstring.
        launches: Fresh processes of each side, unless the file is run with another number.
        variables: Environment variables that the project's files have set.
    """
    source = inspect.getsource(standalone)
    tree = ast.parse(source)
    defined = {name: node for node in tree.body for name in _names(node)}
    imports = {
        alias.asname or alias.name: ast.unparse(type(node)(**{**vars(node), "names": [alias]}))
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    extracted = extract(function, case, search, {*defined, *imports, "LEVELS", "__name__"}, imports)
    head = _settings(_without_unused(source, tree, extracted), case, sides, launches, variables)
    docstring = ast.get_docstring(tree, clean=False)
    head = head.replace(f'"""{docstring}"""', f'"""{about}\n"""', 1)
    return "\n".join([f"{head.rstrip()}\n{_START}{chr(10).join(extracted.imports)}", "", "", extracted.code, ""])


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _without_unused(source: str, tree: ast.Module, extracted: Extract) -> str:
    """Leave out the parts of the harness that this benchmark does not need."""
    needed = set(extracted.names) | ({"folder"} if "shared" in extracted.names else set())
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in _OPTIONAL and node.name not in needed:
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
    return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines) + "\n")


def _settings(source: str, case: Case, sides: tuple[Side, Side], launches: int, variables: Mapping[str, str]) -> str:
    """Fill in the settings of both sides and of the race."""
    given = {name: value for name, value in settings().items() if name not in standalone.THREADS}
    own, other = ({**given, **variables, **side.env, **dict(case.env)} for side in (sides[1], sides[0]))
    common = {name: value for name, value in own.items() if other.get(name) == value}
    filled = {
        "ENVIRONMENT: dict[str, str] = {}": common,
        "OTHER_ENVIRONMENT: dict[str, str] = {}": {name: other[name] for name in other if name not in common},
        "OWN_ENVIRONMENT: dict[str, str] = {}": {name: own[name] for name in own if name not in common},
    }
    for line, value in filled.items():
        source = source.replace(f"\n{line}", f"\n{line.removesuffix('{}')}{value!r}", 1)
    source = source.replace(f"\nLAUNCHES = {standalone.LAUNCHES}", f"\nLAUNCHES = {launches}", 1)
    return source.replace("\nPROCESSORS = 1", f"\nPROCESSORS = {case.cpus}", 1)


def run(file: Path, own: str, other: str, seconds: float) -> ReproResult:
    """Run the file on two interpreters, outside the project, without the packages of ``PYTHONPATH``.

    Raises `TfbenchError` if it fails, or takes longer than ``seconds``.
    """
    left_out = (HISTORY_VARIABLE, "PYTHONPATH", "PYTEST_", "TF_CPP_MIN_LOG_LEVEL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    env[TEMPORARY] = str(file.parent)  # by which the next run finds the processes if this one is killed
    result = file.with_suffix(".json")
    result.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [own, str(file), "--other", other, "--json", str(result)],
            cwd=file.parent, env=env, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TfbenchError(f"the extracted file took longer than {seconds:.0f} s") from None
    finally:
        end_processes(file.parent)  # of the sides, if it did not end them
    if not result.exists():
        last = "\n".join(f"{done.stdout}{done.stderr}".strip().splitlines()[-_TAIL:])
        raise TfbenchError(f"the extracted file fails, so it was not written:\n{last}")
    return ReproResult(**json.loads(result.read_text(encoding="utf-8")), output=done.stdout.strip())


_REPORT = """\
# {case} is {factor:.2f} times {word} with {names[1]} than with {names[0]}

Time with {own} / time with {other}: {ratio}, at {confidence:.0%} confidence,
from {launches} of fresh processes that took turns of 0.3 ms on one machine.

## Versions

| | {other} | {own} |
| --- | --- | --- |
{versions}

System: {system}

## Standalone code

`{file}` needs TensorFlow, NumPy and the standard library. It races both sides in turns:

```
$ {command}
{output}
```

## What changed

{changes}

Made by tfbench: `{made}`

<details><summary>The file</summary>

```python
{code}
```

</details>
"""


def bug_report(
    case: Case,
    sides: Mapping[str, JSON],
    result: tuple[Ratio, int],
    shown: ReproResult,
    changed: Sequence[str],
    made: str,
    file: str,
    code: str,
) -> str:
    """Return the text of a bug report as Markdown.

    Args:
        sides: Label -> environment of the other side, and of this one.
        result: Ratio and launches of the race.
        changed: What differs between the sides, a line each.
        made: The command that made the file.
    """
    (other, own), (ratio, launches), here = sides, result, machine()
    packages = [side.get("packages", {}) for side in sides.values()]
    rows = [("Python", *(str(side.get("python", "")) for side in sides.values()))]
    rows += [(name, *(package.get(name, "-") for package in packages)) for name in sorted({*packages[0], *packages[1]})]
    several = _versions_of(packages)
    names = [
        " and ".join(f"{product} {versions[side]}" for product, versions in several.items() if versions[side])
        if len(several) > 1
        else label
        for side, label in enumerate(sides)
    ]
    return _REPORT.format(
        case=case.short_name, factor=max(ratio.center, 1 / ratio.center), word="slower" if ratio.center > 1 else "faster",
        names=names, other=other, own=own, ratio=times(ratio), confidence=ratio.confidence, launches=plural(launches, "launch"),
        versions="\n".join(f"| {' | '.join(row)} |" for row in rows),
        system=f"{platform.platform()}, {brief(here['processor'])}, {plural(int(here['processors']), 'processor')}",
        file=file, command=command("python", file, "--other", "OTHER_PYTHON"), output=shown.output,
        changes="\n".join(f"- {line}" for line in [*[_SEVERAL] * (len(several) > 1), *changed]), made=made, code=code.rstrip(),
    )  # fmt: skip


_PRODUCTS = {**dict.fromkeys(TENSORFLOWS, "TensorFlow"), "keras": "Keras", "tf-keras": "tf-keras"}
"""Packages that a title names, and the names of their products."""
_SEVERAL = (
    "Both TensorFlow and Keras differ between the sides, and the ratio does not tell which of them is the cause. "
    "To tell, race sides that differ in one of them, as in --against tensorflow==2.20.0+keras==3.9.0."
)


def _versions_of(packages: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Map each product whose versions differ between two sides to its versions, empty where a side lacks it."""
    products = [{product: side[name] for name, product in _PRODUCTS.items() if name in side} for side in packages]
    every = {
        product: tuple(side.get(product, "") for side in products) for product in dict.fromkeys(_PRODUCTS.values())
    }
    return {product: versions for product, versions in every.items() if len(set(versions)) > 1}


def about(case: Case, other: str, own: str) -> str:
    """Return the docstring of the file."""
    text = f"{case.short_name}: the time with {own} differs from the time with {other}."
    how = (
        "python THIS_FILE --other OTHER_PYTHON races the step on two interpreters, which need TensorFlow and NumPy: "
        f"run it on {own}, and give the Python of an environment with {other}. Fresh processes of both take turns of "
        "0.3 ms on one processor, so that noise hits both alike. Exit code 0: every launch shows the difference."
    )
    return "\n\n".join([text, textwrap.fill(how, 100)])
