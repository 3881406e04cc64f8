"""Check that this machine may do a job, and state the facts of the machine for the report."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from tfbench.doctor import inspect
from tfbench.errors import NodeError, SideError, UsageError
from tfbench.fleet.job import Job
from tfbench.model import JSON
from tfbench.policy import preset
from tfbench.race.process_launcher import Processors
from tfbench.sides.interpreters import minor
from tfbench.sides.source_tree import code_digest
from tfbench.worker.environment import machine, packages


def check(job: Job, root: Path) -> None:
    """Refuse a job that another machine has to do.

    Raises:
        NodeError: The code, the thresholds, a version or the driver is not the planned one.
    """
    if not root.is_dir():
        raise NodeError(f"{root} does not exist on {platform.node()}: share it with this machine, or give --root")
    name = str(job.policy["name"])
    try:
        ours = json.loads(json.dumps(preset(name).as_json()))
    except UsageError as error:
        raise NodeError(f"{platform.node()}: {error}") from None
    if changed := sorted(key for key in ours.keys() | job.policy.keys() if ours.get(key) != job.policy.get(key)):
        text = f"its policy {name} has other thresholds than the job ({', '.join(changed[:3])})"
        raise NodeError(f"{platform.node()}: {text}; install the tfbench that planned it")
    recipe, installed = job.sides["contender"], packages()
    for what, planned, found in (
        ("Python", minor(recipe["python"]), minor(platform.python_version())),
        *((package, version, installed.get(package, "none")) for package, version in recipe["packages"].items()),
        ("GPU driver", job.driver, machine().get("driver", "none") if job.driver else ""),
    ):
        if planned != found:
            text = f"it has {what} {found}, and the job was planned for {planned}"
            raise NodeError(f"{platform.node()}: {text}; give such machines a class of their own, or install {planned}")
    if recipe["tree"] and (found := _digest(root)) != recipe["tree"]:
        text = f"the code in {root} is not the planned code (git tree {found[:10] or 'unknown'}"
        raise NodeError(f"{platform.node()}: {text}, planned {recipe['tree'][:10]}): check it out, or plan again")


def _digest(root: Path) -> str:
    try:
        return code_digest(root)
    except SideError:
        return ""


def facts(processors: Processors) -> dict[str, str]:
    """Return what a reader of the report has to know of this machine; an unreadable property is ``unknown``."""
    found = inspect.read(processors.every, processors.one[0], seconds=0.0)
    siblings = len(found.siblings or ())
    settings = {
        "governor": found.governor,
        "turbo": None if found.turbo is None else "on" if found.turbo else "off",
        "SMT": f"{siblings} threads per core" if siblings > 1 else "off" if siblings else None,
        "ASLR": None if found.aslr is None else {0: "off"}.get(int(found.aslr), "on"),
        "hypervisor": "none" if found.hypervisor == "" else found.hypervisor,
        "kernel": platform.release(),
    }
    return {key: value for key, value in machine().items() if value} | {
        key: value or "unknown" for key, value in settings.items()
    }


def row(host: str, job: Job, known: dict[str, str], canary: JSON, began: float, ended: float) -> JSON:
    """Return the entry of this machine in the report of a job. Times are seconds since 1970."""
    return {
        "host": host,
        "class": job.machine_class,
        "jobs": 1,
        "seconds": round(ended - began, 3),
        "facts": known,
        "canary": canary,
    }
