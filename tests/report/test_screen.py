"""The console on narrow terminals."""

import io

import pytest
from rich.console import Group

from tfbench.report.screen import Screen, add_row, folded, table


@pytest.mark.parametrize("width", [20, 40, 79])
@pytest.mark.parametrize("wrap", [lambda made: made, Group])
def test_a_table_keeps_its_cells_on_a_narrow_terminal(width, wrap):
    cells = "first", "2026-11-29 13:34", "standard", "6f0ae884ad"
    made = table("baselines", *folded("name"), "saved", "policy", "commit")
    add_row(made, *cells)
    out = io.StringIO()
    Screen(file=out, width=width).print(wrap(made))
    assert " ".join(cells) in " ".join(out.getvalue().split())
