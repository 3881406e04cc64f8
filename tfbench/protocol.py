"""Typed messages between the controller and the workers, their coding, and the socket they travel on."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from tfbench.errors import ProtocolError
from tfbench.model import JSON

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # workers do not have it, and only type checkers need it

    def dataclass_transform(**_: object) -> object:
        return lambda kind: kind

# The messages: requests and their answers, first those of an ancestor and a zygote, then those of a launch


TOKEN = b"1"
"""What a process of a launch writes into the pipe of the next one, to pass it the turn."""
TRACED_WORKERS = "TFBENCH_TRACED_WORKERS"
"""With this environment variable set, workers may be traced: tfbench's own tests measure their coverage."""
XLA_FOLDER = "xla"
"""Folder of XLA's dumps, below that of a probing launch."""


MESSAGES: dict[str, type[Message]] = {}
"""Kind -> type, for decoding. The kind of a message is the name of its class."""
M = TypeVar("M", bound="Message")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message:
    """Base of all messages, which are frozen dataclasses. Fields are JSON values, and tuples where JSON has lists."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        MESSAGES[cls.__name__] = cls
        MESSAGES.pop(cls.mro()[1].__name__, None)  # a base of messages is no message


class StartAncestor(Message):
    """The argument that an ancestor is started with."""

    channel: int
    """Descriptor of the inherited socket."""
    controller: int
    """Process id of the controller, with which the ancestor and all that it forks end."""
    cpus: tuple[int, ...]
    file_bytes: int
    """Largest file that a process may write."""
    imports_tensorflow: bool


class ForkRequest(Message):
    """Base of the requests to a process that forks others."""


class StartZygote(ForkRequest):
    """Fork a zygote. Its socket and its log are sent along."""

    root: str
    files: tuple[str, ...]
    inifile: str
    import_mode: str
    made: str
    """Folder of shared set-ups."""
    python_path: str
    """Value of ``PYTHONPATH``."""
    tree_redirect: tuple[str, str] | None
    """Working tree and the tree that replaces it, if the side has another source tree."""
    offenders: tuple[str, ...] = ()
    """Benchmark files left out, because they run an op while they are imported."""
    channel: int = -1
    """Descriptor of the socket, if the zygote is not forked but replaces one that has run an op."""
    tree: str = ""
    """Top of the side's source tree."""
    watches: bool = False  # whether to note which files of the tree are opened
    options: JSON = field(default_factory=dict)
    """Values of options that the project's conftest.py files define, by their names in Python."""
    ignored: tuple[str, ...] = ()
    """Modules and folders of the working tree that git ignores, so that no other tree has them."""
    pythonpath: tuple[str, ...] = ()
    """pytest's option of that name; empty for the value of the configuration file."""


class LaunchRequest(ForkRequest):
    """Base of the requests that fork a process. Its socket, its log and other open files are sent along."""

    cpus: tuple[int, ...]
    """Processors that the process is pinned to. TensorFlow gets as many threads."""


class CaseRequest(LaunchRequest):
    """Base of the requests that run a case."""

    case: str


class TimeCase(CaseRequest):
    """Time blocks in turns. The inbox of this entrant and all outboxes are sent along."""

    entrant: int
    warmup: tuple[float, float, float, float]
    """Seconds, limit in seconds, relative steadiness and limit while calls trace, see `worker.block.warm_up`."""
    seed: int
    """Start of the harness' own draws, the same for all entrants of the launch."""
    meeting: tuple[int, ...] = ()
    """Processor on which all entrants make their first calls in turn; empty if each makes its own without waiting."""
    compiling: tuple[int, ...] = ()
    """Processors of a first call that compiles a step for a GPU, instead of the others."""


