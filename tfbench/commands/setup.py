"""Shared parts of the commands that measure: selected cases, sides and workers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from tfbench.errors import UsageError
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.selection import parse_device
from tfbench.model import Case
from tfbench.plugin.collect import Collected, collect
from tfbench.plugin.options import worker_processors
from tfbench.policy import Policy
from tfbench.race.process_launcher import ZYGOTES_TOGETHER, ProcessLauncher
from tfbench.sides.environments import Environments, kept
from tfbench.sides.spec import Side, packages_of, parse
from tfbench.storage.baselines import Layout
from tfbench.suite.axes import SCALES

_SELECTIONS = {
    "-k": ("EXPRESSION", "select cases by name, as in pytest"),
    "-m": ("EXPRESSION", "select cases by mark, as in pytest"),
    "--deselect": ("CASE", "leave out a case; repeatable"),
    "--ignore": ("PATH", "leave out a file or folder; repeatable"),
    "--scale": ("|".join(SCALES), "shapes of the benchmarks"),
    "--device": ("cpu|gpu|all|gpu:0,1", "select cases by device; GPUs by index or UUID"),
}
"""Options that pytest gets unchanged."""


def add_selections(parser: argparse.ArgumentParser, *, cpus: bool = True) -> None:
    """Add the options that select cases and, for commands that measure in this process, processors."""
    for option, (metavar, text) in _SELECTIONS.items():
        parser.add_argument(option, action="append", default=[], metavar=metavar, dest=f"select {option}", help=text)
    if cpus:
        parser.add_argument("--cpus", metavar="LIST", help="processors for the workers, such as 0,2-3")


def selected_words(arguments: argparse.Namespace) -> tuple[list[str], dict[str, list[str]]]:
    """Return the options of `add_selections` as words for pytest, and their values by option."""
    selected = {option: getattr(arguments, f"select {option}") for option in _SELECTIONS}
    return [word for option, values in selected.items() for value in values for word in (option, value)], selected


class CommandSetup(ExitStack):
    """The selected cases of a command line, and the means to create and run sides. A context manager.

    The arguments are from a parser with the options of `add_selections`. Without paths, pytest decides what to collect.
    Raises `UsageError` if no case is selected, or pytest cannot collect one.
    """

    def __init__(self, arguments: argparse.Namespace, paths: Sequence[str], policy: Policy) -> None:
        super().__init__()
        words, selected = selected_words(arguments)
        kind, gpus = parse_device((selected["--device"] or ["all"])[-1])
        where = worker_processors(arguments.cpus)
        self.collected: Collected = collect([*words, *paths])
        if not self.collected.cases:
            raise UsageError("no benchmark is selected; `pytest --benchmark --collect-only -q` lists all")
        self.policy = policy
        self.tell: Callable[[str], None] = lambda text: None
        """Called with the current activity."""
        self.gpu_session = GpuSession(kind, gpus, policy)
        self.callback(self.gpu_session.close)
        self.environments = self.enter_context(Environments(kept(), lambda text: self.tell(text)))
        env = self.gpu_session.environment
        suite = self.collected.suite
        self.contender = Side("contender", sys.executable, self.collected.root, env=env, yardstick=suite.yardstick)
        # Several sides race at once.
        room = replace(policy, zygotes_alive=ZYGOTES_TOGETHER, zygotes_variants=ZYGOTES_TOGETHER)
        self.launcher = ProcessLauncher(suite, room, where, self.gpu_session.gpu_monitor)
        self.callback(self.launcher.close)

    @property
    def cases(self) -> list[Case]:
        """The selected cases."""
        return list(self.collected.cases.values())

    @property
    def notes(self) -> list[str]:
        """Remarks for the user so far, beside the result."""
        return self.gpu_session.notes + self.launcher.notes

    def prefer_one_python(self, specs: Sequence[str]) -> None:
        """Run the sides of these specifications on the same Python, if one exists for all of them."""
        if requests := [packages for spec in specs if (packages := packages_of(spec))]:
            self.environments.prefer(requests)

    def side(self, spec: str, name: str) -> Side:
        """Create the side of a specification. Raises as `tfbench.sides.spec.parse` and `ProcessLauncher.check`."""
        trees = Layout.of(self.collected.root).trees
        side = replace(parse(spec, self.contender, trees, self.environments), name=name, spec=spec)
        self.launcher.check(side, self.cases)
        return side
