"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.project import Project

ADOPTED = Path(__file__).parent / "adopted"
"""Plain tests of pytest-benchmark, which ``pytest --benchmark --against SPEC`` races in that folder."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # A measuring process does not know the option, and collects what it is asked for.
    return True if collection_path == ADOPTED and not config.getoption("benchmark", True) else None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project with one zygote per side, see `Project`."""
    return Project(tmp_path)