class ProbeCase(CaseRequest):
    """Read the metrics other than time."""

    folder: str
    """Where the process leaves files for the controller."""
    calls: int
    """Calls after the first ones, to find retraces and tensors that stay alive."""
    windows: tuple[int, int, int]
    """Windows of calls after them to find leaks, most calls of each, and most quick calls of each."""
    seconds: tuple[float, float, float]
    """Seconds of all windows: for the quick calls, for the usual most, and for one call in each window."""
    noise: tuple[float, float, float]
    """Growth of a short window that is none: bytes, resident bytes of two windows, and objects."""
    limits: tuple[float, ...]
    """Bytes and objects per call above which the allocation sites are named, empty for none."""
    many: tuple[int, float] = (0, 0.0)
    """Calls and seconds after which it is known whether later calls take longer, whichever comes first."""


class ProfileCase(CaseRequest):
    """Run steps under TensorFlow's profiler."""

    folder: str
    steps: tuple[int, int]
    """Fewest and most steps."""
    seconds: float
    """Between the two, as many steps as fit into this time."""
    warmup: tuple[float, float, float, float]
    """As in `TimeCase`."""
    energy: float
    """Seconds for which the step repeats before, from `Reached` and `Begin` to `Sampled`; 0 for none of these."""


class SampleCase(CaseRequest):
    """Sample the Python functions of the step, or count what it leaves in memory."""

    seconds: float
    """Time for which a repeated step runs."""
    first: bool
    """Whether only the first call counts."""
    memory: bool
    """Whether memory is counted, and not functions."""


class ListDevices(LaunchRequest):
    """List the devices that TensorFlow sees."""


class Reap(ForkRequest):
    """End a forked process."""

    pid: int
    patience: float
    """Seconds that it gets to end by itself before it is killed."""


