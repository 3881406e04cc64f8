"""Define a job: the part of a suite that one machine races, as one JSON file that carries its own digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib import resources
from pathlib import Path

from tfbench.errors import JobError
from tfbench.fs import read_text
from tfbench.model import JSON, Report
from tfbench.report.schema import Validator
from tfbench.suite.shards import SuitePart
from tfbench.untrusted import brief, is_case, parse_json

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
