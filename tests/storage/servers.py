"""A real PostgreSQL on this host, which ends with its context."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SERVERS = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))] or (
    [str(Path(found).resolve().parent)] if (found := shutil.which("initdb")) else []
)
WITHOUT_POSTGRES = "" if _SERVERS else "PostgreSQL is missing; install it: apt-get install postgresql"
PASSWORD = "s3cret-of-the-database"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Postgres:
    """A server with the database ``bench`` of the user ``bench``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        # The server refuses to run as root.
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._do(
            "initdb", "--no-sync", "--auth-local=trust", "--auth-host=scram-sha-256", "-U", "bench", "-D", self._data
        )

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def url(self) -> str:
        return f"postgresql://bench:{PASSWORD}@127.0.0.1:{self.port}/bench"

    def _do(self, name: str, *words: str) -> None:
        how = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        command = [f"{_SERVERS[-1]}/{name}", *words]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self._do("pg_ctl", "-D", self._data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def prepare(self) -> None:
        local = ("-h", str(self.folder), "-p", str(self.port), "-U", "bench")
        self._do("createdb", *local, "bench")
        self._do("psql", *local, "-d", "bench", "-c", f"ALTER USER bench PASSWORD '{PASSWORD}'")

    def stop(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self._do("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start PostgreSQL, until the block ends. Its folder is one that its user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tfbench-postgres-"))
    try:
        server = Postgres(folder)
        server.start()
        try:
            server.prepare()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
