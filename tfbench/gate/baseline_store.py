"""Accept and remove saved baselines, together with their candidates and the source trees that git keeps for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median, stdev

from tfbench.errors import BaselineError
from tfbench.sides.source_tree import CANDIDATES, KEPT, drop, keep
from tfbench.storage.baselines import Acceptance, Baseline, Baselines, now
from tfbench.storage.history import History
from tfbench.storage.layout import Layout


class BaselineStore:
    """The baselines, candidates and sessions of a project.

    Args:
        root: pytest's root directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        layout = Layout.of(root)
        self.saved = Baselines(layout.baselines)
        self.candidates = Baselines(layout.candidates)
        self.history = History(layout.history)

    def accept(self, name: str, reason: str, drop_missing: bool = False) -> Baseline:
        """Replace a baseline by the last run against it.

        Args:
            drop_missing: Whether cases that the run did not measure may leave the baseline.

        Raises:
            BaselineError: The baseline or the run does not exist, or the run left out cases.
        """
        before = self.saved.fetch(name)
        if name not in self.candidates.names():
            raise BaselineError(
                f"{name}: no run to accept; only a complete run of pytest --benchmark --baseline {name} keeps a candidate"
            )
        candidate = self.candidates.fetch(name)
        lost = self.left_out(name)
        if lost and not drop_missing:
            raise BaselineError(
                f"{name}: the last run measured {len(candidate.samples)} cases, "
                f"but not {lost[0]}{' …' * (len(lost) > 1)}; run the whole suite against the baseline, "
                f"or remove {len(lost)} of its cases with --drop-missing"
            )
        accepted = replace(candidate, accepted=(*before.accepted, Acceptance(now(), reason, before.saved)))
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name, earlier=True)
        self.saved.save(name, accepted)
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name)
        self._drop_candidate(name)
        return accepted

    def left_out(self, name: str) -> list[str]:
        """Return the names of the baseline's cases that the last run against it did not measure.

        Raises:
            BaselineError: The baseline or the run does not exist.
        """
        return sorted(set(self.saved.fetch(name).samples) - set(self.candidates.fetch(name).samples))

    def remove(self, name: str) -> Path:
        """Delete a baseline, its candidate and its trees in git; returns the path of the deleted file.

        Raises:
            BaselineError: No baseline has this name.
        """
        path = self.saved.remove(name)
        drop(self.root, KEPT + name)
        self._drop_candidate(name)
        return path

    def spread(self, baseline: Baseline, case: str) -> tuple[int, float | None]:
        """Return the number of sessions like the baseline's, and the relative standard deviation of their floors.

        Sessions are alike if they have the same policy and race the same entrants, on any machine.
        The deviation is ``None`` for fewer than two sessions.
        """
        context = baseline.context
        records, _ = self.history.read()
        floors = [
            min(found)
            for record in records
            if (found := record.floors_of_same_code(case))
            and (record.context.policy, record.context.way) == (context.policy, context.way)
        ]
        return len(floors), stdev(floors) / median(floors) if len(floors) > 1 else None

    def _drop_candidate(self, name: str) -> None:
        if name in self.candidates.names():
            self.candidates.remove(name)
            drop(self.root, CANDIDATES + name)
