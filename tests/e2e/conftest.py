"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project with one zygote per side, see `Project`."""
    return Project(tmp_path)
