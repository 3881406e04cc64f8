"""Go on with a run that was interrupted: what must be equal, and results as entries of a journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tfbench.errors import ReportError, SideError
from tfbench.model import JSON, Case, MetricValues, Outcome, Sample
from tfbench.report.json_reader import rows_of
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.interpreters import distributions
from tfbench.sides.side import Side
from tfbench.sides.source_tree import code_digest
from tfbench.storage.baselines import run_json, run_of
from tfbench.storage.journal import Journal
from tfbench.storage.layout import Layout
from tfbench.suite.shards import digest
from tfbench.untrusted import a_list, a_text, render_json
from tfbench.worker.environment import machine, settings


class Resumption:
    """The journal of a run: takes finished results of an earlier run, and keeps those of this run.

    Args:
        sides: The contender, and the side that it races against, if any.
        saved: When the baseline of the run was saved, ``""`` without one.
    """

    def __init__(self, request: RunRequest, cases: Sequence[Case], sides: Sequence[Side], saved: str) -> None:
        self.earlier: dict[str, CaseResult] = {}
        """Name of a case -> its result, taken from an earlier run."""
        self.notes: list[str] = []
        self._journal: Journal | None = None
        try:
            known = identity(request, sides, saved)
            self._journal = Journal(request.journal or Layout(request.folder).journal, known, request.resume)
        except (OSError, SideError) as error:
            if request.resume:
                self.notes.append(f"--resume: every case is measured: {error}")
            return
        self.notes += [self._journal.note] if self._journal.note else []
        for case in cases:
            entry = self._journal.entries.get(case.name)
            if entry is not None and (result := result_of(case, entry)) is not None:
                self.earlier[case.name] = result
        if self.earlier:
            self.notes.append(f"{len(self.earlier)} of {len(cases)} cases taken from the interrupted run")

    def keep(self, result: CaseResult, measured: Sequence[Case]) -> CaseResult:
        """Write a finished result to the journal, unless a part of it failed."""
        if self._journal is not None and not any(row.outcome is Outcome.ERROR for row in result.rows):
            try:
                self._journal.add(entry_of(result))
            except (OSError, ValueError) as error:
                self.notes.append(f"this run cannot be resumed: {error}")
                self.close(complete=False)
                self._journal = None
        return result

    def close(self, complete: bool) -> None:
        """Release the journal; ``complete`` if no case is left to measure."""
        if self._journal is not None:
            self._journal.close(complete)


def identity(request: RunRequest, sides: Sequence[Side], saved: str) -> JSON:
    """Return what a result depends on, by the name that messages use.

    Raises:
        SideError: The code is in no git checkout, so a change of it would go unnoticed.
    """
    places = [[one.name, one.executable, str(one.root), dict(one.env), list(one.unset)] for one in sides]
    options = [
        request.slowdown,
        request.changed_only,
        request.replay,
        request.device,
        list(request.gpus),
        list(request.processors.one),
    ]
    known = {
        "the code": code_digest(request.root),
        "the other side": [request.against, request.baseline, saved, places],
        "the packages": {side: distributions(side) for side in sorted({one.executable for one in sides})},
        "the policy": request.policy.as_json(),
        "the options": [*options, str(request.profile or ""), str(request.profile_regressed or "")],
        "the cases of the suite": request.job.suite if request.job else digest(request.suite_names),
        "the settings": settings(),
        "the machine": machine(),
    }
    found: JSON = json.loads(render_json(known))  # as it reads back from a journal: tuples become lists
    return found


def entry_of(result: CaseResult) -> JSON:
    """Return the entry of a finished case."""
    return {
        "case": result.case.name,
        "skip": result.skip,
        "verdict": result.verdict.as_json() if result.verdict else None,
        "metrics": [row.as_json() for row in result.metrics],
        "standing": result.variant_result.as_json() if result.variant_result else None,
        "launches": [run_json(run) for run in result.sample.runs] if result.sample else None,
        "rival": [run_json(run) for run in result.rival.runs] if result.rival else None,
        "reading": result.metric_values.as_json() if result.metric_values else None,
        "profiles": list(result.profiles),
        "why": list(result.why),
    }


def result_of(case: Case, entry: JSON) -> CaseResult | None:
    """Build the result of a case from its entry, ``None`` if the entry is damaged."""
    try:
        given = [row for row in (entry["verdict"], *a_list(entry["metrics"], "metrics")) if row]
        read = rows_of(given, [entry["standing"]] if entry["standing"] else [], entry["profiles"])
        rows = [replace(row, case=replace(case, thresholds=row.case.thresholds)) for row in read.verdicts]
        launches, rival = (a_list(entry[key], key) if entry[key] is not None else [] for key in ("launches", "rival"))
        return CaseResult(
            case,
            verdict=rows[0] if entry["verdict"] else None,
            skip=a_text(entry["skip"], "skip"),
            variant_result=replace(read.variant_results[0], case=case) if read.variant_results else None,
            sample=Sample(case, tuple(map(run_of, launches))) if launches else None,
            rival=Sample(case, tuple(map(run_of, rival))) if rival else None,
            metrics=tuple(rows[1:] if entry["verdict"] else rows),
            metric_values=MetricValues.of_json(entry["reading"]) if entry["reading"] else None,
            profiles=read.profiles,
            why=tuple(a_text(line, "why") for line in a_list(entry["why"], "why")),
        )
    except (KeyError, ValueError, ReportError):
        return None
