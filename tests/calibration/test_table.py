"""The table of a calibration fits a terminal of 80 columns, with every column in it."""

import io

from rich.console import Console

from tfbench.calibration.table import of, table
from tfbench.model import Rate, RateRow


def row(name, trials=500):
    found = {slowdown: Rate(trials, trials, 0.99, 1.0) for slowdown in (0.02, 0.03, 0.05, 0.10)}
    return RateRow(name, "race", Rate(0, trials, 0, 0.0074), Rate(11, trials, 0, 1), found, 0.03, 12.3, {}, 4)


def test_it_fits():
    console = Console(file=io.StringIO(), width=80)
    console.print(table("all", [row("elementwise (bound by memory)"), row("pytest-benchmark, median +5%")]))
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(word in lines[2] for word in ("accused", "open", "+2%", "+10%", "finds"))
    assert "0/500 ≤0.7%" in lines[4]
    assert lines[4].rstrip().endswith("12.3")


def test_what_was_not_tried_has_a_dash():
    assert of(Rate(0, 0, 0, 1)) == "-"
