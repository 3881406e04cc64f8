"""Fork ancestors from one process that has imported TensorFlow, for tests that are not about their start.

The import takes most of the time of a short run. `Forks` starts ``python preloaded.py SOCKET`` once per session of tests.
It imports TensorFlow for the first ancestor that needs it, and forks itself for each. An ancestor with an unusual
path, or an unusual variable that libraries read, is a process of its own, as in production.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from tfbench.facts import interpreter_options
from tfbench.protocol import StartAncestor, decode, encode

if __name__ == "__main__":  # a controller imports no module of the worker
    from tfbench.facts import library_variables
    from tfbench.race.workers import worker_environment
    from tfbench.sides.spec import Side
    from tfbench.worker import tf_runtime, zygote

VARIABLE = "TFBENCH_TESTS_PRELOADED"
"""Environment variable with the path of the socket."""
_LARGEST = 1 << 20


class Forked:
    """A process of another parent, with what an ancestor uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return 0 if select.select([self._handle], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return 0


def start(
    command: Sequence[str], start: StartAncestor, cwd: str, env: Mapping[str, str], log: IO[bytes]
) -> Forked | None:
    """Fork an ancestor; ``None`` if it has to be a process of its own."""
    path = os.environ.get(VARIABLE)
    if not path or [*command] != [sys.executable, *interpreter_options()] or not start.imports_tensorflow:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(path)
        request = json.dumps([encode(start).decode(), cwd, {**env}]).encode()
        socket.send_fds(client, [request], [start.channel, log.fileno()])
        pid = int(client.recv(100))
    return Forked(pid) if pid > 0 else None


def serve(path: str) -> None:
    """Fork an ancestor for each request; answer with its process id, or -1 if it has to import TensorFlow itself."""
    here = [os.path.dirname(os.path.abspath(__file__)), *os.environ["PYTHONPATH"].split(os.pathsep)]
    sys.path[:] = [entry for entry in sys.path if entry not in here]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ancestors, since this process never waits
    usual = library_variables(worker_environment(os.environ, Side("usual", sys.executable, Path()), {}))
    seconds = 0.0
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen(16)
    print("ready", flush=True)
    while select.select([server, sys.stdin], [], [])[0] == [server]:  # the standard input ends with the tests
        client, _ = server.accept()
        request, descriptors, _, _ = socket.recv_fds(client, _LARGEST, 2)
        start, cwd, env = json.loads(request)
        _, *path = env["PYTHONPATH"].split(os.pathsep)  # the first entry is tfbench itself
        forks = library_variables(env) == usual and path == here[1:]
        if forks and tf_runtime.tensorflow() is None:
            os.environ.clear()
            os.environ.update(env)
            began = time.perf_counter()
            importlib.import_module("tensorflow")
            seconds = time.perf_counter() - began
            tf_runtime.keras()
        if (pid := os.fork() if forks else -1) == 0:
            server.close()
            client.close()
            _become(decode(start), cwd, env, seconds, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        client.send(b"%d" % pid)
        client.close()


def _become(start: object, cwd: str, env: dict[str, str], seconds: float, channel: int, log: int) -> None:
    assert isinstance(start, StartAncestor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [cwd, *env["PYTHONPATH"].split(os.pathsep)]
    sys.argv = ["tfbench.worker"]
    sys.orig_argv = [sys.executable, *interpreter_options(), "-m", "tfbench.worker", ""]
    tempfile.tempdir = None  # the one of the first ancestor
    zygote._import_tensorflow = lambda start: seconds
    tf_runtime.run_and_exit(os.getppid(), lambda: zygote.main(replace(start, channel=channel)))


if __name__ == "__main__":
    serve(sys.argv[1])
