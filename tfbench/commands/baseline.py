"""List, show, accept and remove saved baselines.

A run with `pytest --benchmark --baseline NAME` keeps what it measured as a candidate. When its change is
meant, `accept NAME --reason ...` makes the candidate the baseline; the reason is kept in the file, with those
of earlier times.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median, stdev

from rich.console import Console
from rich.text import Text

from tfbench.errors import BaselineError, UsageError
from tfbench.report.style import table
from tfbench.report.units import duration
from tfbench.sides.source_tree import CANDIDATES, KEPT, drop, keep
from tfbench.storage.baselines import Acceptance, Baseline, Baselines, now
from tfbench.storage.history import History
from tfbench.storage.layout import FOLDER


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=Path(), metavar="PATH", help="pytest's root directory (default: this folder)"
    )
    words = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    words.add_parser("list", help="every baseline, with what it was measured on")
    show = words.add_parser("show", help="one baseline: its recipe, its cases, why it was accepted")
    accept = words.add_parser("accept", help="make the last run against a baseline the baseline")
    remove = words.add_parser("remove", help="delete a baseline and let git forget its source tree")
    for word in (show, accept, remove):
        word.add_argument("name", metavar="NAME")
    accept.add_argument("--reason", default="", metavar="TEXT", help="why the change is meant; asked for without")
    accept.add_argument(
        "--drop-missing", action="store_true", help="cases that the run did not measure leave the baseline"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked; 0 when it was done."""
    store = BaselineStore(arguments.root)
    console = Console(highlight=False)
    if arguments.action == "list":
        _list(store, console)
    elif arguments.action == "show":
        _show(store, arguments.name, console)
    elif arguments.action == "accept":
        reason = arguments.reason.strip() or _asked()
        accepted = store.accept(arguments.name, reason, arguments.drop_missing)
        console.print(Text(f"{arguments.name}: {len(accepted.samples)} cases accepted: {reason}"))
    else:
        console.print(Text(f"removed: {store.remove(arguments.name)}"))
    return 0


def _asked() -> str:
    """The reason, from whoever sits there.

    Raises:
        UsageError: Nobody does, or there is none.
    """
    reason = input("why is this change meant? ").strip() if sys.stdin.isatty() else ""
    if not reason:
        raise UsageError("a baseline is not replaced without a reason: give --reason TEXT")
    return reason


class BaselineStore:
    """The baselines of a project, with what belongs to them in its repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.saved = Baselines(root / FOLDER / "baselines")
        self.candidates = Baselines(root / FOLDER / "candidates")
        self.history = History(root / FOLDER / "history")

    def accept(self, name: str, reason: str, drop_missing: bool) -> Baseline:
        """Replace a baseline by what the last run against it measured.

        Raises:
            BaselineError: There is no such baseline or no such run, or the run left cases out.
        """
        before = self.saved.fetch(name)
        if name not in self.candidates.names():
            raise BaselineError(
                f"no run to accept: pytest --benchmark --baseline {name} keeps what it measures, unless it is interrupted"
            )
        candidate = self.candidates.fetch(name)
        lost = sorted(set(before.samples) - set(candidate.samples))
        if lost and not drop_missing:
            raise BaselineError(
                f"the last run measured {len(candidate.samples)} cases and not {lost[0]}{' …' * (len(lost) > 1)}: "
                f"run the whole suite against {name!r}, or let {len(lost)} leave the baseline with --drop-missing"
            )
        acceptance = Acceptance(now(), reason, before.saved)
        accepted = replace(candidate, accepted=(*before.accepted, acceptance))
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name)
        self.saved.save(name, accepted)
        self._drop_candidate(name)
        return accepted

    def remove(self, name: str) -> Path:
        """Delete a baseline, its candidate, and what git keeps for it.

        Raises:
            BaselineError: There is none of this name.
        """
        path = self.saved.remove(name)
        drop(self.root, KEPT + name)
        self._drop_candidate(name)
        return path

    def _drop_candidate(self, name: str) -> None:
        if name in self.candidates.names():
            self.candidates.remove(name)
            drop(self.root, CANDIDATES + name)

    def spread(self, baseline: Baseline, case: str) -> tuple[int, float | None]:
        """Sessions of a case measured as the baseline was, and the deviation of their floors; machines are not told apart."""
        context = baseline.context
        records, _ = self.history.read()
        floors = [
            min(one.floors[case])
            for one in records
            if case in one.floors and (one.context.policy, one.context.way) == (context.policy, context.way)
        ]
        middle = median(floors) if floors else 1.0
        return len(floors), stdev(floor / middle for floor in floors) if len(floors) > 1 else None


def _list(store: BaselineStore, console: Console) -> None:
    names = store.saved.names()
    if not names:
        console.print(f"no baseline in {store.saved.folder}; save one with pytest --benchmark --save-baseline NAME")
        return
    made = table("baselines")
    for column in ("name", "saved", "cases", "policy", "commit", "TensorFlow", "accepted because"):
        made.add_column(column, overflow="fold")
    for name in names:
        try:
            one = store.saved.fetch(name)
        except BaselineError as error:
            made.add_row(Text(name, "red"), Text(str(error)))
            continue
        why = one.accepted[-1].reason if one.accepted else ""
        environment = one.environment
        commit = f"{environment.commit[:10] or '-'}{' + changes' * environment.dirty}"
        made.add_row(
            Text(name), one.saved, str(len(one.samples)), one.context.policy or "-", commit, _tensorflow(one), Text(why)
        )
    console.print(made)


def _tensorflow(baseline: Baseline) -> str:
    packages = baseline.environment.packages
    return next((packages[name] for name in ("tensorflow", "tensorflow-cpu", "tf-nightly") if name in packages), "-")


def _show(store: BaselineStore, name: str, console: Console) -> None:
    one = store.saved.fetch(name)
    environment = one.environment
    facts = {
        "saved": one.saved,
        "policy": one.context.policy,
        "commit": f"{environment.commit}{', with changes' * environment.dirty}",
        "Python": environment.python,
        "packages": ", ".join(f"{package} {version}" for package, version in sorted(environment.packages.items())),
        "settings": ", ".join(f"{key}={value}" for key, value in sorted(environment.settings.items())),
        "processors": f"{','.join(map(str, environment.cpus))} ({environment.threads} threads)",
        "machine": ", ".join(f"{key} {value}" for key, value in environment.machine.items() if value),
    }
    for label, value in facts.items():
        console.print(Text.assemble((f"{label:<11}", "dim"), value or "-"))
    for acceptance in one.accepted:
        console.print(Text.assemble(("accepted   ", "dim"), f"{acceptance.when}: {acceptance.reason}"))
    made = table("cases")
    made.add_column("case", overflow="fold")
    for column in ("median", "floor", "launches", "sessions", "their deviation"):
        made.add_column(column, justify="right")
    for case, sample in sorted(one.samples.items()):
        sessions, deviation = store.spread(one, case)
        made.add_row(
            Text(case),
            duration(median(sample.seconds)),
            duration(min(sample.floors)),
            str(len(sample.runs)),
            str(sessions),
            "-" if deviation is None else f"{deviation:.1%}",
        )
    console.print(made)
