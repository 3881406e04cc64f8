"""Packages of a side that its benchmarks import."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

BUSY = "def work():\n    return sum(range({size}))\n"
IMPORTING = """
    from busy import work


    def test_mine(bench):
        bench(work)


    def test_late(bench):
        import other

        bench(other.work)
"""


def install(folder: Path, name: str, version: str, size: int) -> None:
    """Install a distribution with one module, as pip does."""
    (folder / f"{name}.py").write_text(BUSY.format(size=size))
    for earlier in folder.glob(f"{name}-*"):
        shutil.rmtree(earlier)
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text(f"{name}.py,,\n")
    (facts / "top_level.txt").write_text(f"{name}\n")


@pytest.mark.slow
def test_a_baseline_knows_each_package_that_its_benchmarks_import(project, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for name in ("busy", "other", "unused"):
        install(folder, name, "1.0", 1000)
    given = project.environment()
    monkeypatch.setattr(
        project, "environment", lambda: {**given, "PYTHONPATH": f"{given['PYTHONPATH']}:{folder}", "UV_OFFLINE": "1"}
    )
    project.forked = False  # the path is read when Python starts
    project.write(IMPORTING)
    project.write("site-packages\n", ".gitignore")
    project.commit("benchmarks")
    assert project.run("--save-baseline", "main").code == 0
    install(folder, "unused", "2.0", 1)
    assert project.run("--baseline", "main").outcomes() == {"test_mine": "unchanged", "test_late": "unchanged"}
    install(folder, "other", "2.0", 3000)
    done = project.run("--baseline", "main")
    assert set(done.outcomes().values()) == {"incomparable"}, done.output
    assert "other 1.0 there, 2.0 here" in done.reason("test_mine")
