"""A job of a fleet: what a node does, with what, and its lease."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypedDict

from msgspec import Meta

from tfbench.errors import JobError, NodeError, UsageError
from tfbench.facts import packages
from tfbench.fs import hold, read_text
from tfbench.gpus.selection import opened, shared_folder
from tfbench.model import JSON, Report
from tfbench.model.formats import Digest, Name, Number, Seconds, Texts, check_schema, convert, exactly, json_schema
from tfbench.model.report import PolicyContent
from tfbench.sides.source_tree import NoCheckout, code_digest, commit_of, tree_of
from tfbench.sides.spec import of_version
from tfbench.suite.shards import SuitePart
from tfbench.untrusted import brief, is_case, parse_json, plural

# Describe both sides of a plan such that each machine can check them, with revisions replaced by commits


def pinned(spec: str, root: Path) -> str:
    """Return a specification that means the same code on every machine: ``git:main`` becomes ``git:`` and a hash.

    Raises:
        UsageError: It is empty, or a part names an interpreter, which other machines do not have.
        SideError: A revision does not exist.
    """
    parts = [part.strip() for part in of_version(spec).split("+")]
    if not spec.strip():
        raise UsageError("a fleet races two sides: give --against SPEC, such as git:HEAD~1 or self")
    if local := next((part for part in parts if part.startswith("python:")), ""):
        raise UsageError(f"--against {local}: other machines have no such path; name packages or a revision")
    return "+".join(f"git:{commit_of(root, part[4:])}" if part.startswith("git:") else part for part in parts)


def sides_of(spec: str, root: Path) -> dict[str, JSON]:
    """Return the recipes of both sides; ``spec`` is pinned.

    Raises:
        SideError: git cannot read the checkout.
    """
    try:
        tree = code_digest(root)
    except NoCheckout:
        tree = ""  # the code of machines cannot be compared without git; docs/fleet.md says so
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    named = dict(part.split("==", 1) for part in spec.split("+") if "==" in part and ":" not in part)
    baseline = {"spec": spec, "tree": tree_of(root, revision) if revision else tree, "python": "", "packages": named}
    contender = {"spec": "working tree", "tree": tree, "python": platform.python_version(), "packages": packages()}
    return {"baseline": baseline, "contender": contender}


# Define a job: the part of a suite that one machine races, as one JSON file that carries its own digest


SCHEMA = "tfbench-job/1"

if TYPE_CHECKING:
    PlannedSides = Mapping[str, JSON]
else:

    class _PlannedSide(TypedDict):
        spec: Name
        tree: Annotated[str, exactly("[0-9a-f]{0,64}")]
        python: Annotated[str, Meta(max_length=40)]
        packages: Texts

    class PlannedSides(TypedDict):
        """What both sides of a plan are: specification, git tree, Python and packages."""

        baseline: _PlannedSide
        contender: _PlannedSide


@dataclass(frozen=True)
class Job:
    """What one machine has to race, and what the machine must have for the results to count."""

    index: Number
    """Number of the job, from 1."""
    of: Number
    suite: Digest
    """Digest of the names of all cases of the suite, see `tfbench.suite.shards.digest`."""
    suite_cases: Number
    """Number of cases of all jobs, which share the policy's alpha."""
    cases: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100_000)]
    policy: PolicyContent
    """Every threshold, with lists as JSON has them. A machine whose tfbench has others refuses the job."""
    sides: PlannedSides
    machine_class: Annotated[str, exactly("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")]
    """Name under which the engine knows machines that are alike."""
    driver: Annotated[str, exactly("[0-9.]{0,32}")]
    """Version of the GPU driver that the machine must have, ``""`` for any."""
    device: Annotated[str, Meta(max_length=200)]
    scale: Annotated[str, exactly("small|medium|large")]
    seed: Annotated[int, Meta(ge=0, lt=2**32)]
    session: Annotated[str, exactly("[0-9TZ:+-]{10,40}-[0-9a-f]{8}")]
    """Identity of the run in a history. A repeated job has the same, so a history has it once."""
    seconds: Seconds
    """Expected time on the machine, in seconds."""

    @property
    def against(self) -> str:
        """The specification of the baseline side."""
        return str(self.sides["baseline"]["spec"])

    @cached_property
    def _content(self) -> str:
        """The content as JSON in one canonical form."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """Digest of the whole content, which identifies the job in its report."""
        return hashlib.sha256(self._content.encode()).hexdigest()

    @property
    def part(self) -> SuitePart:
        """The job as a part of its suite."""
        return SuitePart(self.index, self.of, self.suite, self.suite_cases, self.digest)

    def render(self) -> str:
        """Return the text of the job's file."""
        return f'{{"schema":"{SCHEMA}","digest":"{self.digest}",{self._content[1:]}\n'


