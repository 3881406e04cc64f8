"""What a run leaves behind: the baseline that was asked for, its floors, and what may become a baseline."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import BaselineError
from tfbench.model import Outcome, Recipe, Sample, Setting
from tfbench.session.request import Question, Result
from tfbench.sides.source_tree import CANDIDATES, KEPT, Snapshot, snapshot
from tfbench.storage.baselines import Baseline, Baselines, now
from tfbench.storage.history import History, Past

_CHANGED = (Outcome.REGRESSED, Outcome.IMPROVED)


@dataclass(frozen=True)
class Taken:
    """What a run measured, and how."""

    results: Sequence[Result]
    way: str
    """``variants`` or ``sides``: what raced each other."""
    recipe: Callable[[Snapshot | None], Recipe]
    """Of the contender, with this tree."""

    @property
    def samples(self) -> dict[str, Sample]:
        """By the case's name; those that have any launch."""
        found = {result.case.name: result.sample for result in self.results}
        return {name: sample for name, sample in found.items() if sample is not None and sample.runs}


class Keeper:
    """Writes down what runs of one folder measured."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._session = f"{now()}-{secrets.token_hex(4)}"
        self.baselines = Baselines(question.folder / "baselines")
        self.history = History(question.folder / "history")

    def save(self, taken: Taken) -> Path:
        """Save the contender's samples as the baseline that was asked for.

        Raises:
            BaselineError: A case failed, nothing was measured, or the file cannot be written.
        """
        name = self._question.save
        if failed := next((result.case.name for result in taken.results if result.failures), ""):
            raise BaselineError(f"the baseline {name!r} was not saved: {failed} did not pass")
        if self._question.slowdown:
            raise BaselineError(f"the baseline {name!r} was not saved: its times hold an injected slowdown")
        if not taken.samples:
            raise BaselineError(f"the baseline {name!r} was not saved: nothing was measured")
        return self.baselines.save(name, self._measured(taken, KEPT + name))

    def remember(self, taken: Taken, saved: Baseline | None) -> Path | None:
        """Write down what is to be known of a run later: its floors, and what `baseline accept` would take.

        Args:
            saved: The baseline that the run was held against, if any.

        Returns:
            The file of the run that may become a baseline, if there is one.

        Raises:
            TfbenchError, OSError: It cannot be written.
        """
        if self._question.slowdown or not taken.samples:
            return None
        measured = self._measured(taken, CANDIDATES + saved.name if saved else "")
        # What is known to be other code would pass for the spread of the same code.
        changed = {one.case.name for one in taken.results if one.verdict and one.verdict.outcome in _CHANGED}
        floors = {name: sample.floors for name, sample in taken.samples.items() if name not in changed}
        sources = {name: sample.case.source for name, sample in taken.samples.items()}
        self.history.record(Past(measured.setting, floors, sources))
        return Baselines(self._question.folder / "candidates").save(saved.name, measured) if saved else None

    def _measured(self, taken: Taken, keep_as: str) -> Baseline:
        tree = snapshot(self._question.root, keep_as)
        setting = Setting(
            session=self._session,
            recipe=taken.recipe(tree),
            tree=tree.tree if tree else "",
            policy=self._question.policy.name,
            way=taken.way,
        )
        readings = {one.case.name: one.reading for one in taken.results if one.reading is not None}
        return Baseline(setting, taken.samples, readings)
