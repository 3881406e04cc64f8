"""Leave out cases that are known: from an interrupted run, or without a change."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tfbench.errors import ReportError, SideError
from tfbench.facts import library_variables, machine, settings
from tfbench.fs import file_digest, read_text, try_lock, write_whole
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import CALL_SECONDS, JSON, TIME, Case, Outcome, Reason, ReasonCode, because
from tfbench.model.formats import line, read
from tfbench.race.launch import Entrant
from tfbench.session.options import OPTIONS, RESULT
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.environments import installed
from tfbench.sides.source_tree import code_digest, new_files
from tfbench.sides.spec import Side
from tfbench.storage.baselines import Layout, SavedLaunch
from tfbench.storage.history import json_digest
from tfbench.suite.shards import digest
from tfbench.untrusted import an_object, brief, described, parse_json, printable, render_json

CHANGED_ONLY_SHARE = 0.1
"""Share of the cases that race under ``--changed-only`` although their code is the same. The comparison lacks files
that are looked for and not opened, among others: of 30 cases that such a change slows down, at least one then races in
96% of the runs."""

# Find the cases that run the same code on both sides, whose race ``--changed-only`` spares


_METADATA = re.compile(r", metadata=\{[^}]*\}")
"""Where an instruction of XLA comes from: among others, paths of the source tree."""


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
        modules = sorted(_METADATA.sub("", text) for text in output.modules)
        facts, read = output.facts, output.facts.get("read")
        files = None if read is None else frozenset(read)
        return ExecutedCode(facts.get("source", ""), files, facts.get("installed", ""), json_digest([graphs, modules]))


Executed = Callable[[Entrant, Entrant], Sequence[ExecutedCode | None]]


def drawn(cases: Sequence[Case], seed: int) -> frozenset[str]:
    """Draw the names of cases that race although their code is the same: the share, and at least one."""
    count = min(len(cases), max(1, math.ceil(CHANGED_ONLY_SHARE * len(cases))))
    return frozenset(random.Random(seed).sample([case.name for case in cases], count))


@dataclass(frozen=True)
class ChangedOnly:
    """Decides whether a case must race.

    Args:
        drawn: Names of cases that race in any event, see `drawn`.
        compared: Returns whether a case of the run has been compared. Until then every case races: a run passes only with a
            comparison, and a drawn case may skip itself or stay inconclusive.
        executed: Returns the code that each of two entrants executes, or ``None`` for one that fails.
    """

    drawn: frozenset[str]
    compared: Callable[[], bool]
    executed: Executed

    def spares(self, there: Entrant, here: Entrant, differences: Sequence[str]) -> Reason | None:
        """Return why the case need not race, ``None`` if it must.

        A doubt makes it race: a side whose probing launch fails, and code or files that are not known. Two environments
        differ even if they hold the same versions. Contracts on time need times. Raises `SideError` if a side does not start.

        ``differences`` are those of the environments, one phrase each.
        """
        case, baseline = here.case, there.side
        wanted = case.name in self.drawn or case.claims_on(TIME, CALL_SECONDS) or not self.compared()
        if wanted or differences or here.side.slowdown or here.side.env != baseline.env:
            return None
        before, now = self.executed(there, here)
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
    files = [Path(tree, name) for tree in trees]
    mine, theirs = map(file_digest, files)
    return mine == theirs and (mine != "" or not any(map(os.path.lexists, files)))


# Go on with a run that was interrupted: its finished cases, and what must be equal to use them


SCHEMA = "tfbench-journal/1"
_SHOWN = 5
"""Most changes that a message names."""


class Journal:
    """The journal of a run: takes finished results of an interrupted run, and keeps those of this run.

    It is a file with one line per finished case, after a first line that identifies the run. Each case is on disk before the
    next one is raced. A line that was cut off when the run was killed is ignored. Only one run at a time has the journal of a
    folder; a second run goes without.

    Args:
        sides: The contender, and the side that it races against, if any.
        saved: When the baseline of the run was saved, ``""`` without one.
    """

    def __init__(self, request: RunRequest, cases: Sequence[Case], sides: Sequence[Side], saved: str) -> None:
        self.earlier: dict[str, CaseResult] = {}
        """Name of a case -> its result, taken from an earlier run."""
        self.notes: list[str] = []
        self.lost = ""
        """Why this run cannot be resumed, ``""`` if it can."""
        self._path = request.journal or Layout(request.folder).journal
        self._kept = request.journal is not None  # a job of a fleet removes it after writing its report
        self._file: IO[str] | None = None
        self._lock: IO[str] | None = None
        try:
            known = identity(request, sides, saved)
            self._lock = try_lock(self._path.with_suffix(".lock"))
            if self._lock is None:
                self.lost = "another run is using this folder"
                self.notes.append(f"{self.lost}, so this run cannot be resumed")
                return
            if request.resume:
                why = self._take_over(known, {case.name: case for case in cases})
                self.notes += [f"--resume: {why}"] if why else []
            lines = [render_json({"schema": SCHEMA, "identity": known}), *map(line, self.earlier.values())]
            write_whole(self._path, "".join(f"{text}\n" for text in lines))
            self._file = self._path.open("a", encoding="utf-8")
        except (OSError, SideError) as error:
            self.lost = str(error)
            if request.resume:
                self.notes.append(f"--resume: every case is measured: {error}")

    def _take_over(self, identity: JSON, cases: Mapping[str, Case]) -> str:
        """Take the results of a run with this identity; return why there are none, if that is known."""
        if not self._path.exists():
            return "there is no interrupted run, so every case is measured"
        try:
            first, *rest = read_text(self._path).split("\n")
            head = an_object(parse_json(first), "the first line")
            before = an_object(head["identity"], "identity") if head["schema"] == SCHEMA else {}
        except (ReportError, ValueError, KeyError) as error:
            return f"{brief(self._path)} cannot be read ({described(error)}), so every case is measured"
        changed = [
            name
            for name in {**identity, **before}
            if before.get(name) != identity.get(name)
            and (name in before or not name.startswith(_FILE))  # a run leaves new files
        ]
        if changed:
            files = any(name.startswith(_FILE) for name in changed)
            fix = "; have git ignore the files that benchmarks write" if files else ""
            names = changed[:_SHOWN] + [f"{len(changed) - _SHOWN} more"] * (len(changed) > _SHOWN)
            return f"{' and '.join(names)} changed since that run, so every case is measured{fix}"
        for text in rest:
            if (result := result_of(text)) is not None and result.case == cases.get(result.case.name):
                self.earlier[result.case.name] = result
        return ""

    def keep(self, result: CaseResult) -> None:
        """Write a finished result to the journal, unless a part of it failed."""
        if self._file is None or any(row.outcome is Outcome.ERROR for row in result.rows):
            return
        try:
            self._file.write(f"{line(result)}\n")
            self._file.flush()
        except OSError as error:
            self.lost = str(error)
            self.notes.append(f"this run cannot be resumed: {error}")
            self.close(complete=False)

    def close(self, complete: bool) -> None:
        """Release the journal; delete it if no case is left to measure (``complete``)."""
        if self._file is not None:
            with suppress(OSError):  # a full disk
                self._file.close()
            self._file = None
            if complete and not self._kept:
                self._path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()


def result_of(text: str) -> CaseResult | None:
    """Read a line of a journal, ``None`` if it is damaged."""
    try:
        result = read(CaseResult, text)
        rows = [row for row in (*result.rows, result.variant_result) if row]
        for sample in filter(None, (result.sample, result.baseline)):
            for run in sample.runs:
                SavedLaunch.of(run)  # checks its times and facts
    except (ValueError, ArithmeticError):
        return None
    return None if any(row.name != result.case.name for row in rows) else result


def identity(request: RunRequest, sides: Sequence[Side], saved: str) -> JSON:
    """Return what a result depends on, by the name that messages use.

    Raises `SideError` if the code is in no git checkout, so that a change of it would go unnoticed.
    """
    places = [[side.name, side.executable, str(side.root), dict(side.env), list(side.unset)] for side in sides]
    asked = {option.name: getattr(request, option.setting) for option in OPTIONS if RESULT in option.roles}
    suite: list[Any] = [request.suite.options, request.suite.inifile, request.suite.import_mode]
    known = {
        "the code": code_digest(request.root),
        "the other side": [request.against, request.baseline, saved, places],
        "the packages": {side: installed(side) for side in sorted({side.executable for side in sides})},
        "the policy": request.policy.as_json(),
        "the options": [asked, bool(request.save_baseline), str(request.profiles), vars(request.processors), *suite],
        "the cases of the suite": request.part.suite if request.part else digest(request.suite_names),
        "the settings": settings(),
        "the machine": machine() | ({"host": os.uname().nodename} if request.part else {}),
    }
    left_out = {*library_variables(request.variables), *_OF_A_PROCESS}  # `settings` has those of libraries
    for name in sorted(request.variables.keys() - left_out):
        if not name.startswith(_OF_A_JOB):
            known[f"the environment variable {name}"] = json_digest([request.variables[name]])
    if len(files := new_files(request.root)) <= _MOST:
        for file in files:
            if file not in request.written:
                known[_FILE + printable(os.path.relpath(file, request.root))] = file_digest(file)[:16]
    content: JSON = json.loads(render_json(known))  # as it reads back from a journal: tuples become lists
    return content


_FILE = "the file "
"""Prefix of the names of files in an identity."""
_MOST = 1000
"""New files that are looked at. More are no data of benchmarks, but a folder such as an environment."""
_OF_A_PROCESS = {
    "_", "COLORTERM", "COLUMNS", "DISPLAY", "HOSTNAME", "LINES", "OLDPWD", "PATH", "PWD", "SHLVL", "TEMP", "TERM", "TMP", "TMPDIR", "WINDOWID",
    "BUILD_BUILDID", "BUILD_BUILDNUMBER", "BUILD_ID", "BUILD_NUMBER", "BUILD_TAG", "BUILD_URL", "INVOCATION_ID", "JOURNAL_STREAM",
    "SYSTEM_JOBID",
}  # fmt: skip
_OF_A_JOB = (
    "BUILDKITE_", "CI_", "CIRCLE_", "DRONE_", "GITHUB_", "GITLAB_", "JENKINS_", "LSB_", "PBS_", "PMIX_", "PMI_", "PYTEST_", "RAY_",
    "RUNNER_", "SLURM", "SSH_", "TERM_", "TFBENCH_", "TMUX", "TRAVIS_", "VSCODE_", "XDG_",
)  # fmt: skip
"""Variables that differ between two shells, or between two jobs that do the same; and tfbench's own."""
