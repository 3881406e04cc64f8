"""The table of a calibration fits a terminal of 80 columns, with every column in it."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tfbench.doctor.calibration import costs, of, table
from tfbench.model import Rate, RateRow

BROKEN_HEADINGS = ("false", "positives", "in-", "conclu-", "sive", "+2%", "+10%", "min.", "de-", "tect-", "able")


def row(name, trials=500):
    found = {slowdown: Rate(trials, trials, (0.99, 1.0)) for slowdown in (0.02, 0.03, 0.05, 0.10)}
    return RateRow(name, Rate(0, trials, (0, 0.0074)), Rate(11, trials, (0, 1)), found, 0.03, 12.3, {}, 4)


@pytest.mark.parametrize("coverage", [(), ("cov-", "erage", "94%")])
def test_the_table_fits_80_columns_with_the_coverage_of_intervals_if_there_are_any(coverage):
    first = row("elementwise (bound by memory)")
    if coverage:
        first = replace(first, coverage=Rate(481, 500, (0.941, 0.977)), nominal_coverage=0.94)
    console = Console(file=io.StringIO(), width=80)
    console.print(table("all", [first, row("in total")]))
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(word in " ".join(lines[:7]) for word in (*BROKEN_HEADINGS, *coverage))
    assert ("cov-" in " ".join(lines)) == bool(coverage)
    (shown,) = (line for line in lines if "0/500 ≤0.7%" in line and line.startswith(" elementwise"))
    assert ("96.2%" in shown) == bool(coverage)
    assert shown.rstrip().endswith("12.3")


def test_a_rate_without_trials_is_a_dash():
    assert of(Rate(0, 0, (0, 1))) == "-"


@pytest.mark.parametrize(
    ("seconds", "slowed", "text"),
    [
        (2.43, {0.02: 19.04, 0.005: 80}, "2.4 s on unchanged code, 80.0 s at +0.5%, 19.0 s at +2%"),
        (None, {0.01: 15}, "15.0 s at +1%"),
        (None, {}, ""),
    ],
)
def test_costs_are_those_of_unchanged_and_of_slowed_code(seconds, slowed, text):
    found = RateRow("in total", Rate(0, 0, (0, 1)), Rate(0, 0, (0, 1)), {}, None, seconds, slowed, None)
    assert costs(found) == text
