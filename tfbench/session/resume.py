"""Leave out cases that are known: from an interrupted run, or without a change."""

from __future__ import annotations

import filecmp
import json
import math
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import msgspec

from tfbench.errors import ReportError, SideError
from tfbench.facts import library_variables, machine, settings
from tfbench.fs import file_digest, read_text, try_lock, write_whole
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import (
    JSON,
    TIME,
    Case,
    MetricValues,
    Outcome,
    ProfileEntry,
    Reason,
    ReasonCode,
    Sample,
    VariantResult,
    Verdict,
    because,
)
from tfbench.model.formats import Name, Text, convert, parsed, plain
from tfbench.race.launch import Entrant
from tfbench.session.request import CaseResult, RunRequest
from tfbench.sides.environments import distributions
from tfbench.sides.source_tree import code_digest, new_files
from tfbench.sides.spec import Side
from tfbench.storage.baselines import Layout, SavedLaunch
from tfbench.storage.history import json_digest
from tfbench.suite.shards import digest
from tfbench.untrusted import a_text, an_object, brief, described, parse_json, printable, render_json

CHANGED_ONLY_SHARE = 0.1
"""Share of the cases that race under ``--changed-only`` although their code is the same. The comparison lacks files
that are looked for and not opened, among others: of 30 cases that such a change slows down, at least one then races in
96% of the runs."""

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
        return ChangedOnly(contender, drawn(cases, CHANGED_ONLY_SHARE, request.seed), executed)

    def spares(self, case: Case, baseline: Side, there: Case, differences: Sequence[str]) -> Reason | None:
        """Return why the case need not race, ``None`` if it must.

        A doubt makes it race: a side whose probing launch fails, and code or files that are not known. Two environments
        differ even if they hold the same versions. Raises `SideError` if a side does not start.

        Args:
            there: The case as it is called on the baseline side.
            differences: Of the environments, one phrase each.
        """
        claimed = case.name in self.drawn or bool(case.claims_on(TIME))  # contracts on time need times
        renamed = replace(there, thresholds=case.thresholds, statistic=case.statistic) != case  # they judge only a race
        if claimed or differences or renamed or self.contender.slowdown or self.contender.env != baseline.env:
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
    mine, theirs = (Path(tree, name) for tree in trees)
    try:
        return filecmp.cmp(mine, theirs, shallow=False)
    except FileNotFoundError:
        return not mine.exists() and not theirs.exists()
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
        self.lost = ""
        """Why this run cannot be resumed, ``""`` if it can."""
        self._journal: Journal | None = None
        self._kept = request.journal is not None  # a job of a fleet removes it after writing its report
        try:
            known = identity(request, sides, saved)
            self._journal = Journal(request.journal or Layout(request.folder).journal, known, request.resume)
        except (OSError, SideError) as error:
            self.lost = str(error)
            if request.resume:
                self.notes.append(f"--resume: every case is measured: {error}")
            return
        self.lost = self._journal.lost
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
                self.lost = str(error)
                self.notes.append(f"this run cannot be resumed: {error}")
                self.close(complete=False)
                self._journal = None

    def close(self, complete: bool) -> None:
        """Release the journal; ``complete`` if no case is left to measure."""
        if self._journal is not None:
            self._journal.close(complete and not self._kept)


