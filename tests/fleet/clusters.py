"""Real engines on this host: Slurm with several nodes by name, and PostgreSQL. Each ends with its context."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WITHOUT_SLURM = next(
    (
        f"{name} is missing; install it: apt-get install slurmd slurmctld slurm-client munge"
        for name in ("slurmctld", "slurmd", "sbatch", "munged")
        if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ),
    "",
)
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_CONFIG = """\
ClusterName=tfbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,bf_interval=5
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=8
KillWait=5
MinJobAge=300
MaxArraySize=1001
NodeName=DEFAULT CPUs={cpus} RealMemory=1000 Features=bench,a100
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """A controller and nodes ``n1``, ``n2`` … on this host. ``conf`` is its configuration, for SLURM_CONF."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.names = folder, [f"n{number + 1}" for number in range(nodes)]
        self.conf = folder / "slurm.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = [_free_port() for _ in range(nodes + 1)]
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        host = socket.gethostname().partition(".")[0]
        rows = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            for name, port in zip(self.names, ports[1:], strict=True)
        )
        for name in ("state", "munge"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        text = _CONFIG.format(
            folder=folder, host=host, ports=ports, user=user, nodes=rows,
            cpus=os.cpu_count() or 1,
        )  # fmt: skip
        self.conf.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": _PATH}

    def start(self) -> None:
        place = self.folder / "munge"
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={place}/key", f"--socket={place}/socket",
                    f"--pid-file={place}/pid", f"--log-file={place}/log", f"--seed-file={place}/seed")  # fmt: skip
        _wait(lambda: (place / "socket").exists(), "munged")
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        _wait(lambda: self.run("sinfo", "-h", "-o", "%D %t").strip() == f"{len(self.names)} idle", "nodes", 15)

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))

    def start_node(self, name: str) -> None:
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self._start(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))

    def kill_node(self, name: str) -> None:
        """End a node like a power failure: its daemon, and the processes of its jobs."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        for pid in _processes_with(f"SLURMD_NODENAME={name}"):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in _daemons_of(self.folder, name):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def kill_controller(self) -> None:
        process = self._processes.pop("slurmctld")
        process.kill()
        process.wait()

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(words, env=self.environment, stdout=output, stderr=output)

    def stop(self) -> None:
        self.run("scancel", "--user", str(os.getuid()))
        for process in reversed(list(self._processes.values())):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in self.names:
            for pid in [*_daemons_of(self.folder, name), *_processes_with(f"SLURM_CONF={self.conf}")]:
                if pid != os.getpid():
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def slurm(folder: Path, nodes: int = 3) -> Iterator[SlurmCluster]:
    """Start Slurm in a folder, until the block ends."""
    cluster = SlurmCluster(folder, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _processes_with(variable: str) -> list[int]:
    """Return the processes that were started with this environment variable."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _daemons_of(folder: Path, node: str) -> list[int]:
    """Return the step daemons of a node, whose names end with it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if (
                    words.startswith(b"slurmstepd")
                    and str(folder / f"spool-{node}").encode() in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(ready: object, what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not start within {seconds:.0f} s")
        time.sleep(0.1)


# PostgreSQL

_SERVERS = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))] or (
    [str(Path(found).resolve().parent)] if (found := shutil.which("initdb")) else []
)
WITHOUT_POSTGRES = "" if _SERVERS else "PostgreSQL is missing; install it: apt-get install postgresql"
PASSWORD = "s3cret-of-the-database"


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
