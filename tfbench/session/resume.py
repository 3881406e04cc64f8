"""Leave out cases that are known: from an interrupted run, or without a change."""

from __future__ import annotations

import filecmp
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbench.errors import ReportError, SideError
from tfbench.facts import machine, settings
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import JSON, TIME, Case, MetricValues, Outcome, Reason, ReasonCode, Sample, because
from tfbench.race.launch import Entrant
from tfbench.report.json_format import rows_of
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.environments import distributions
from tfbench.sides.source_tree import code_digest
from tfbench.sides.spec import Side
from tfbench.storage.baselines import Layout, run_json, run_of
from tfbench.storage.history_index import json_digest
from tfbench.storage.journal import Journal
from tfbench.suite.shards import digest
from tfbench.untrusted import a_list, a_text, render_json

# Find the cases that run the same code on both sides, whose race ``--changed-only`` spares


_METADATA = re.compile(r", metadata=\{[^}]*\}")
"""Where an instruction of XLA comes from: among others, paths of the source tree."""
_UNKNOWN = (
    "--changed-only: cases race although their code may be the same, because this system does not report the files that "
    "they read; on Linux, raise fs.inotify.max_user_watches above the number of the repository's folders"
)


@dataclass(frozen=True)
class ExecutedCode:
    """What a probing launch of a case executed."""

    source: str = ""
    """Digest of the benchmark's own code, ``""`` if unknown."""
    read: frozenset[str] | None = None
    """Files of its source tree that its process has read, relative to the tree; ``None`` if unknown."""
    installed: str = ""
    """Identity of the interpreter, modules and libraries from outside the tree, ``""`` if unknown."""
    graphs: str = ""
    """Digest of TensorFlow's graphs and XLA's modules."""

    @staticmethod
    def of_probe(output: ProbeOutput) -> ExecutedCode:
        """Extract it from the output of a probing launch."""
        graphs = output.found.get("graph") or output.absent.get("graph", "")
        modules = sorted(_METADATA.sub("", text) for text in output.modules.values())
        facts, read = output.facts, output.facts.get("read")
        return ExecutedCode(
            source=facts.get("source", ""),
            read=None if read is None else frozenset(read),
            installed=facts.get("installed", ""),
            graphs=json_digest([graphs, modules]),
        )


Executed = Callable[[Entrant, Entrant], Sequence[ExecutedCode | None]]


def drawn(cases: Sequence[Case], share: float, seed: int) -> frozenset[str]:
    """Draw the names of cases that race although their code is the same: the share, and at least one."""
    count = min(len(cases), max(1, math.ceil(share * len(cases))))
    return frozenset(random.Random(seed).sample([case.name for case in cases], count))


@dataclass(frozen=True)
class ChangedOnly:
    """Decides whether a case must race.

    Args:
        drawn: Names of cases that race in any event, see `drawn`.
        executed: Returns the code that each of two entrants executes, or ``None`` for one that fails.
    """

    contender: Side
    drawn: frozenset[str]
    executed: Executed
    notes: set[str] = field(default_factory=set, init=False)
    """What the user should know about cases that race."""

    @staticmethod
    def of(request: RunRequest, cases: Sequence[Case], contender: Side, executed: Executed) -> ChangedOnly:
        """Return the rule of a run, with its sample."""
        return ChangedOnly(contender, drawn(cases, request.policy.changed_only_share, request.seed), executed)

    def spares(self, case: Case, baseline: Side, there: Case, differences: Sequence[str]) -> Reason | None:
        """Return why the case need not race, ``None`` if it must.

        A doubt makes it race: a side whose probing launch fails, and code or files that are not known. Two environments
        differ even if they hold the same versions.

        Args:
            there: The case as it is called on the baseline side.
            differences: Of the environments, one phrase each.

        Raises:
            SideError: A side does not start.
        """
        claimed = case.name in self.drawn or bool(case.claims_on(TIME))  # contracts on time need times
        if claimed or differences or there != case or self.contender.slowdown or self.contender.env != baseline.env:
            return None
        before, now = self.executed(Entrant(there, baseline), Entrant(case, self.contender))
        if before is not None and now is not None and (before.read is None or now.read is None):
            self.notes.add(_UNKNOWN)
        if before is None or now is None or not (before.read and now.read and now.source and now.installed):
            return None
        if (before.source, before.installed, before.graphs) != (now.source, now.installed, now.graphs):
            return None
        files = before.read | now.read
        if baseline.tree_redirect and not all(_same(name, *baseline.tree_redirect) for name in files):
            return None
        return because(ReasonCode.SAME_CODE, files=len(files))


def _same(name: str, *trees: str) -> bool:
    """Whether two source trees have the same file under this name, or both have none."""
    one, other = (Path(tree, name) for tree in trees)
    try:
        return filecmp.cmp(one, other, shallow=False)
    except FileNotFoundError:
        return not one.exists() and not other.exists()
    except OSError:
        return False


# Go on with a run that was interrupted: what must be equal, and results as entries of a journal


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

    def keep(self, result: CaseResult) -> None:
        """Write a finished result to the journal, unless a part of it failed."""
        if self._journal is not None and not any(row.outcome is Outcome.ERROR for row in result.rows):
            try:
                self._journal.add(entry_of(result))
            except (OSError, ValueError) as error:
                self.notes.append(f"this run cannot be resumed: {error}")
                self.close(complete=False)
                self._journal = None

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
        request.allow_changed,
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
        "baseline": [run_json(run) for run in result.baseline.runs] if result.baseline else None,
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
        launches, baseline = (
            a_list(entry[key], key) if entry[key] is not None else [] for key in ("launches", "baseline")
        )
        return CaseResult(
            case,
            verdict=rows[0] if entry["verdict"] else None,
            skip=a_text(entry["skip"], "skip"),
            variant_result=replace(read.variant_results[0], case=case) if read.variant_results else None,
            sample=Sample(case, tuple(map(run_of, launches))) if launches else None,
            baseline=Sample(case, tuple(map(run_of, baseline))) if baseline else None,
            metrics=tuple(rows[1:] if entry["verdict"] else rows),
            metric_values=MetricValues.of_json(entry["reading"]) if entry["reading"] else None,
            profiles=read.profiles,
            why=tuple(a_text(line, "why") for line in a_list(entry["why"], "why")),
        )
    except (KeyError, ValueError, ReportError):
        return None
