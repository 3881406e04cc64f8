"""Hold each package of tfbench at a number of lines of code, so that a feature takes lines away before it adds some.

A commit that needs more lines says in the table which ones it took away for them. CONTRIBUTING.md has the rule.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tfbench"

BUDGET = {
    "commands": 1112,  # with the bisection of a regression, and defaults in versions (one line, from worker)
    "doctor": 858,  # with rare slow calls (one line, from worker)
    "fleet": 389,
    "gpus": 525,
    "metrics": 749,  # with the rows of the life of a process
    "model": 1040,  # with the calls that a time covers, rare slow calls, turns of several blocks, and names of facts (4 lines, from worker) and functions (one line, from session)
    "plugin": 1241,
    "profiles": 502,
    "race": 2173,  # with the rows of the life of a process, rare slow calls, and turns of several blocks
    "report": 1766,  # with many files of asv (one line, from worker), and commands from a folder below (one line, from fleet)
    "session": 2207,  # with limits in seconds, forbidden improvements, and one verdict on the imports of each benchmark file
    "sides": 1117,  # with sparse and partial clones
    "stats": 763,  # with rare slow calls
    "storage": 367,
    "suite": 484,  # with limits in seconds, and the scale in a name (3 lines, from report)
    "versions": 1080,  # with contracts and results
    "worker": 2903,  # with async steps, the rows of the life of a process, lazy results, longer slices, and ops of converted models (8 lines, from profiles)
    "the top level": 1425,  # with the fields of messages for both
}
"""Lines of code of each package, at most: without blank lines, comments and docstrings."""

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip


def lines_of_code(text: str) -> int:
    """Count the lines that hold code."""
    documented = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    held = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            held |= set(range(token.start[0], token.end[0] + 1))
    return len(held - documented)


def files_of(package: str) -> list[Path]:
    return sorted(PACKAGE.glob("*.py") if package == "the top level" else (PACKAGE / package).rglob("*.py"))


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_keeps_its_budget(package: str) -> None:
    lines = sum(lines_of_code(file.read_text()) for file in files_of(package))
    assert lines <= BUDGET[package], f"{package}: {lines} lines of code, {BUDGET[package]} at most: take some away"


def test_every_module_belongs_to_a_budget() -> None:
    assert {file for package in BUDGET for file in files_of(package)} == set(PACKAGE.rglob("*.py"))


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert lines_of_code('"""A module."""\n\n# a comment\nX = (\n    1,  # one\n)\n"""About X."""\n') == 3
