"""Errors in a line."""

import pytest

from tfbench.errors import headline_of

SYNTAX = """
  import_path(
E     File "/x/test_b.py", line 1
E       def f(:
E             ^
E   SyntaxError: invalid syntax
"""
CHAINED = """
E   ModuleNotFoundError: No module named 'x'

The above exception was the direct cause of the following exception:
test_d.py:4: in <module>
E   RuntimeError: outer
E   and more
"""


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("test_a.py:1: in <module>\nE   ValueError: first\nE   second\nE     third\n", "ValueError: first"),
        (SYNTAX, "SyntaxError: invalid syntax"),
        (CHAINED, "RuntimeError: outer"),
        ("import file mismatch:\nHINT: rename it\n\n", "HINT: rename it"),
        ("", ""),
    ],
)
def test_the_line_that_names_an_error_is_found_in_a_text_of_pytest(text, headline):
    assert headline_of(text) == headline
