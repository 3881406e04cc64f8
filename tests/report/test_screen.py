"""The console on narrow terminals."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Group

from tfbench.report import screen
from tfbench.report.screen import Screen, add_row, break_name, folded, table


@pytest.mark.parametrize("width", [20, 40, 79])
@pytest.mark.parametrize("wrap", [lambda made: made, Group])
def test_a_table_keeps_its_cells_on_a_narrow_terminal(width, wrap):
    cells = "first", "2026-11-29 13:34", "standard", "6f0ae884ad"
    made = table("baselines", *folded("name"), "saved", "policy", "commit")
    add_row(made, *cells)
    out = io.StringIO()
    Screen(file=out, width=width).print(wrap(made))
    assert " ".join(cells) in " ".join(out.getvalue().split())


def test_a_log_has_a_line_a_minute_about_the_activity(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(screen, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for is_terminal in (False, True):
        out = io.StringIO()
        with Screen(file=out, force_terminal=is_terminal).status("") as status:
            for now[0] in (0.0, 30.0, 61.0, 100.0, 122.0):
                status.update(f"building {now[0]:g}")
        assert capsys.readouterr().err == ("" if is_terminal else "tfbench: building 61\ntfbench: building 122\n")


def test_a_name_breaks_after_its_file_and_between_its_levels():
    file, levels = "benchmarks/test_linear.py::test_matmul[", "compiler=none,precision=float32]"
    assert [break_name(file + levels, width) for width in (100, 40)] == [file + levels, f"{file}\n{levels}"]
