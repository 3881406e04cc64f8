"""Do a job on a machine: check the machine, measure, and write the report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tfbench.errors import JobError, NodeError, SideError, UsageError
from tfbench.facts import packages
from tfbench.fleet.jobs import FleetFolder, Job, kept_report, read_report
from tfbench.fs import locked, write_whole
from tfbench.model.formats import plain
from tfbench.policy import preset
from tfbench.race.workers import run_terminable
from tfbench.report import json_format
from tfbench.sides.environments import minor
from tfbench.sides.source_tree import code_digest
from tfbench.storage.baselines import HISTORY_VARIABLE, JOURNAL

# Check that this machine may do a job


_OF_OPTIONS = ("statistic", "device_effect", "device_gated")
"""Thresholds that an option of the project's settings of pytest may change. The report of the job has to have the same."""


def check(job: Job, root: Path) -> None:
    """Refuse a job that another machine has to do.

    Raises `NodeError` if the code, the thresholds or a version is not the planned one.
    """
    if not root.is_dir():
        raise NodeError(f"{root} does not exist on {platform.node()}: share it with this machine, or give --root")
    name = job.policy["name"]
    try:
        ours = plain(preset(name)) | {key: job.policy[key] for key in _OF_OPTIONS if key in job.policy}
    except UsageError as error:
        raise NodeError(f"{platform.node()}: {error}") from None
    if changed := sorted(key for key in ours.keys() | job.policy.keys() if ours.get(key) != job.policy.get(key)):
        text = f"its policy {name} has other thresholds than the job ({', '.join(changed[:3])})"
        raise NodeError(f"{platform.node()}: {text}; install the tfbench that planned it")
    recipe, installed = job.sides["contender"], packages()
    for what, planned, present in (
        ("Python", minor(recipe["python"]), minor(platform.python_version())),
        *((package, version, installed.get(package, "none")) for package, version in recipe["packages"].items()),
    ):
        if planned != present:
            text = f"it has {what} {present}, and the job was planned for {planned}"
            raise NodeError(f"{platform.node()}: {text}; install {planned}, or plan there")
    if recipe["tree"] and (tree := _digest(root)) != recipe["tree"]:
        text = f"the code in {root} is not the planned code (git tree {tree[:10] or 'unknown'}"
        raise NodeError(f"{platform.node()}: {text}, planned {recipe['tree'][:10]}): check it out, or plan again")


def _digest(root: Path) -> str:
    try:
        return code_digest(root)
    except SideError:
        return ""


# Do a job on this machine


Measure = Callable[[Job, Path, Path], None]
"""Measures a job in a root, and writes its report into a folder."""


def run(
    folder: FleetFolder, index: int, root: Path, measure: Measure, check: Callable[[Job, Path], None] = check
) -> bool:
    """Do a job once, whatever number of processes try: false if its report was complete already.

    Raises:
        JobError: The job or its report is unusable, or the run did not come to its end.
        NodeError: This machine is not fit for the job.
    """
    job, place, work = folder.job(index), folder.report(index), folder.work(index)
    if kept_report(job, place):
        return False
    check(job, root)
    with locked(work.with_name(f"{work.name}.lock")):
        if kept_report(job, place):  # another attempt was faster
            return False
        measure(job, root, work)
        if (report := read_report(job, work / "report.json")) is None:
            raise JobError(f"job {job.index} has no report: pytest wrote no {work / 'report.json'}")
        write_whole(place, json_format.lines(report))
        shutil.rmtree(work, ignore_errors=True)
    return True


def options_of(job: Job, file: Path, work: Path, history: bool) -> list[str]:
    """Return the options of pytest that measure a job in pytest's root."""
    return [
        "-o", f"cache_dir={work / 'cache'}", "-q", "--benchmark",
        f"--tfbench-job={file}", f"--tfbench-report-json={work / 'report.json'}", f"--tfbench-policy={job.policy['name']}",
        f"--tfbench-against={job.against}", f"--tfbench-device={job.device}", f"--tfbench-scale={job.scale}",
        *(["--tfbench-resume"] if (work / JOURNAL).exists() else []), *(["--tfbench-history"] if history else []), f"@{work / 'cases.txt'}",
    ]  # fmt: skip


def measured(pytest: Sequence[str], cpus: str, job: Job, root: Path, work: Path) -> None:
    """Measure a job in a child process.

    ``pytest`` is its command with the plugin of tfbench, and ``cpus`` lists the processors, ``""`` for the usual ones. Raises `JobError` if pytest did not come to its end.
    """
    (work / "report.json").unlink(missing_ok=True)  # of an earlier attempt
    write_whole(work / "cases.txt", "".join(f"{case}\n" for case in job.cases))
    write_whole(work / "job.json", job.render())
    options = options_of(job, work.absolute() / "job.json", work.absolute(), bool(os.environ.get(HISTORY_VARIABLE)))
    if cpus:
        options.append(f"--tfbench-cpus={cpus}")
    code = run_terminable([*pytest, *options], cwd=root, stdin=subprocess.DEVNULL)
    if code not in (0, 1):  # with 1, a case failed, and the report says which
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise JobError(f"job {job.index}: pytest {how}; its output says why")
