"""Where a command measures: the cases that were chosen, sides to be made, the processes that run them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.gpus.selection import parse_device
from tfbench.gpus.session import GpuSession
from tfbench.model import Case
from tfbench.plugin.collect import Collected, collect
from tfbench.plugin.options import available_cpus, parse_cpus
from tfbench.policy import Policy
from tfbench.race.process_launcher import ProcessLauncher, processors
from tfbench.sides.environments import Environments, kept
from tfbench.sides.side import Side
from tfbench.sides.spec import packages_of, parse
from tfbench.storage.layout import FOLDER

_SELECTIONS = {
    "-k": ("EXPRESSION", "choose cases by their names, as pytest does"),
    "-m": ("EXPRESSION", "choose cases by their marks, as pytest does"),
    "--deselect": ("CASE", "leave out a case; can be repeated"),
    "--ignore": ("PATH", "leave out a file or a folder; can be repeated"),
    "--device": ("cpu|gpu|all|gpu:0,1", "cases of which devices; GPUs by index or UUID"),
}
"""Options that pytest is handed as they are."""


def add_selections(parser: argparse.ArgumentParser) -> None:
    """The options that choose cases, and where they run."""
    for option, (metavar, words) in _SELECTIONS.items():
        parser.add_argument(option, action="append", default=[], metavar=metavar, dest=_dest(option), help=words)
    parser.add_argument("--cpus", metavar="LIST", help="processors for the measuring processes, as 0,2-3")


def _dest(option: str) -> str:
    return f"select_{option.strip('-')}"


def paths_among(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files, folders and cases among the words of a command line, and the others."""
    paths = [word for word in words if Path(word.partition("::")[0]).exists()]
    return paths, [word for word in words if word not in paths]


class CommandSetup:
    """The cases of a command line, and what sides are made with; to be closed.

    Args:
        arguments: Parsed by a parser that `add_selections` was asked for.
        paths: Files, folders and cases to collect; pytest's own choice without any.

    Raises:
        UsageError: Nothing is chosen, or pytest cannot collect it.
    """

    def __init__(self, arguments: argparse.Namespace, paths: Sequence[str], policy: Policy) -> None:
        selections = [
            word for option in _SELECTIONS for value in getattr(arguments, _dest(option)) for word in (option, value)
        ]
        kind, gpus = parse_device((getattr(arguments, _dest("--device")) or ["all"])[-1])
        cpus = parse_cpus(arguments.cpus) if arguments.cpus else None
        self.collected: Collected = collect([*selections, *paths])
        if not self.collected.cases:
            raise UsageError("no benchmark is chosen; `pytest --benchmark --collect-only -q` lists them")
        self.policy = policy
        self.tell: Callable[[str], None] = lambda text: None
        """Called with what is being done."""
        self.environments = Environments(kept(), lambda text: self.tell(text))
        self.contender = Side("contender", sys.executable, self.collected.root)
        self.gpu_session = GpuSession(kind, gpus, policy)
        self.contender = replace(self.contender, env=self.gpu_session.environment)
        where, gpu_monitor = processors(cpus, available_cpus()), self.gpu_session.gpu_monitor
        self.launcher = ProcessLauncher(self.collected.suite, policy, where, gpu_monitor)

    @property
    def cases(self) -> list[Case]:
        """Those that were chosen."""
        return list(self.collected.cases.values())

    @property
    def notes(self) -> list[str]:
        """What the user ought to know beside the answer, by now."""
        return self.gpu_session.notes + self.launcher.notes

    @property
    def trees(self) -> Path:
        """Where source trees are made."""
        return Path(self.collected.root, FOLDER, "trees")

    def prefer_one_python(self, specs: Sequence[str]) -> None:
        """Have sides of these specifications run on the same Python, if there is one for all of them."""
        if requests := [packages for spec in specs if (packages := packages_of(spec))]:
            self.environments.prefer(requests)

    def side(self, spec: str, name: str) -> Side:
        """A side of this specification.

        Raises:
            UsageError: It is none.
            SideError: It cannot be made.
        """
        return replace(parse(spec, self.contender, self.trees, self.environments), name=name, spec=spec)

    def __enter__(self) -> CommandSetup:
        return self

    def __exit__(self, *error: object) -> None:
        self.launcher.close()
        self.environments.close()
        self.gpu_session.close()
