"""Write a folder that shows the difference of a case between two interpreters without tfbench."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import settings
from tfbench.fs import read_text, write_whole
from tfbench.model import Case
from tfbench.sides.spec import Side
from tfbench.suite import axes
from tfbench.untrusted import brief, command, render_json
from tfbench.versions import runner

RUNNER, SETTINGS = "race.py", "race.json"


def write_folder(
    folder: Path,
    function: pytest.Function,
    case: Case,
    root: Path,
    sides: tuple[Side, Side],
    variables: Mapping[str, str],
) -> None:
    """Write the files of a benchmark as they are, and a runner that races two interpreters.

    Args:
        sides: The other side, and this one.
        variables: Environment variables that the project's files have set.

    Raises `UsageError` if the folder exists, or a side has another source tree.
    """
    if folder.exists():
        raise UsageError(f"--repro {brief(folder)}: it exists; remove it, or name another folder")
    for side in sides:
        if side.tree_redirect is not None:
            raise UsageError(f"{side.spec}: --repro races interpreters; give versions, python:PATH or env:NAME=VALUE")
    start = root / case.name.partition("::")[0]
    if function.function.__module__.startswith("tfbench."):
        raise UsageError(f"{case.short_name}: --repro needs a benchmark that is a function of {start.name}")
    below = [Path(entry) for entry in sys.path if Path(entry).is_relative_to(root)]
    # Others are of a virtual environment in the project.
    inside = [entry for entry in below if not entry.is_relative_to(sys.prefix)]
    for file in sorted(project_files(start, root, [*inside, root])):
        place = folder / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    given = {name: value for name, value in settings().items() if name not in runner.THREADS}
    other, this = ({**given, **variables, **side.env, **dict(case.env)} for side in sides)
    paths = [path.relative_to(root).as_posix() for path in inside]
    content = {"case": case.name, "import_mode": function.config.getoption("importmode"), "paths": paths,
               "processors": case.cpus, "other": other, "this": this}  # fmt: skip
    write_whole(folder / SETTINGS, render_json(content, 1) + "\n")
    for name, module in (RUNNER, runner), ("race_axes.py", axes):
        write_whole(folder / name, read_text(Path(str(module.__file__))))


def project_files(start: Path, root: Path, search: Sequence[Path]) -> set[Path]:
    """Return the benchmark's file, the files of the project that its code imports, and each conftest.py above it.

    ``search`` has the folders below the root that imports are looked for in.
    """
    found: set[Path] = set()
    waiting = [start, *(folder / "conftest.py" for folder in start.parents if folder.is_relative_to(root))]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        waiting += [folder / "__init__.py" for folder in file.parents if folder.is_relative_to(root)]
        for name, level in _imports(file):
            if name.partition(".")[0] == "tfbench":  # the runner stands for it
                continue
            for folder in [file.parents[level - 1]] if level else search:
                module = folder.joinpath(*name.split("."))
                waiting += [module / "__init__.py", module.with_suffix(".py")]
    return found


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """Yield each module that code may import, with the dots before a relative name: `from a import b` may mean `a.b`."""
    for node in ast.walk(ast.parse(read_text(file))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            yield from (
                (".".join([*base, *name]), node.level) for name in ([], *([alias.name] for alias in node.names))
            )


def race_folder(folder: Path, other: str) -> None:
    """Run the runner of a folder against another interpreter, which prints its launches.

    Raises `TfbenchError` if it shows no difference, which removes the folder, or if it fails.
    """
    words = [sys.executable, RUNNER, "--other", other]
    code = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
    if code == 1:
        shutil.rmtree(folder)
        raise TfbenchError(f"there is no difference to show, so {brief(folder)} was removed")
    if code:
        raise TfbenchError(f"{brief(folder)} does not run; add what is missing there, and run {command(*words)} in it")
