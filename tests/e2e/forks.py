"""Run Python programs as forks of one process that has imported what they import.

The imports of a run cost more than the run of a small benchmark. A fork still has a working directory, an environment,
outputs and an exit code of its own. Only ``/proc/PID/environ`` and ``/proc/PID/cmdline`` are those of the first process.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory
from threading import Timer
from typing import NoReturn

import tfbench.commands
from tests.fakes import preloaded

IMPORTED = ("jinja2", "msgspec", "pytest", "tfbench.session.session", "tfbench.sides.environments")
"""What runs import besides the commands."""


class Forks:
    """A process that forks itself for one program after the other. It ends with the process that made it.

    Args:
        environment: The environment that it starts with, which has one folder in ``PYTHONPATH``.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        start = partial(subprocess.Popen, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = start([sys.executable, "-m", __name__])
        self._folder = TemporaryDirectory()
        self.preloaded = str(Path(self._folder.name, "preloaded"))
        """Socket of the process that ancestors are forked from."""
        self._ancestors = start([sys.executable, preloaded.__file__, self.preloaded])
        assert self._ancestors.stdout.readline() == "ready\n"

    def run(
        self, module: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m module`` with these arguments.

        Raises:
            subprocess.TimeoutExpired: It took longer than ``timeout`` seconds, and was killed.
        """
        with TemporaryDirectory() as folder:
            outputs = [Path(folder, name) for name in ("stdout", "stderr")]
            request = [
                module,
                [*arguments],
                str(cwd),
                {**environment, preloaded.VARIABLE: self.preloaded},
                [str(path) for path in outputs],
            ]
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            late = Timer(timeout, os.kill, (int(self._process.stdout.readline()), signal.SIGKILL))
            end = time.monotonic() + timeout
            late.start()
            code = int(self._process.stdout.readline())
            late.cancel()
            texts = [path.read_text(errors="backslashreplace") for path in outputs]
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired([module, *arguments], timeout, *texts)
        return subprocess.CompletedProcess([module, *arguments], code, *texts)


def serve() -> None:
    """Fork a process for each line of the standard input; print its number, and its exit code once it has ended."""
    commands = [module.name for module in iter_modules(tfbench.commands.__path__, "tfbench.commands.")]
    for name in (*IMPORTED, *commands):
        import_module(name)
    # The plugin keeps the environment that it is imported in, so each fork imports it, and the commands that refer to it.
    for name in [name for name in sys.modules if name.startswith(("tfbench.plugin", "tfbench.commands."))]:
        del sys.modules[name]
    gc.freeze()  # pytest collects garbage twice when it ends
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _become(*json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(module: str, arguments: list[str], cwd: str, environment: dict[str, str], outputs: list[str]) -> NoReturn:
    for descriptor, path in enumerate([os.devnull, *outputs]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:2] = [cwd, *environment["PYTHONPATH"].split(os.pathsep)]
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    serve()