def identity(request: RunRequest, sides: Sequence[Side], saved: str) -> JSON:
    """Return what a result depends on, by the name that messages use.

    Raises `SideError` if the code is in no git checkout, so that a change of it would go unnoticed.
    """
    places = [[side.name, side.executable, str(side.root), dict(side.env), list(side.unset)] for side in sides]
    asked = [request.slowdown, request.changed_only, request.replay, request.device]
    devices = [list(request.gpus), list(request.processors.one)]
    suite = [request.suite.options, request.suite.inifile, request.suite.import_mode]
    profiles = [str(request.profile or ""), str(request.profile_regressed or "")]
    known = {
        "the code": code_digest(request.root),
        "the other side": [request.against, request.baseline, saved, places],
        "the packages": {side: distributions(side) for side in sorted({side.executable for side in sides})},
        "the policy": request.policy.as_json(),
        "the options": [*asked, *devices, *suite, *profiles],
        "the cases of the suite": request.job.suite if request.job else digest(request.suite_names),
        "the thresholds of cases": [
            [case.name, dict(case.thresholds), case.statistic]
            for case in request.suite_cases
            if case.thresholds or case.statistic
        ],
        "the settings": settings(),
        "the machine": machine() | ({"host": os.uname().nodename} if request.job else {}),
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


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the journal: the fields of a `CaseResult`, with samples as launches."""

    case: Name
    verdict: Verdict | None = None
    skip: Text = ""
    variant_result: VariantResult | None = None
    sample: tuple[SavedLaunch, ...] = ()
    baseline: tuple[SavedLaunch, ...] = ()
    metrics: tuple[Verdict, ...] = ()
    metric_values: MetricValues | None = None
    output: str = ""
    profiles: tuple[ProfileEntry, ...] = ()
    why: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if any(row and row.name != self.case for row in (self.verdict, self.variant_result, *self.metrics)):
            raise ValueError("a row is about another case")


_SAME = ("verdict", "skip", "variant_result", "metrics", "metric_values", "output", "profiles", "why")


def entry_of(result: CaseResult) -> JSON:
    """Return the entry of a finished case."""
    both = (sample.runs if sample else () for sample in (result.sample, result.baseline))
    launches = (tuple(map(SavedLaunch.of, runs)) for runs in both)
    same = {name: getattr(result, name) for name in _SAME}
    content: JSON = plain(_Entry(result.case.name, sample=next(launches), baseline=next(launches), **same))
    return content


def result_of(case: Case, entry: JSON) -> CaseResult | None:
    """Build the result of a case from its entry, ``None`` if the entry is damaged."""
    try:
        read = convert(_Entry, entry)
        both = (tuple(launch.run for launch in saved) for saved in (read.sample, read.baseline))
        samples = (Sample(case, runs) if runs else None for runs in both)
        same = {name: getattr(read, name) for name in _SAME}
        return CaseResult(case, sample=next(samples), baseline=next(samples), **same)
    except ValueError:
        return None


SCHEMA = "tfbench-journal/1"
_SHOWN = 5
"""Most changes that a message names."""


class Journal:
    """A file with one line per finished case, after a first line that identifies the run.

    Each case is on disk before the next one is raced. A line that was cut off when the run was killed is ignored. Only
    one run at a time has the journal of a folder; a second run goes without.
    Raises `OSError` if the file cannot be created.

    Args:
        identity: What must be equal for a case to be used again, by the name that messages use.
        resume: Whether to use the cases of an earlier run. Otherwise they are deleted.
    """

    def __init__(self, path: Path, identity: JSON, resume: bool) -> None:
        self.entries: dict[str, JSON] = {}
        """Name of a case -> its entry, of an earlier run with the same identity."""
        self.note = ""
        """What became of the earlier run, if resuming."""
        self.lost = ""
        """Why this run is not kept."""
        self._path = path
        self._file: IO[str] | None = None
        self._lock = try_lock(path.with_suffix(".lock"))
        if self._lock is None:
            self.lost = "another run is using this folder"
            self.note = f"{self.lost}, so this run cannot be resumed"
            return
        if resume:
            self._take_over(identity)
        lines = [{"schema": SCHEMA, "identity": identity}, *self.entries.values()]
        write_whole(path, "".join(f"{render_json(entry)}\n" for entry in lines))
        self._file = path.open("a", encoding="utf-8")

    def _take_over(self, identity: JSON) -> None:
        try:
            if not self._path.exists():
                self.note = "--resume: there is no interrupted run, so every case is measured"
                return
            first, *rest = read_text(self._path).splitlines() or [""]
            head = an_object(parse_json(first), "the first line")
            before = an_object(head["identity"], "identity") if head["schema"] == SCHEMA else {}
        except (ReportError, ValueError, KeyError) as error:
            self.note = f"--resume: {brief(self._path)} cannot be read ({described(error)}), so every case is measured"
            return
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
            self.note = f"--resume: {' and '.join(names)} changed since that run, so every case is measured{fix}"
            return
        for line in rest:
            try:
                entry = an_object(parsed(line), "the line")
                self.entries[a_text(entry["case"], "case")] = entry
            except (ValueError, KeyError):
                break  # the run was killed while it wrote this line

    def add(self, entry: JSON) -> None:
        """Append a finished case, which ``entry["case"]`` names. Raises `OSError` if the disk is full."""
        if self._file is not None:
            self._file.write(f"{render_json(entry)}\n")
            self._file.flush()

    def close(self, complete: bool) -> None:
        """Release the journal; delete it after a run that came to its end."""
        if self._file is not None and self._lock is not None:
            self._file.close()
            if complete:
                self._path.unlink(missing_ok=True)
            self._lock.close()
