"""Compare two result files: reports, baselines and files of plain pytest-benchmark.

With raw times (a baseline, or pytest-benchmark's --benchmark-json or --benchmark-save-data), each ratio has an
interval. Two files cannot show how much two runs of the same code differ. The comparison therefore suggests and does
not decide: the exit code is 0 even if a case is slower.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.text import Text

from tfbench import compare
from tfbench.compare import contrast
from tfbench.fs import write_whole
from tfbench.report.screen import Screen
from tfbench.storage.baselines import Layout

SCHEMA = "tfbench-comparison/1"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", type=_path, help="a result file, or the name of a saved baseline")
    parser.add_argument("second", metavar="B", type=_path, help="the file or baseline to compare with it")
    parser.add_argument("--all", action="store_true", help="also list unchanged verdicts of reports")
    parser.add_argument("--report-json", type=Path, metavar="PATH", help="write the comparison as JSON")


def _path(text: str) -> Path:
    """Return the path of a file, or of the saved baseline with this name if there is no such file."""
    path, saved = Path(text), Layout.of(Path()).baselines / f"{text}.json"
    return saved if not path.exists() and path.name == text and saved.exists() else path


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; 0 if both files can be read."""
    first, second = (compare.read(path) for path in (arguments.first, arguments.second))
    console = Screen()
    for name, file in (("first", first), ("second", second)):
        console.print(Text(f"{name}: {file.path} ({file.kind}{', of ' + file.saved if file.saved else ''})"))
        if not file.times:
            console.print(Text(f"{name}: {compare.NO_TIMES}", "yellow"))
        for why in file.left_out:
            console.print(Text(f"{name}: {why}", "yellow"))
    differences = compare.differences(first, second)
    if why := differences.incomparable:
        console.print(Text(f"incomparable, because {why}", "yellow"))
    if differences.patch:
        console.print(Text(f"another patch version of Python: {'; '.join(differences.patch)}", "yellow"))
    rows = [contrast(case, first.times.get(case), second.times.get(case)) for case in {**first.times, **second.times}]
    if first.report or second.report:
        console.print(compare.verdicts(first.report, second.report, arguments.all))
    if first.times and second.times:
        console.print(compare.contrasts(rows, not differences.incomparable))
    if not first.cases & second.cases:
        console.print(Text("the files have no case in common", "yellow"))
    if arguments.report_json:
        content = {"schema": SCHEMA, "differences": list(differences), "cases": [row.as_json() for row in rows]}
        write_whole(arguments.report_json, json.dumps(content, indent=1, allow_nan=False) + "\n")
        console.print(f"comparison written: {arguments.report_json}")
    return 0
