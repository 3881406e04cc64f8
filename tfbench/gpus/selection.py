"""Choose GPUs, and lock them."""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from tfbench.errors import GpuError, UsageError
from tfbench.fs import hold
from tfbench.gpus.nvml import Identity

# Lock each GPU for one run at a time, across all processes of the machine: two runs would measure each other


_ENDING = ".lock"
_SHARED = 0o1777
"""Mode of a folder in which all users may add files, but not remove those of others."""
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Follows no link, and waits for no other end of a pipe."""
_NO_PLACE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""Errors of opening a link, something else than a folder, or a socket."""


def lock(gpus: Sequence[Identity], folder: Path) -> ExitStack:
    """Lock GPUs by files in a folder of all users, until the returned stack is closed or this process dies.

    Raises `GpuError` if another run measures on a GPU, or the folder is not usable.
    """
    with ExitStack() as held:
        try:
            with shared_folder(folder) as descriptor:
                for gpu in gpus:
                    _take(gpu, f"{gpu.uuid.replace('/', '_')}{_ENDING}", descriptor, held)
        except OSError as error:
            raise GpuError(f"{folder} cannot hold the locks of GPUs: {error.strerror}") from None
        return held.pop_all()


@contextmanager
def shared_folder(folder: Path) -> Iterator[int]:
    """Open a folder in which all users may add files, but not remove those of others, and create it if necessary.

    Yields its descriptor, so that no link that another user plants later is followed. The mode of a folder that exists
    stays, unless it is ours and has nothing but locks: a run may have been killed before it shared the folder.
    Raises `OSError` if it cannot be created, or is a link.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    except OSError as error:
        if error.errno in _NO_PLACE:
            raise OSError(error.errno, "it is a link or no folder; remove it") from None
        raise
    try:
        status = os.fstat(descriptor)
        if (
            status.st_uid == os.getuid()
            and stat.S_IMODE(status.st_mode) != _SHARED
            and all(name.endswith(_ENDING) for name in os.listdir(descriptor))
        ):
            os.fchmod(descriptor, _SHARED)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(gpu: Identity, name: str, folder: int, held: ExitStack) -> None:
    file = held.enter_context(opened(name, folder))
    try:
        hold(file, wait=False)
    except BlockingIOError:
        who = file.read().strip()
        text = f"another run measures on GPU {gpu.index} ({gpu.name}){f', process {who}' if who else ''}"
        raise GpuError(f"{text}: wait for it, or select another GPU with --device gpu:INDEX") from None
    sign(file)


def lock_folder() -> Path:
    """Return the folder of the locks of all users of this machine."""
    shared = "/run/lock" if os.access("/run/lock", os.W_OK) else tempfile.gettempdir()
    return Path(shared, "tfbench")


def sign(file: IO[str]) -> None:
    """Write the id of this process into the file of a lock that it holds, if it may."""
    if file.writable():
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()


def opened(name: str, folder: int) -> IO[str]:
    """Open the file of a lock, which may belong to another user, and create it if necessary.

    ``folder`` is the descriptor of its folder. Linux refuses O_CREAT for an existing file of another user in such a
    folder, whatever its mode. Raises `OSError` if it cannot be opened, or is a link or no ordinary file.
    """
    while True:
        try:
            return _checked(name, os.open(name, os.O_RDWR | _SAFE, dir_fd=folder), "r+")
        except PermissionError:
            return _checked(name, os.open(name, os.O_RDONLY | _SAFE, dir_fd=folder), "r")  # enough for a lock
        except FileNotFoundError:
            with suppress(FileExistsError):  # another run was faster
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o666, dir_fd=folder)
                os.fchmod(descriptor, 0o666)  # the umask usually takes the write permission of other users
                return os.fdopen(descriptor, "r+", encoding="utf-8")
        except OSError as error:
            if error.errno in _NO_PLACE:
                raise _planted(name) from None
            raise


def _checked(name: str, descriptor: int, mode: str) -> IO[str]:
    """Return the file, unless it is a pipe, a device, or another name of a file elsewhere."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _planted(name)
    return os.fdopen(descriptor, mode, encoding="utf-8")


