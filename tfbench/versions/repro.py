"""Write a single file that reproduces a slowdown."""

from __future__ import annotations

import ast
import inspect
import os
import platform
import re
import subprocess
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tfbench.errors import TfbenchError
from tfbench.facts import machine
from tfbench.fs import scratch_dir
from tfbench.model import JSON, Case, Ratio
from tfbench.model.words import times
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.session.profiling import explained
from tfbench.sides.spec import Side
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.suite.axes import VARIABLE
from tfbench.untrusted import brief, command
from tfbench.versions import standalone
from tfbench.versions.rewrite import Extract, extract

# Confirm that an extracted file shows the difference of a race, and list what else differs between its sides


_LIMIT = 5
"""A file with five launches may take so many times the policy's seconds for the set-up of one."""


def run_code(code: str, name: str, sides: tuple[Side, Side], policy: Policy) -> ReproResult:
    """Run the text of a file under a name in a folder of its own.

    Args:
        sides: The other side, and this one, whose interpreter runs it.

    Raises:
        TfbenchError: It fails, or takes too long.
    """
    other, own = sides
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
        place = Path(folder, name)
        place.write_text(code, encoding="utf-8")
        return run(place, own.executable, other.executable, policy.setup_seconds * _LIMIT)


def changes(launcher: ProcessLauncher, policy: Policy, other: Entrant, own: Entrant) -> list[str]:
    """Return the changes of graphs and exact metrics, or why they are unknown, a line each."""
    try:
        launcher.start_pairs((other, own), [0])
        found = explained(Prober(launcher, policy), other, own)
    except TfbenchError as error:
        return [f"the graphs could not be compared: {brief(error)}"]
    lines = [": ".join(filter(None, row)) for row in found.changes]
    rows = [change.cells for change in found.metrics]
    lines += [f"{name}: {before} before, {now} now; {what}" for name, before, now, what in rows]
    return [*(lines or ["the graphs, XLA's modules and every exact metric are the same"]), *found.notes]


# Compose the file of a repro, run it, and write the text of a bug report about it


_OPTIONAL = ("PlainLevel", "PlainVariant", "shared", "folder")
"""Parts of `standalone` that only some benchmarks need."""
_RATIO = re.compile(r"^ratio ([\d.]+) \(launches from ([\d.]+) to ([\d.]+)\)", re.MULTILINE)
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
    low: float
    high: float
    shown: bool
    """Whether every launch shows the difference."""
    output: str

    def agrees(self, raced: float) -> bool:
        """Whether the file shows a difference in the direction of the race's ratio."""
        return self.shown and (self.ratio > 1) == (raced > 1)


