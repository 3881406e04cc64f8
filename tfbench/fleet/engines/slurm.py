"""Run jobs as job arrays of Slurm, on exclusive nodes. It needs Slurm's commands and no library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from tfbench.errors import EngineAway, EngineError, ReportError
from tfbench.fleet.engine import PROGRAM, State, Submission
from tfbench.fleet.folder import FleetFolder
from tfbench.fs import read_text, write_whole
from tfbench.untrusted import brief

ANY = "any"
"""The class of all nodes."""
INSTALL_SLURM = "apt-get install slurm-client, or run this on a login node"
_SCRIPT = """#!/bin/sh
# tfbench: $1 is a folder with a link per task of the array, and the other words are a command that takes one.
links=$1
shift
exec srun --quiet --ntasks=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}" --cpu-bind=cores --mem-bind=local \\
  "$@" "$links/$SLURM_ARRAY_TASK_ID.json"
"""
_ARRAY = 1000
"""Tasks of an array. Slurm's default limit of an array's indices is 1,000."""
_LIMIT = 60
"""Seconds that a command of Slurm may take."""
_WAITING = {"PENDING", "REQUEUED", "CONFIGURING", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"}


class SlurmEngine:
    """Submits arrays, and follows them with squeue. A fleet that goes on first cancels what it submitted before.

    Args:
        machine_class: A feature of the nodes, or `ANY`.
        options: Further options of sbatch, such as ``--gres=gpu:1`` or ``--partition=night``.

    Raises:
        EngineError: Slurm is not installed, or no node has the class.
        EngineAway: Slurm's controller does not answer.
    """

    def __init__(
        self,
        folder: FleetFolder,
        machine_class: str = ANY,
        options: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._folder, self._class, self._options, self._program = folder.path / "slurm", machine_class, options, program
        if missing := next((name for name in ("sbatch", "squeue", "sinfo") if shutil.which(name) is None), ""):
            raise EngineError(f"Slurm is not installed here, {missing} is missing: {INSTALL_SLURM}")
        if wrong := next((option for option in options if not option.startswith("--")), ""):
            raise EngineError(f"--engine-option {brief(wrong)}: write options of sbatch as in --gres=gpu:1")
        self._nodes = self._of_class()
        self.slots = len(self._nodes)
        self._tasks: dict[tuple[str, str], int] = {}
        """Array and task -> job that has not ended."""
        self._arrays: set[str] = set()
        if earlier := self._earlier():
            with suppress(EngineError):  # none of them is left
                _run("scancel", *earlier)

    def _of_class(self) -> set[str]:
        rows = [line.split("|") for line in _run("sinfo", "-h", "-N", "-o", "%N|%f").splitlines() if "|" in line]
        features = {feature for _, words in rows for feature in words.split(",") if feature != "(null)"}
        nodes = {node for node, words in rows if self._class == ANY or self._class in words.split(",")}
        if not nodes:
            known = ", ".join(sorted(features)) or "none"
            raise EngineError(f"no node of Slurm has the feature {self._class}: the features are {known}")
        return nodes

    def _earlier(self) -> list[str]:
        with suppress(ReportError):
            return [line for line in read_text(self._folder / "arrays.txt").split() if re.fullmatch(r"\d+", line)]
        return []

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        for first in range(0, len(jobs), _ARRAY):
            self._submit(jobs[first : first + _ARRAY], avoid)

    def _submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        number = sum(1 for _ in self._folder.glob("*/run.sh")) + 1
        links = self._folder / f"{number:05}"
        write_whole(links / "run.sh", _SCRIPT)
        for task, job in enumerate(jobs):
            job.log.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(job.file, links / f"{task}.json")
            os.symlink(job.log, links / f"{task}.txt")
        words = [
            "sbatch", "--parsable", f"--array=0-{len(jobs) - 1}", "--job-name=tfbench", "--nodes=1", "--ntasks=1",
            "--exclusive", "--requeue", "--open-mode=append", f"--output={links}/%a.txt",
            *([] if self._class == ANY else [f"--constraint={self._class}"]),
            *([f"--exclude={','.join(sorted(avoid))}"] if avoid else []),
            *self._options, str(links / "run.sh"), str(links), *self._program,
        ]  # fmt: skip
        array = _run(*words).strip().partition(";")[0]
        if not re.fullmatch(r"\d+", array):
            raise EngineError(f"sbatch returned {brief(repr(array))} instead of the number of a job")
        self._arrays.add(array)
        self._tasks.update({(array, str(task)): job.index for task, job in enumerate(jobs)})
        write_whole(self._folder / "arrays.txt", "".join(f"{one}\n" for one in sorted(self._arrays)))

    def poll(self) -> Mapping[int, State]:
        found: dict[int, State] = dict.fromkeys(self._tasks.values(), State.ENDED)
        arrays = sorted({array for array, _ in self._tasks})
        for line in self._queue(arrays).splitlines() if arrays else ():
            array, task, word, reason = (*line.split("|", 3), "", "", "", "")[:4]
            if (array, task) not in self._tasks:
                continue
            state = State.WAITING if word in _WAITING else State.RUNNING if word in _RUNNING else State.ENDED
            if state is State.WAITING and "held" in reason.lower():  # it would wait for an administrator
                with suppress(EngineError):
                    _run("scancel", f"{array}_{task}")
                state = State.ENDED
            if state is State.WAITING and reason == "BeginTime":  # Slurm delays a lost node's jobs by two minutes
                with suppress(EngineError):
                    _run("scontrol", "update", f"JobId={array}_{task}", "StartTime=now")
            found[self._tasks[array, task]] = state
        self._tasks = {key: job for key, job in self._tasks.items() if found[job] is not State.ENDED}
        return found

    def _queue(self, arrays: Sequence[str]) -> str:
        try:
            return _run("squeue", "-h", "-r", f"--jobs={','.join(arrays)}", "--states=all", "-o", "%F|%K|%T|%r")
        except EngineAway:
            raise
        except EngineError as error:
            if "Invalid job id" in str(error):  # Slurm has forgotten all of them, minutes after their end
                return ""
            raise EngineAway(str(error)) from None

    def avoid(self, hosts: Collection[str]) -> None:
        if not self._nodes - set(hosts):
            raise EngineError(f"every node of the class {self._class} was set aside: run tfbench doctor on them")
        for array in sorted({array for array, _ in self._tasks}):
            with suppress(EngineError):  # the array has ended meanwhile, and jobs refuse such a machine by themselves
                _run("scontrol", "update", f"JobId={array}", f"ExcNodeList={','.join(sorted(hosts))}")

    def cancel(self) -> None:
        if arrays := sorted({array for array, _ in self._tasks}):
            _run("scancel", *arrays)
        self._tasks.clear()

    def close(self) -> None:
        """Hold nothing."""


def _run(*words: str) -> str:
    """Run a command of Slurm and return its output.

    Raises:
        EngineAway: Slurm's controller or its authentication does not answer.
        EngineError: The command fails.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except FileNotFoundError:
        raise EngineError(f"Slurm is not installed here, {words[0]} is missing: {INSTALL_SLURM}") from None
    except subprocess.TimeoutExpired:
        raise EngineAway(f"{words[0]} did not answer within {_LIMIT} s") from None
    if done.returncode:
        said = brief(done.stderr.strip() or f"exit code {done.returncode}")
        away = re.search(r"Unable to contact|Connection (?:refused|timed out)|Socket timed out|timed out|Munge", said)
        raise (EngineAway if away else EngineError)(f"{words[0]}: {said}")
    return done.stdout
