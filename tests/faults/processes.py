"""Projects whose runs are watched: their processes, the memory of these, and what they leave behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.project import Project
from tfbench.protocol import TRACED_WORKERS

IMPATIENT = """
    import dataclasses

    from tfbench import policy

    for name, preset in policy.PRESETS.items():
        policy.PRESETS[name] = dataclasses.replace(preset, setup_seconds=4.0, answer_seconds=3.0, output_bytes=1 << 23)
"""
MARK = "TFBENCH_FAULTS"
"""Environment variable that every process of a run inherits."""
_PRIVATE = re.compile(r"^Private_\w+: +(\d+) kB$", re.MULTILINE)


def processes(mark: str) -> Iterator[Path]:
    """Yield the folders in /proc of the processes of a run."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}\0".encode() in environment.read_bytes():
                yield environment.parent
        except OSError:
            continue


def left(mark: str) -> list[str]:
    """Return the command lines of the processes of a run that are still there."""
    found = []
    for process in processes(mark):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        found.append(f"{process.name}: {command.decode(errors='replace')}")
    return found


def private_bytes(process: Path) -> int:
    """Return the memory that this process alone uses, 0 if it has ended."""
    try:
        return 1024 * sum(map(int, _PRIVATE.findall((process / "smaps_rollup").read_text())))
    except OSError:
        return 0


class Run(Project):
    """A project whose runs have a folder for temporary files, and leave nothing there."""

    forked = False  # /proc shows the environment of the process that a fork is of

    def __init__(self, root: Path, full: bool = False) -> None:
        super().__init__(root, full)
        self.temporary = root / "temporary"
        self.temporary.mkdir()
        self.write(IMPATIENT, "conftest.py")
        (root / "pytest.ini").write_text("[pytest]\n")  # pytest then looks for none above the folder

    def environment(self) -> dict[str, str]:
        # In a run that measures tfbench's own coverage, workers may be traced. Not here.
        inherited = {key: value for key, value in super().environment().items() if key != TRACED_WORKERS}
        return {**inherited, "TMPDIR": str(self.temporary), MARK: str(self.root)}

    def check_clean(self) -> None:
        """Check that no process, no temporary file and no half-made folder is left."""
        assert left(str(self.root)) == []
        assert [one.name for one in self.temporary.iterdir() if not one.name.startswith("pytest-of-")] == []
        assert [str(one) for one in self.root.rglob(".*-*") if one.name.startswith(".half-")] == []
