"""Name the files of a fleet: its plan, and the job, report, log and attempts of each number."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import JobError, ReportError
from tfbench.fleet.job import Job, load
from tfbench.fs import read_text, write_whole
from tfbench.model import JSON
from tfbench.untrusted import a_list, a_number, a_text, an_integer, an_object, brief, described, parse_json, render_json

SCHEMA = "tfbench-fleet/1"
PLAN = "plan.json"
_EACH = 1000
"""Jobs per folder. File systems list folders of a hundred thousand files slowly."""
_HOST = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Plan:
    """What all jobs of a fleet have in common."""

    jobs: int
    cases: int
    suite: str
    machine_class: str
    root: str
    """pytest's root, where each machine finds the benchmarks."""
    seconds: float
    """Expected machine time of all jobs, in seconds."""
    missing: tuple[str, ...] = ()
    """Names of the cases that the other side would run under the same options, and that are in no job."""

    def render(self) -> str:
        return render_json({"schema": SCHEMA, **vars(self)}, 1) + "\n"


class FleetFolder:
    """A folder that all machines of a fleet share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_file = path / PLAN
        self.merged = path / "report.json"
        self.lock = path / "fleet.lock"

    @staticmethod
    def of_job(job: Path) -> FleetFolder | None:
        """Return the fleet that the file of a job belongs to, ``None`` if it belongs to none."""
        folder = job.resolve().parents[2] if len(job.resolve().parents) > 2 else None
        return FleetFolder(folder) if folder is not None and (folder / PLAN).is_file() else None

    def plan(self) -> Plan:
        """Read the plan.

        Raises:
            JobError: There is none, or it has another schema.
        """
        try:
            content = an_object(parse_json(read_text(self.plan_file)), "the plan")
            if content["schema"] != SCHEMA:
                raise JobError(
                    f"{brief(self.plan_file)} has the schema {brief(content['schema'])}, and this tfbench reads {SCHEMA}: "
                    "plan again with this tfbench, or install the tfbench that planned it"
                )
            return Plan(
                an_integer(content["jobs"], "jobs", 1),
                an_integer(content["cases"], "cases", 1),
                a_text(content["suite"], "suite"),
                a_text(content["machine_class"], "machine_class"),
                a_text(content["root"], "root"),
                a_number(content["seconds"], "seconds", 0),
                tuple(a_text(name, "missing") for name in a_list(content["missing"], "missing")),
            )
        except (ValueError, KeyError, ReportError) as error:
            fix = "tfbench fleet plan writes one"
            raise JobError(f"{brief(self.path)} is no folder of a fleet ({described(error)}); {fix}") from None

    def job_file(self, index: int) -> Path:
        return self._numbered("jobs", index, ".json")

    def report(self, index: int) -> Path:
        return self._numbered("reports", index, ".json")

    def log(self, index: int) -> Path:
        return self._numbered("logs", index, ".txt")

    def work(self, index: int) -> Path:
        """Folder of a job that is not complete: its journal, and a report that is not checked yet."""
        return self._numbered("work", index, "")

    def _attempts(self, index: int) -> Path:
        return self._numbered("attempts", index, ".jsonl")

    def _numbered(self, kind: str, index: int, suffix: str) -> Path:
        return self.path / kind / f"{index // _EACH:03}" / f"{index:06}{suffix}"

    def job(self, index: int) -> Job:
        """Read a job. Raises as `tfbench.fleet.job.load`, and `JobError` if the file has another job's number."""
        found = load(self.job_file(index))
        if found.index != index:
            raise JobError(f"{brief(self.job_file(index))} is job {found.index}, and its name says {index}")
        return found

    # Attempts

    def note(self, index: int, event: str, host: str, **more: object) -> None:
        """Append an event of an attempt: ``began``, ``done``, ``failed`` or ``aside``. Several machines may append.

        Raises:
            OSError: The disk is full.
        """
        path = self._attempts(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {"event": event, "host": host, "time": time.time(), **more}
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{render_json(row)}\n")

    def attempts(self, index: int) -> list[JSON]:
        """Return the events of a job's attempts in time order, without a line that was cut off."""
        try:
            lines = read_text(self._attempts(index)).splitlines()
        except ReportError:
            return []
        return [row for line in lines if (row := _event(line))]

    # Machines that were set aside

    def set_aside(self, host: str, reason: str) -> None:
        """Note that a machine failed its canary, so that it gets no further job.

        Raises:
            OSError: The disk is full.
        """
        write_whole(self._aside(host), render_json({"host": host, "reason": reason, "time": time.time()}) + "\n")

    def why_aside(self, host: str) -> str:
        """Return why a machine was set aside, ``""`` if it was not."""
        return dict(self.aside()).get(host, "") if self._aside(host).exists() else ""

    def aside(self) -> Iterator[tuple[str, str]]:
        """Yield each machine that was set aside, and the reason."""
        for path in sorted((self.path / "aside").glob("*.json")):
            try:
                row = an_object(parse_json(read_text(path)), "the line")
                yield a_text(row["host"], "host"), a_text(row["reason"], "reason")
            except (ReportError, ValueError, KeyError) as error:
                yield path.stem, f"its file cannot be read: {described(error)}"

    def _aside(self, host: str) -> Path:
        return self.path / "aside" / f"{_HOST.sub('_', host)[:100]}.json"


def node_name() -> str:
    """Return the name of this machine as its engine knows it: Slurm may have several nodes on one host."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _event(line: str) -> JSON | None:
    try:
        row = an_object(parse_json(line), "the line")
        a_text(row["event"], "event")
        a_text(row["host"], "host")
        a_number(row["time"], "time")
    except (ValueError, KeyError):
        return None
    return row
