"""Select the ring of tests that bare `pytest` and `pytest FOLDER` run, and give each process of pytest-xdist one processor.

CONTRIBUTING.md says which ring a new test belongs to.
"""

from __future__ import annotations

import os

import pytest

FIRST_RING = "not (tensorflow or chaos or slow) or smoke"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
"""This process' name under pytest-xdist, such as ``gw1``."""


def pytest_configure(config: pytest.Config) -> None:
    named = any(not (config.invocation_params.dir / path).is_dir() for path in config.args)  # a file, or a test
    if not named and not config.option.markexpr and not config.getoption("benchmark", False):
        config.option.markexpr = FIRST_RING
    if WORKER and hasattr(os, "sched_setaffinity"):
        # A race takes turns on one processor: two of them on the same one would wait for each other.
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[int(WORKER.removeprefix("gw")) % len(usable)]})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what starts processes first, as it would otherwise keep one processor busy at the end."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded, for docs/reliability.md."""
    reports = terminalreporter.getreports("passed")
    figures = [value for report in reports for name, value in report.user_properties if name == "figure"]
    for figure in figures:
        terminalreporter.line(str(figure))
