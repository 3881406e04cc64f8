"""Start a program that imports a source tree and writes down what it found there."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbench.errors import SideError
from tfbench.fs import isolated_package_dir, python_path, read_text
from tfbench.model import JSON
from tfbench.untrusted import an_object, described, parse_json

_TAIL = 4000
"""Characters of a failed process that a message quotes."""


def collect(
    command: Sequence[str], request: JSON, root: Path, seconds: float, settings: Mapping[str, str] | None = None
) -> JSON:
    """Run the program, and return the object that it wrote.

    Args:
        command: Its last argument will be the request as JSON, with the file to be written as ``answer``.
        root: The source tree, below which entries of ``PYTHONPATH`` are looked up.
        seconds: Time limit.
        settings: Further variables of its environment.

    Raises:
        SideError: It did not finish in time, failed, or wrote something else.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env |= {"PYTHONPATH": python_path(root, env.get("PYTHONPATH", "")), **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="tfbench-collect-") as folder:
        answer = Path(folder, "benchmarks.json")  # what the tree's own code prints is not in the way there
        try:
            done = subprocess.run(
                [*command, json.dumps(request | {"answer": str(answer)})],
                cwd=isolated_package_dir(), env=env, capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SideError(f"pytest did not collect its benchmarks within {seconds:.0f} s") from None
        if done.returncode or not answer.exists():
            last = (done.stderr.strip() or done.stdout.strip())[-_TAIL:]
            raise SideError(f"pytest cannot collect its benchmarks\n{last}")
        try:
            return an_object(parse_json(read_text(answer)), "it")
        except ValueError as error:  # the tree's own code could write there
            raise SideError(f"the list of its benchmarks is damaged ({described(error)})") from None
