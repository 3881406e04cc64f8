"""Keep the broken benchmarks out of the tests: ``pytest --benchmark tests/faults/benchmarks`` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

BROKEN = Path(__file__).parent / "benchmarks"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # A measuring process does not know the option, and collects what it is asked for.
    return True if collection_path == BROKEN and not config.getoption("benchmark", True) else None