class Ready(Message):
    """The zygote has collected the benchmarks and waits for requests."""

    cases: tuple[str, ...]
    """In the order of their declaration."""
    broken: dict[str, str]
    """Benchmark file, or folder of a ``conftest.py`` -> error of its import."""
    offenders: tuple[str, ...]
    environment: JSON
    import_seconds: float | None
    """Import time of TensorFlow in the ancestor, without garbage collection; ``None`` if the ancestor has not imported it."""
    spawns: bool
    """Whether the zygote has opened a GPU. It cannot fork then, and becomes the process of its only launch."""
    leaked_packages: tuple[str, ...]
    hidden: dict[str, str]
    """As `tfbench.imports.hidden_modules` returns them."""
    needs_own_import: str = ""
    """Why the zygote cannot use what its ancestor has imported, ``""`` if it can."""
    imports: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Benchmark file -> seconds and resident bytes of what it was the first to import."""


class Launched(Message):
    """A process was forked."""

    pid: int


class Reaped(Message):
    """A process has ended, with this exit code, negative for a signal."""

    status: int


class Serve(Message):
    """Time blocks in turns."""

    follow: tuple[int, ...]
    """For each turn of this entrant, the entrant of the next turn; -1 after the last turn."""
    iterations: int
    prime: int
    extra: float
    """Injected slowdown, as a fraction of a block."""
    groups: tuple[int, ...]
    """Process group of each entrant, 0 for one that has left, stopped in the turns of others; empty if all go on."""
    slow: tuple[float, ...] = ()
    """Injected slow calls: their share, their factor, and the seconds that a call waits, 0 for real extra calls."""
    drain: float = 0.0
    """Before its first block, this entrant calls its step until a call takes so many seconds: threads that work ahead have
    filled their buffers, and the blocks begin when these are used up. 0 for no such calls."""
    blocks: int = 1
    """Blocks of a turn, of which the first one is primed."""


class ServeSliced(Message):
    """Time blocks by processor time, while the scheduler alternates the processes on one processor. For ``extra``, see `Serve`."""

    places: tuple[int, ...]
    """For each round, how many of the others start before this entrant."""
    others: tuple[int, ...]
    """The other entrants, which are in each round together with this one."""
    iterations: int
    extra: float
    slow: tuple[float, ...] = ()
    """As in `Serve`."""


class Settle(Message):
    """Move to other processors, where the rounds take place, and fill their caches."""

    cpus: tuple[int, ...]
    calls: int
    """Calls of the step there."""
    elsewhere: tuple[int, ...] = ()
    """Processors on which the process looks for the waits of its step first, if neighbours have hidden them so far."""


class Settled(Message):
    """The process has moved."""

    waiting: float | None = None
    """As in `Prepared`, by all that the process knows now."""


class Begin(Message):
    """Go on where the process waits: repeat the step, or make its first call."""


class Stop(Message):
    """Return from ``bench``."""


class Preparing(Message):
    """Base of what a process of a launch sends before its rounds."""


class Reached(Preparing):
    """The process is where it waits for the others: before its first call, or after it."""


class Prepared(Preparing):
    """The process is warm and waits for its first turn."""

    iteration: float
    """Seconds of one iteration at the end of the warm-up."""
    facts: JSON
    on_device: bool = False
    """Whether the step runs asynchronously on a device, so that a block ends by waiting for it."""
    waiting: float | None = None
    """Time in which it waited during an iteration, as a fraction of its processor time; ``None`` if that is no clock."""
    untimed: float | None = None
    """Seconds of untimed work that each iteration needs around it, so that a block holds one; ``None`` without any."""
    first_call: tuple[float, float, int] | None = None
    """If the first call was made in turn with that of another entrant: the most and the least seconds that it takes without
    neighbours, and the processor time of this turn in nanoseconds."""
    works_on: bool = False
    """Whether threads of the process work on after a step has returned, or its waits go on."""
    waits: bool = False
    """Whether its waits go on, also in the turns of others."""
    calls: int = 0
    """Calls of the warm-up."""

    @property
    def whole(self) -> float:
        """Seconds of an iteration with the untimed work around it."""
        return self.iteration + (self.untimed or 0.0)


class Rounds(Message):
    """When each block began and ended, and when it had dispatched its work, in nanoseconds of a shared clock."""

    began: tuple[int, ...]
    ended: tuple[int, ...]
    dispatched: tuple[int, ...]
    """Empty where calls return finished."""
    used: int = 0
    """Processor time of the process and its children from the first turn to the last one, in nanoseconds."""
    least: tuple[tuple[int, int], ...] = ()
    """Blocks whose time without neighbours is not certain, and the least that it can be, in nanoseconds. They end as late as
    they can without neighbours."""


class Probed(Message):
    """The evidence of a probing launch."""

    found: JSON
    absent: dict[str, str]
    """Probe -> why it read no value."""
    facts: JSON


class Profiled(Message):
    """The profiler has written its files."""


class Sampled(Message):
    """The samples of a launch, and the seconds of all its calls."""

    calls: int
    seconds: float
    samples: int
    functions: dict[str, tuple[int, int]]
    """Function -> samples with it on the stack, and the sum of its depths in them."""
    memory: JSON
    """Growth in bytes by keeper, and of the ``lines`` of Python that hold most; empty if functions were sampled."""


class DevicesListed(Message):
    """Device type -> names."""

    devices: dict[str, tuple[str, ...]]


class Done(Message):
    """The benchmark function has returned and passed."""

    facts: JSON = field(default_factory=dict)
    """Results of the launch that were not known before."""


class Skipped(Message):
    """The benchmark called ``pytest.skip``."""

    message: str


class Failed(Message):
    """The benchmark or the collection broke."""

    message: str
    trace: str = ""


# Messages as lines of JSON. What arrives is checked against the annotations of its type


QUOTED = 80
"""Bytes of a malformed line that an error quotes."""


def encode(message: Message) -> bytes:
    """Return the message as one line. Raises `ValueError` if a field is NaN or infinite, which JSON cannot carry."""
    content = {"kind": type(message).__name__, **vars(message)}
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes | str) -> Message:
    """Return the message on a line.

    Raises `ProtocolError` if it is not JSON, its kind is unknown, or a field is missing, unknown or of a wrong type.
    """
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not a JSON message: {line[:QUOTED]!r}") from error
    kind = content.pop("kind", None) if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise ProtocolError(f"a message of no known kind: {line[:QUOTED]!r}")
    types = get_type_hints(MESSAGES[kind])
    if odd := sorted(types.keys() ^ content.keys()):
        raise ProtocolError(f"missing or unknown fields in a message ({', '.join(odd)}): {line[:QUOTED]!r}")
    values = {}
    for name, wanted in types.items():
        try:
            values[name] = _typed(content[name], wanted)
        except TypeError as error:
            raise ProtocolError(f"field {name} of a message has a wrong type: {line[:QUOTED]!r}") from error
    return MESSAGES[kind](**values)


def _typed(value: Any, wanted: Any) -> Any:
    """Return a JSON value as the annotated type: lists become tuples, integers become floats where floats are wanted."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any or type(value) is wanted:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    if type(None) in parts:
        return None if value is None else _typed(value, parts[0])
    if origin is dict and isinstance(value, dict):
        return {key: _typed(part, parts[1]) for key, part in value.items()}
    if origin is tuple and isinstance(value, list):
        if parts[-1] is ...:
            return tuple(_typed(part, parts[0]) for part in value)
        if len(value) == len(parts):
            return tuple(map(_typed, value, parts))
    raise TypeError(f"{type(value).__name__} instead of {wanted}")