def load(path: Path) -> Job:
    """Read the file of a job.

    Raises:
        JobError: The file cannot be read, has another schema, or was edited.
        ReportError: The file does not exist, or is too large.
    """
    return read(read_text(path), str(path))


def read(text: str, name: str) -> Job:
    """Build a job from the text of its file; ``name`` is for errors. Raises `JobError`, see `load`."""
    try:
        content = parse_json(text)
        check_schema(content, SCHEMA)
        job = convert(Job, content)
        if unknown := sorted(set(content) - {"schema", "digest", *(field.name for field in fields(Job))}):
            raise ValueError(f"at the top, the key {unknown[0]!r} is unknown")
    except ValueError as error:
        fix = "plan again with this tfbench, or install the tfbench that planned it"
        raise JobError(f"{brief(name)} is not a job of the schema {SCHEMA}: {brief(error)}; {fix}") from None
    if job.digest != content.get("digest"):
        raise JobError(f"{brief(name)} was edited: its content does not match its digest; run tfbench fleet plan again")
    if not job.index <= job.of or len(job.cases) > job.suite_cases:
        raise JobError(
            f"{brief(name)} contradicts itself: job {job.index} of {job.of}, {plural(len(job.cases), 'case')}"
        )
    if strange := next((case for case in job.cases if not is_case(case)), ""):  # pytest reads them as arguments
        raise JobError(f"{brief(name)} has a case named {brief(repr(strange))}, which is no name of a benchmark")
    return job


def check_report(job: Job, report: Report, name: str) -> None:
    """Refuse a report that is not the complete report of this job.

    Raises:
        JobError: The report is incomplete, or of another job, policy or baseline side.
    """
    if report.gap:
        raise JobError(f"{brief(name)} is not complete: {report.gap}")
    shard = report.shard or {}
    if shard.get("job") != job.digest or shard != job.part.of_cases(job.cases):
        raise JobError(f"{brief(name)} is the report of another job; job {job.index} of {job.of} has none")
    if report.policy != job.policy:
        raise JobError(f"{brief(name)} has other thresholds than its job")
    spec = report.sides.get("baseline", {}).get("spec")
    if report.sides and spec != job.against:
        raise JobError(f"{brief(name)} raced {brief(spec)}, and its job names {brief(job.against)}")
    missing = set(job.cases) - set(report.due)
    if missing:
        raise JobError(f"{brief(name)} has no row for {min(missing)}, a case of its job")


def schema() -> JSON:
    """Return the JSON Schema of jobs."""
    return json_schema(SCHEMA, "A part of a suite for one machine, as tfbench fleet plan writes it.", Job)


# Lease the host for one measurement at a time, across all engines, services and users of the host


_EACH = 0.02
"""Seconds between two attempts. A hand-over costs a fiftieth of a second of a job of minutes."""
_NAME = "host.lock"


def lease_folder() -> Path:
    """Return the folder of the locks of all users of this host."""
    shared = "/run/lock" if os.access("/run/lock", os.W_OK) else tempfile.gettempdir()
    return Path(shared, "tfbench")


@contextmanager
def lease(wait: float, folder: Path | None = None) -> Iterator[IO[str]]:
    """Hold the host until the block ends. Children that inherit the yielded file hold it as long as they live.

    Args:
        wait: Seconds to wait for another service to finish.

    Raises:
        NodeError: Another service still measures, or the folder is not usable.
    """
    place = folder or lease_folder()
    try:
        with shared_folder(place) as descriptor:
            file = opened(_NAME, descriptor)
    except OSError as error:
        raise NodeError(f"{place} cannot hold the lease of this host: {error.strerror}") from None
    with file:
        _take(file, wait)
        if file.writable():
            file.seek(0)
            file.truncate()
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield file


def _take(file: IO[str], wait: float) -> None:
    until = time.monotonic() + wait
    while True:
        try:
            return hold(file, wait=False)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.seek(0)
                who = file.read(100).strip()
                text = f"another service measures on this host{f', process {who}' if who.isdigit() else ''}"
                raise NodeError(f"{text}: give one service the host, or give --wait more seconds") from None
        time.sleep(_EACH)
