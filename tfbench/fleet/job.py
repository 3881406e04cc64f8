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
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import IO

from tfbench.errors import JobError, NodeError, UsageError
from tfbench.facts import packages
from tfbench.fs import hold, read_text
from tfbench.gpus.selection import opened, shared_folder
from tfbench.model import JSON, Report
from tfbench.report.json_format import Validator
from tfbench.sides.source_tree import NoCheckout, code_digest, commit_of, tree_of
from tfbench.sides.spec import of_version
from tfbench.suite.shards import SuitePart
from tfbench.untrusted import brief, is_case, parse_json

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
_FAMILY = "tfbench-job/"


@dataclass(frozen=True)
class Job:
    """What one machine has to race, and what the machine must have for the results to count."""

    index: int
    """Number of the job, from 1."""
    of: int
    suite: str
    """Digest of the names of all cases of the suite, see `tfbench.suite.shards.digest`."""
    suite_cases: int
    """Number of cases of all jobs, which share the policy's alpha."""
    cases: tuple[str, ...]
    policy: JSON
    """Every threshold, with lists as JSON has them. A machine whose tfbench has others refuses the job."""
    sides: Mapping[str, JSON]
    """``baseline`` and ``contender`` -> recipe: specification, git tree, Python and packages."""
    machine_class: str
    """Name under which the engine knows machines that are alike."""
    driver: str
    """Version of the GPU driver that the machine must have, ``""`` for any."""
    device: str
    scale: str
    seed: int
    session: str
    """Identity of the run in a history. A repeated job has the same, so a history has it once."""
    seconds: float
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
    except ValueError as error:
        raise JobError(f"{brief(name)} is not JSON: {brief(error)}") from None
    found = content.get("schema") if isinstance(content, dict) else None
    if isinstance(found, str) and found != SCHEMA and found.startswith(_FAMILY):
        fix = "plan again with this tfbench, or install the tfbench that planned it"
        raise JobError(f"{brief(name)} has the schema {brief(found)}, and this tfbench reads {SCHEMA}: {fix}")
    if why := _validator().violation(content):
        raise JobError(f"{brief(name)} is not a job of the schema {SCHEMA}: {why}")
    values = {field.name: content[field.name] for field in fields(Job)}
    job = Job(**{**values, "cases": tuple(values["cases"])})
    if job.digest != content["digest"]:
        raise JobError(f"{brief(name)} was edited: its content does not match its digest; run tfbench fleet plan again")
    if not job.index <= job.of or len(job.cases) > job.suite_cases:
        raise JobError(f"{brief(name)} contradicts itself: job {job.index} of {job.of}, {len(job.cases)} cases")
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


@cache
def _validator() -> Validator:
    return Validator(json.loads(resources.files("tfbench.fleet").joinpath("job.schema.json").read_bytes()))


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