# The channel between controller and workers: one line per message over a Unix socket, file descriptors beside it


LONGEST_MESSAGE = 64 * 1024 * 1024
"""Upper limit of a line in bytes: 300 rounds take 3 kB, the case list of a large suite 1 MB."""
_DESCRIPTORS = 253
"""Most open files beside a message: Linux' SCM_MAX_FD. A launch of N entrants has N + 3."""
_CHUNK = 1 << 16


class ChannelClosed(ProtocolError):
    """The other end of a channel is closed."""


class TimedOut(ProtocolError):
    """No complete message came within the time limit."""


class Channel:
    """One end of a conversation. It owns its socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""
        self.descriptors: list[int] = []
        """Open files that came with the last message. The receiver must close them."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message, with open files for the other process.

        Raises `ChannelClosed` if the other end is closed, and `ValueError` if a field is NaN or infinite.
        """
        line = encode(message)
        try:
            sent = socket.send_fds(self._socket, [line], list(descriptors)) if descriptors else 0
            self._socket.sendall(line[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed("the other process is gone") from error

    def receive(self, *wanted: type[M], timeout: float | None = None) -> M:
        """Return the next message, which must be of one of these types.

        Raises:
            ChannelClosed: The other end is closed.
            TimedOut: No complete message came within ``timeout`` seconds.
            ProtocolError: The line is malformed, or its message has another type.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self.descriptors = []
        while b"\n" not in self._buffer:
            if deadline is not None:
                # Poll at the deadline as well: an answer that is already there is no timeout.
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._socket], [], [], left)[0]:
                    raise TimedOut(f"no answer within {timeout:g} s")
            try:
                chunk, received, _, _ = socket.recv_fds(self._socket, _CHUNK, _DESCRIPTORS)
            except ConnectionResetError as error:
                raise ChannelClosed("the other process is gone") from error
            self.descriptors += received
            if not chunk:
                raise ChannelClosed("the other process is gone")
            self._buffer += chunk
            if len(self._buffer) > LONGEST_MESSAGE:
                raise ProtocolError(f"a message is longer than {LONGEST_MESSAGE} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = decode(line)
        if not isinstance(message, wanted):
            kinds = " or ".join(dict.fromkeys(kind.__name__ for kind in wanted))
            raise ProtocolError(f"expected {kinds}, got {line[:QUOTED]!r}")
        return message

    @property
    def ended(self) -> bool:
        """Whether this end or the other one is closed, or an unexpected message has arrived."""
        return self._socket.fileno() < 0 or bool(self._buffer or select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Close this end. Closing twice is fine."""
        self._socket.close()


def pair() -> tuple[Channel, socket.socket]:
    """Return a channel, and the bare socket of its other end for another process."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