def compose(
    function: pytest.Function, case: Case, sides: tuple[Side, Side], search: Sequence[Path], about: str, launches: int
) -> str:
    """Return the text of the file.

    Args:
        function: The pytest item of the case.
        sides: The other side, and this one.
        search: Folders that the project's modules are imported from.
        about: What the file shows, for its docstring.
        launches: Fresh processes of each side, unless the file is run with another number.

    Raises:
        UsageError: The case cannot be extracted.
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
    found = extract(function, case, search, {*defined, *imports, "LEVELS", "__name__"}, imports)
    head = _settings(_without_unused(source, tree, found), case, sides, launches)
    docstring = ast.get_docstring(tree, clean=False)
    head = head.replace(f'"""{docstring}"""', f'"""{about}\n"""', 1)
    return "\n".join([f"{head.rstrip()}\n{_START}{chr(10).join(found.imports)}", "", "", found.code, ""])


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _without_unused(source: str, tree: ast.Module, found: Extract) -> str:
    """Leave out the parts of the harness that this benchmark does not need."""
    needed = set(found.names) | ({"folder"} if "shared" in found.names else set())
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in _OPTIONAL and node.name not in needed:
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
    return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines) + "\n")


def _settings(source: str, case: Case, sides: tuple[Side, Side], launches: int) -> str:
    """Fill in the settings of both sides and of the race."""
    scale = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
    own, other = ({**scale, **side.env, **dict(case.env)} for side in (sides[1], sides[0]))
    common = {name: value for name, value in own.items() if other.get(name) == value}
    filled = {
        "ENVIRONMENT: dict[str, str] = {}": common,
        "OTHER_ENVIRONMENT: dict[str, str] = {}": {name: other[name] for name in other if name not in common},
        "OWN_ENVIRONMENT: dict[str, str] = {}": {name: own[name] for name in own if name not in common},
    }
    for line, value in filled.items():
        source = source.replace(f"\n{line}", f"\n{line.removesuffix('{}')}{value!r}", 1)
    source = source.replace(f"\nLAUNCHES = {standalone.LAUNCHES}", f"\nLAUNCHES = {launches}", 1)
    return source.replace("\nONE_PROCESSOR = True", f"\nONE_PROCESSOR = {case.cpus != 'all'}", 1)


def run(file: Path, own: str, other: str, seconds: float) -> ReproResult:
    """Run the file on two interpreters, outside the project, without the packages of ``PYTHONPATH``.

    Raises:
        TfbenchError: It fails, or takes longer than ``seconds``.
    """
    left_out = (HISTORY_VARIABLE, "PYTHONPATH", "PYTEST_", "TF_CPP_MIN_LOG_LEVEL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    try:
        done = subprocess.run(
            [own, str(file), "--other", other],
            cwd=file.parent, env=env, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TfbenchError(f"the extracted file took longer than {seconds:.0f} s") from None
    if (found := _RATIO.search(done.stdout)) is None:
        last = "\n".join(f"{done.stdout}{done.stderr}".strip().splitlines()[-_TAIL:])
        raise TfbenchError(f"the extracted file fails, so it was not written:\n{last}")
    ratio, low, high = map(float, found.groups())
    return ReproResult(ratio, low, high, done.returncode == 0, done.stdout.strip())


@dataclass(frozen=True)
class BugReport:
    """What a bug report says besides the code."""

    case: Case
    sides: Mapping[str, JSON]
    """Label -> environment of the other side, and of this one."""
    ratio: Ratio
    launches: int
    repro: ReproResult
    changes: Sequence[str]
    """Changes of graphs and exact metrics, a line each."""
    profile: Sequence[str]
    """What profiles show, a line each."""
    command: str
    """The command that made it."""

    def render(self, file: Path, code: str) -> str:
        """Return the text of the report as Markdown, with the code of the file."""
        other, own = self.sides
        change = self.ratio.center if self.ratio.center > 1 else 1 / self.ratio.center
        word = "slower" if self.ratio.center > 1 else "faster"
        workload, here = self.case.short_name, machine()
        packages = [self.sides[label].get("packages", {}) for label in (other, own)]
        rows = [
            ("Python", *(str(self.sides[label].get("python", "")) for label in (other, own))),
            *((name, *(one.get(name, "-") for one in packages)) for name in sorted({*packages[0], *packages[1]})),
        ]
        table = [f"| | {other} | {own} |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
        return "\n".join(
            [
                f"# {workload} is {change:.2f} times {word} with {own} than with {other}",
                "",
                f"Time with {own} / time with {other}: {times(self.ratio)}, at {self.ratio.confidence:.0%} confidence,",
                f"from {self.launches} launches of fresh processes that took turns of 0.3 ms on one machine.",
                "",
                "## Versions",
                "",
                *table,
                "",
                f"System: {platform.platform()}, {brief(here['processor'])}, {here['processors']} processors",
                "",
                "## Standalone code",
                "",
                f"`{file.name}` needs TensorFlow, NumPy and the standard library. It races both sides in turns:",
                "",
                "```",
                f"$ {command('python', file.name, '--other', 'OTHER_PYTHON')}",
                self.repro.output,
                "```",
                "",
                "## What changed",
                "",
                *(f"- {line}" for line in self.changes),
                *(f"- {line.strip()}" for line in self.profile),
                "",
                f"Made by tfbench: `{self.command}`",
                "",
                "<details><summary>The file</summary>",
                "",
                "```python",
                code.rstrip(),
                "```",
                "",
                "</details>",
                "",
            ]
        )


def about(case: Case, other: str, own: str) -> str:
    """Return the docstring of the file."""
    text = f"{case.short_name}: the time with {own} differs from the time with {other}."
    how = (
        "python THIS_FILE --other OTHER_PYTHON races the step on two interpreters, which need TensorFlow and NumPy: "
        f"run it on {own}, and give the Python of an environment with {other}. Fresh processes of both take turns of "
        "0.3 ms on one processor, so that noise hits both alike. Exit code 0: every launch shows the difference."
    )
    return "\n\n".join([text, textwrap.fill(how, 100)])
