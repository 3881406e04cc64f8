"""Write one file that shows a difference without tfbench, and the text of a bug report.

The case is raced on both sides first. If they differ, its code is extracted from the project into one file, which
needs TensorFlow, NumPy and the standard library, and races two interpreters in turns. The file is run before it is
written, and refused if it does not show the difference. The bug report has the versions, the ratio with its interval,
the changes of the graph, the cause that profiles show, and the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.facts import packages
from tfbench.fs import write_whole
from tfbench.policy import PRESETS, preset
from tfbench.report.screen import Screen
from tfbench.sides.spec import KINDS, TENSORFLOWS
from tfbench.untrusted import command
from tfbench.versions.repro import reproduce


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("case", metavar="CASE", help="name of a case, such as test_mine[axis=level]")
    option("--against", required=True, metavar="SPEC", help=f"the other side: {KINDS}")
    text = "this side: a specification with an interpreter (default: this environment)"
    option("--present", default="", metavar="SPEC", help=text)
    option("--paths", nargs="+", default=[], metavar="PATH", help="files and folders of the benchmarks")
    option("--output", type=Path, metavar="FILE", help="where to write the file, and the report beside it as .md")
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of the race")
    option("--no-profile", action="store_true", help="leave out what profiles show, which takes ten launches")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Race, extract, run the file and write it; 0 if it shows the difference."""
    console = Screen()
    with (
        CommandSetup(arguments, arguments.paths, preset(arguments.policy)) as setup,
        console.status("racing") as status,
    ):
        setup.tell = status.update
        case = setup.collected.named(arguments.case)
        file = arguments.output or Path(f"repro_{case.workload.removeprefix('test_')}.py")
        labels = arguments.against, arguments.present or _label()
        present = ["--present", arguments.present] if arguments.present else []
        made = command("tfbench", "repro", case.short_name, "--against", arguments.against, *present)
        own = setup.contender
        if arguments.present:
            setup.prefer_one_python([arguments.against, arguments.present])
            own = setup.side(arguments.present, "contender")
        sides = setup.side(arguments.against, "baseline"), own
        function, root = setup.collected.functions[case.name], setup.collected.root
        files = reproduce(
            function, case, sides, labels, root, file, setup.launcher, setup.policy, made,
            profiled=not arguments.no_profile, tell=status.update, show=console.print,
        )  # fmt: skip
    for path, content in files.items():
        write_whole(path, content, replace=False)
        console.print(f"written: {path}")
    return 0


def _label() -> str:
    """Return the TensorFlow of this environment, as a specification would name it."""
    found = packages()
    return next((f"{name}=={found[name]}" for name in TENSORFLOWS if name in found), "this environment")