def _planted(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link or no ordinary file; remove it")


# Select the GPUs of a run: ``gpu``, ``gpu:0,2``, ``gpu:GPU-8f6…``, or every GPU in CUDA_VISIBLE_DEVICES


KINDS = ("cpu", "gpu", "all")
VISIBLE = "CUDA_VISIBLE_DEVICES"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Lets memory grow on demand. Otherwise the first process of a launch takes all of it, and the second gets none."""
_ORDER = "CUDA_DEVICE_ORDER"
_NAME = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def parse_device(text: str) -> tuple[str, tuple[str, ...]]:
    """Split the value of ``--device`` into the kind, and the indices or UUIDs of GPUs.

    Raises `UsageError` if the value is neither a kind nor a list of GPUs.
    """
    kind, colon, names = text.partition(":")
    if kind not in KINDS or (colon and kind != "gpu"):
        raise UsageError(f"--device {text!r}: choose from {', '.join(KINDS)}, or name GPUs as gpu:0,2 or gpu:GPU-8f6c")
    chosen = tuple(filter(None, names.split(",")))
    if colon and (not chosen or not all(map(_NAME.fullmatch, chosen))):
        raise UsageError(f"--device {text!r}: name GPUs by index or UUID, as in gpu:0,2 or gpu:GPU-8f6c")
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"--device {text!r}: a GPU is named twice")
    return kind, chosen


def visible(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, ``None`` if it is not set.

    Like CUDA, ignore all names from the first invalid one on.
    """
    if VISIBLE not in environment:
        return None
    return tuple(itertools.takewhile(_NAME.fullmatch, map(str.strip, environment[VISIBLE].split(","))))


def choose(there: Sequence[Identity], names: Sequence[str], option: str = "--device gpu:") -> list[Identity]:
    """Find GPUs by index, or by UUID or its start. Errors say which ``option`` names them.

    Raises `UsageError` if a GPU is missing, ambiguous or named twice.
    """
    chosen: list[Identity] = []
    for name in names:
        matches = [gpu for gpu in there if name == str(gpu.index) or (not name.isdigit() and gpu.uuid.startswith(name))]
        if len(matches) != 1:
            listed = ", ".join(f"{gpu.place} ({gpu.uuid}, {gpu.name})" for gpu in there) or "none"
            text = f"{option}{name} matches {'no' if not matches else 'more than one'} GPU here; available: {listed}"
            divided = len(matches) > 1 and any(match.instance is not None for match in matches)
            raise UsageError(f"{text}; select a part by its UUID" if divided else text)
        if matches[0] in chosen:
            raise UsageError(f"{option}{','.join(names)} names GPU {matches[0].place} twice")
        chosen += matches
    return chosen


def environment(chosen: Sequence[Identity]) -> dict[str, str]:
    """Return the environment of processes that see only these GPUs."""
    return {_ORDER: "PCI_BUS_ID", VISIBLE: ",".join(gpu.uuid for gpu in chosen)}


def doubtful_order(there: Sequence[Identity], names: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a note if CUDA may count the GPUs in another order than the PCI bus, ``""`` if it cannot matter."""
    unlike = len({gpu.name for gpu in there}) > 1 and any(name.isdigit() for name in names)
    if not unlike or environment.get(_ORDER) == "PCI_BUS_ID":
        return ""
    return (
        f"{VISIBLE} names GPUs of different models by index. tfbench counts them in PCI bus order, as with "
        f"{_ORDER}=PCI_BUS_ID: set it, or name them by UUID"
    )


def mps_folder() -> Path | None:
    """Return the folder of the pipes of an MPS daemon, which CUDA then uses; ``None`` if there is none."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    return folder if (folder / "control").exists() else None


def has_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver is installed, even if it is not accessible."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()
