"""Write each regression between versions into a folder, with a file that shows it: once, and never twice.

A nightly race finds the same regression every night until a release has it. The folder remembers what was written.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tfbench.errors import TfbenchError
from tfbench.fs import write_whole
from tfbench.model import JSON, Case, Outcome, Ratio, VariantResult
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.sides.side import Side
from tfbench.sides.spec import TENSORFLOWS
from tfbench.untrusted import brief, command
from tfbench.versions.matrix import Matrix
from tfbench.versions.repro.confirm import changes, run_code
from tfbench.versions.repro.write import BugReport, about, compose

_SLUG = 60
"""Characters of a case that the name of a finding keeps; a digest follows, as names of cases are longer."""


@dataclass(frozen=True)
class Regression:
    """A case that is slower on a side than on the reference."""

    case: Case
    side: str
    """Label of the side."""
    ratio: Ratio
    launches: int


class FindingsFolder:
    """The findings of earlier runs: for each a report ``NAME.md``, written last, and the file ``NAME.py``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def name(self, found: Regression, released: str) -> str:
        """Return the name of a finding, which is the same in every run against the same release.

        Args:
            released: The TensorFlow of the reference. A slowdown against the next release is another finding.
        """
        key = "\n".join([found.case.name, found.side, released])
        slug = re.sub(r"\W+", "-", found.case.short_name).strip("-")[:_SLUG]
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def has(self, name: str) -> bool:
        """Whether an earlier run wrote this finding."""
        return self.report(name).exists()

    def report(self, name: str) -> Path:
        return self.folder / f"{name}.md"

    def write(self, name: str, code: str, report: str) -> None:
        """Write both files, the report last, so that an interrupted finding counts as not written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{name}.py", code)
        write_whole(self.report(name), report)


def regressions(matrix: Matrix) -> list[Regression]:
    """Return the regressions of all sides against the reference."""
    reference = matrix.labels[0]
    return [
        Regression(row.case, label, entry.ratio, entry.launches)
        for row in matrix.rows
        for label, entry in zip(matrix.labels, row.entries, strict=True)
        if label != reference
        and isinstance(entry, VariantResult)
        and entry.outcome is Outcome.REGRESSED
        and entry.ratio
    ]


@dataclass(frozen=True)
class Writer:
    """Makes the files of new findings.

    A finding whose file does not show the slowdown on both interpreters is not written: the file is its confirmation.
    """

    folder: FindingsFolder
    functions: Mapping[str, pytest.Function]
    """The pytest item of each case, by name."""
    root: Path
    launcher: ProcessLauncher
    policy: Policy
    sides: Mapping[str, Side]
    """By label, the reference first."""
    tell: Callable[[str], None] = lambda text: None

    def write(self, matrix: Matrix) -> list[str]:
        """Write the new findings, and return a line on each regression."""
        labels = list(self.sides)
        released = _tensorflow(matrix.sides[labels[0]])
        lines = []
        for found in regressions(matrix):
            name = self.folder.name(found, released)
            about_it = f"{found.case.short_name} on {found.side}"
            if self.folder.has(name):
                lines.append(f"finding of an earlier run: {about_it}: {self.folder.report(name)}")
                continue
            try:
                self._write(name, found, labels[0], matrix.sides)
            except TfbenchError as error:
                lines.append(f"no finding: {about_it}: {brief(error)}")
            else:
                lines.append(f"new finding: {about_it}: {self.folder.report(name)}")
        return lines

    def _write(self, name: str, found: Regression, reference: str, environments: Mapping[str, JSON]) -> None:
        other, own = self.sides[reference], self.sides[found.side]
        search = [self.root, *(Path(one) for one in sys.path if one)]
        code = compose(
            self.functions[found.case.name], found.case, (other, own), search,
            about(found.case, reference, found.side), self.policy.repro_launches,
        )  # fmt: skip
        self.tell(f"running the file of {found.case.short_name}")
        shown = run_code(code, "repro.py", (other, own), self.policy)
        if not shown.agrees(found.ratio.center):
            text = f"the race found a ratio of {found.ratio.center:.3f}, the extracted file {shown.ratio:.3f}"
            raise TfbenchError(f"the file does not confirm the slowdown: {text}")
        changed = changes(self.launcher, self.policy, Entrant(found.case, other), Entrant(found.case, own))
        made = command("tfbench", "versions", reference, found.side, found.case.name)
        both = {label: environments[label] for label in (reference, found.side)}
        report = BugReport(found.case, both, found.ratio, found.launches, shown, changed, [], made)
        self.folder.write(name, code, report.render(Path(f"{name}.py"), code))


def _tensorflow(environment: JSON) -> str:
    packages = environment["packages"]
    return next((f"{name}=={packages[name]}" for name in TENSORFLOWS if name in packages), "")
