"""Put two result files side by side: reports, baselines, and what plain pytest-benchmark saved.

With raw times (a baseline, or pytest-benchmark's --benchmark-json or --benchmark-save-data) each ratio has an
interval; without them it has none, and that is said. Neither can know how far two runs of the same code lie
apart, so this suggests and does not decide: the exit code is 0 whatever it shows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.analysis.finished import contrast
from tfbench.errors import ReportError
from tfbench.report import compared, reading
from tfbench.store import results
from tfbench.store.files import read_text, write_whole
from tfbench.store.results import ResultFile

SCHEMA = "tfbench-comparison/1"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", type=Path, help="a result file")
    parser.add_argument("second", metavar="B", type=Path, help="the file that is compared with it")
    parser.add_argument("--json", type=Path, default=None, metavar="PATH", help="write the comparison as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Compare; 0 when both files could be read."""
    first, second = (read(path) for path in (arguments.first, arguments.second))
    console = Console(highlight=False)
    for name, file in (("first", first), ("second", second)):
        console.print(Text(f"{name}: {file.path} ({file.kind}{', of ' + file.saved if file.saved else ''})"))
    differences = results.differences(first, second)
    if differences:
        console.print(Text(f"incomparable, since they are of different machines: {'; '.join(differences)}", "yellow"))
    rows = [contrast(case, first.times.get(case), second.times.get(case)) for case in {**first.times, **second.times}]
    if first.report or second.report:
        console.print(compared.verdicts(first.report, second.report))
    if rows:
        console.print(compared.contrasts(rows, not differences))
    if not any(row.ratio for row in rows) and not (first.report and second.report):
        console.print(Text("no case is in both files", "yellow"))
    if arguments.json:
        content = {"schema": SCHEMA, "differences": differences, "cases": [row.as_json() for row in rows]}
        write_whole(arguments.json, json.dumps(content, indent=1, allow_nan=False) + "\n")
        console.print(f"comparison written: {arguments.json}")
    return 0


def read(path: Path) -> ResultFile:
    """Any result file.

    Raises:
        ReportError: It cannot be read, or is none.
    """
    content = reading.load(read_text(path), str(path))
    if not isinstance(content, dict):
        raise ReportError(f"{path} holds a {type(content).__name__} where a result file has an object")
    if "schema" in content:
        return results.of_report(str(path), reading.report_of(content, str(path)))
    return results.of_content(str(path), content)
