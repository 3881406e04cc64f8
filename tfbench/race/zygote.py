"""Ask ancestors for zygotes, and zygotes for the processes of launches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tfbench import errors, protocol
from tfbench.fs import isolated_package_dir
from tfbench.imports import hidden_packages
from tfbench.model import Case
from tfbench.policy import Policy
from tfbench.protocol import Channel, ChannelClosed, Done, LaunchRequest, M, Message, TimedOut, encode, pair
from tfbench.race.workers import TEMPORARY, Suite, tail, worker_environment
from tfbench.sides.spec import Side, names_of
from tfbench.suite.tensorflow_stub import fix_of

FILE_BYTES = 1 << 32
"""Largest file that a launch may write. Data sets and models of benchmarks stay far below."""

# The process of a launch, as the controller sees it: forked from a zygote, asked over a channel, and ended


PRINTED = "--- printed ---"
"""Separates a traceback from the last lines that the process wrote."""

LOG_LOOK_SECONDS = 0.2
"""How often the size of a process' output is looked at while its answer is awaited."""


@dataclass
class Process:
    """One forked process. As a context manager it is killed at the end."""

    zygote: Zygote
    channel: Channel
    pid: int
    log: IO[bytes] = field(repr=False)
    _ended: tuple[int | None, str] | None = None

    @classmethod
    def start(cls, zygote: Zygote, request: LaunchRequest, descriptors: Sequence[int] = ()) -> Process:
        """Fork the process of a launch, which gets ``descriptors`` besides its channel and its log.

        Raises `SideError` if the zygote is gone, and `BenchmarkError` if there is no room for the output.
        """
        with ExitStack() as undo:
            channel, theirs = pair()
            undo.callback(channel.close)
            with theirs:
                try:
                    log = undo.enter_context(tempfile.TemporaryFile(dir=zygote.scratch))
                except OSError as error:
                    raise errors.BenchmarkError(f"no temporary file can be written: {error.strerror}") from None
                pid = zygote.launch(request, [theirs.fileno(), log.fileno(), *descriptors])
            undo.pop_all()
        return cls(zygote, channel, pid, log)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(kill=True)

    def ask(self, request: Message) -> None:
        """Send a request. If the process is gone, `answer` reports why."""
        with suppress(ChannelClosed):
            self.channel.send(request)

    def answer(self, wanted: type[M], when: str, seconds: float, waited: float = 0.0, hung: str = "") -> M:
        """Return the next message, which must be of this type. After any error the process has ended.

        Args:
            when: The phase of the launch, for the error: ``while it was probed``, or ``""`` for the set-up.
            seconds, waited: Time limit, and how much of it has passed.
            hung: What the process has not done if the time is over.

        Raises:
            BenchmarkSkipped: The benchmark skips itself.
            WorkerDied, WorkerHung: The process ended, or did not answer in time.
            BenchmarkError: The benchmark broke or returned early, or the message is malformed.
        """
        phase = f" {when}" if when else ""
        try:
            message = self._receive(wanted, max(0.0, seconds - waited))
        except ChannelClosed:
            status, output = self.end(kill=False)
            raise errors.WorkerDied(f"the process {self._ending(status)}{phase}", output) from None
        except TimedOut:
            output = self.end(kill=True)[1]
            text = f"the process did not answer within {seconds:.3g} s{phase}, and was killed"
            raise errors.WorkerHung(f"{text}: {hung}" if hung else text, output) from None
        except errors.ProtocolError as error:
            output = self.end(kill=True)[1]
            raise errors.BenchmarkError(f"the process sent no valid message{phase}: {error}", output) from None
        if isinstance(message, wanted):
            return message
        output = self.end(kill=False)[1]
        if isinstance(message, protocol.Skipped):
            raise errors.BenchmarkSkipped(message.message)
        failed = message if isinstance(message, protocol.Failed) else protocol.Failed("the benchmark ended early")
        fix = fix_of(failed.message, self.zygote.side.root)
        text = "; ".join(filter(None, (failed.message, fix)))
        printed = f"{PRINTED}\n{output}" if failed.trace and output else output
        both = "\n".join(filter(None, (failed.trace, printed)))
        raise errors.BenchmarkError(f"{when}: {text}" if when else text, both)

    def _receive(self, wanted: type[Message], seconds: float) -> Message:
        deadline, kinds = time.monotonic() + seconds, (wanted, Done, protocol.Failed, protocol.Skipped)
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self.channel.receive(*kinds, timeout=min(left, LOG_LOOK_SECONDS))
            except TimedOut:
                self.check_output()
                if left <= LOG_LOOK_SECONDS:
                    raise

    def check_output(self) -> None:
        """Kill the process if it has written more than the policy's `output_bytes`; raises `BenchmarkError` then.

        Raises `KeyboardInterrupt` if the user pressed Ctrl-C while another thread waited.
        """
        if self.zygote.stopping.is_set():
            raise KeyboardInterrupt
        limit = self.zygote.policy.output_bytes
        if self._ended is None and os.fstat(self.log.fileno()).st_size > limit:
            output = self.end(kill=True)[1]
            raise errors.BenchmarkError(f"the process printed more than {limit >> 20} MiB, and was killed", output)

    def resume(self) -> None:
        """Let it go on if another process of the launch has stopped it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def end(self, *, kill: bool) -> tuple[int | None, str]:
        """End the process; return its exit code, if known, and the last lines it wrote. Ending twice is fine."""
        if self._ended is None:
            self.channel.close()
            status = self.zygote.reap(self.pid, kill=kill)
            self.zygote.use(-1)
            with self.log:
                self._ended = status, tail(self.log)
        return self._ended

    def _ending(self, status: int | None) -> str:
        if status is None:
            return "ended with its zygote"
        if status >= 0:
            return f"died (exit code {status})"
        if -status == signal.SIGXFSZ:
            return f"died (SIGXFSZ): it wrote a file of more than {FILE_BYTES >> 20} MiB"
        name = {one.value: one.name for one in signal.Signals}.get(-status, f"signal {-status}")
        return f"died ({name}{', as by the kernel where memory is short' * (name == 'SIGKILL')})"


# An ancestor, as the controller sees it: started, asked to fork zygotes, and ended


CLOSE_SECONDS = 0.5
"""A zygote or an ancestor gets this long to exit by itself."""
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": lambda: os.setpgrp()}
)
"""Only the controller handles Ctrl-C. No session of its own: Linux shares a processor among sessions, not evenly after
a process has moved there from another one (autogroups), and first calls of two sides have to run there evenly."""


class _Forker:
    """What an ancestor and a zygote have in common: a log, and requests to fork and reap.

    Raises `SideError` if there is no room for the log.
    """

    def __init__(self, side: Side, policy: Policy, scratch: Path) -> None:
        self.side = side
        self.policy = policy
        self.scratch = scratch
        self.last_output = ""
        """The last lines that it wrote, once it has ended."""
        try:
            self.log: IO[bytes] = tempfile.TemporaryFile(dir=scratch)
        except OSError as error:
            raise errors.SideError(f"{side.name}: no temporary file can be written: {error.strerror}") from error
        try:
            self.channel, self._theirs = pair()
        except OSError:
            self.log.close()
            raise
        self._asking = threading.Lock()

    def _ask(
        self, request: protocol.ForkRequest, wanted: type[M], descriptors: Sequence[int] = (), seconds: float = 0.0
    ) -> M:
        """Send a request and return its answer, by default within the policy's `answer_seconds`.

        Raises `ProtocolError` if no answer or a wrong one comes, and `OSError` if the request cannot be sent.
        """
        with self._asking:
            self.channel.send(request, descriptors)
            return self.channel.receive(wanted, timeout=seconds or self.policy.answer_seconds)

    def _close_log(self) -> None:
        if not self.log.closed:
            self.last_output = tail(self.log)
            self.log.close()


def start_process(
    command: Sequence[str], start: protocol.StartAncestor, cwd: str, env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start an ancestor, which leads a process group, inherits the socket that ``start`` names, and writes to ``log``.

    ``command`` is an interpreter with its options.

    Raises `OSError` if it cannot be started.
    """
    words = [*command, "-m", "tfbench.worker", encode(start).decode()]
    return subprocess.Popen(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[start.channel],
        **_OWN_GROUP,
    )  # fmt: skip


class Ancestor(_Forker):
    """A process that imports what is installed and forks zygotes. It starts at once, and `fork` waits for it.

    With ``imports_tensorflow``, it imports TensorFlow instead of each of its zygotes.
    Raises `SideError` if it cannot be started.
    """

    def __init__(
        self, side: Side, env: Mapping[str, str], suite: Suite, policy: Policy, imports_tensorflow: bool, scratch: Path
    ) -> None:
        super().__init__(side, policy, scratch)
        self.imports_tensorflow = imports_tensorflow
        start = protocol.StartAncestor(self._theirs.fileno(), os.getpid(), suite.cpus, FILE_BYTES, imports_tensorflow)
        try:
            with self._theirs:
                # Not in the side's root: Python would import a tfbench there instead of this one.
                command, variables = [side.executable, *suite.python], {**env, TEMPORARY: str(scratch)}
                self._process = start_process(command, start, isolated_package_dir(), variables, self.log)
        except OSError as error:
            self.channel.close()
            self.log.close()
            raise errors.SideError(f"{side.name}: cannot start {side.executable}: {error.strerror}") from error

    def fork(self, start: protocol.StartZygote, descriptors: Sequence[int]) -> int:
        """Fork a zygote, once everything is imported; return its pid.

        The descriptors are the zygote's end of its channel, and its log.
        Raises `ProtocolError` or `OSError` if the ancestor is gone, or not ready within the policy's limit.
        """
        return self._ask(start, protocol.Launched, descriptors, self.policy.start_seconds).pid

    def reap(self, pid: int, patience: float) -> int | None:
        """End a zygote; return its exit code, negative for a signal, ``None`` if unknown.

        It gets ``patience`` seconds to exit by itself before it is killed.
        """
        try:
            return self._ask(protocol.Reap(pid, patience), protocol.Reaped).status
        except (errors.ProtocolError, OSError):
            self.close()  # its zygotes end with it
            return None

    @property
    def alive(self) -> bool:
        """Whether it can still fork."""
        return not self.log.closed and self._process.poll() is None

    def close(self) -> None:
        """End it and the zygotes it forked. Ending twice is fine."""
        self.channel.close()  # it exits at the end of file
        try:
            self._process.wait(timeout=CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._close_log()


# A zygote, as the controller sees it: started, asked to fork launches, and ended


_END_SECONDS = 5.0
"""The process of a launch that has done its work gets this long to exit by itself."""


class Zygote(_Forker):
    """A process that collects the benchmarks of a side and forks launches. `wait_ready` waits until it has collected.

    Raises `SideError` if it cannot be forked.

    Args:
        env: Environment variables of the variant.
        only: The only benchmark file that it collects, with a note of all that it reads; ``""`` for every file.
        stopping: Set to end the races of its processes as Ctrl-C does.
    """

    collected: protocol.Ready
    """What it has collected, once it is ready."""

    def __init__(
        self,
        ancestor: Ancestor,
        side: Side,
        env: Mapping[str, str],
        suite: Suite,
        only: str,
        stopping: threading.Event,
    ) -> None:
        super().__init__(side, ancestor.policy, ancestor.scratch)
        self.ancestor = ancestor
        self.stopping = stopping
        self.users = 0
        """Processes of launches that have not ended, or are about to start."""
        self._counting, self._ending = threading.Lock(), threading.Lock()
        self.used = False
        """Whether it becomes the process of a launch, see `Ready.spawns`."""
        tree = side.judged
        start = protocol.StartZygote(
            root=str(side.root),
            files=(only,) if only else side.files or suite.files,
            inifile=tree.inifile if tree else os.path.normpath(side.root / suite.inifile) if suite.inifile else "",
            pythonpath=tree.pythonpath if tree else (),
            import_mode=suite.import_mode,
            made=suite.made,
            python_path=worker_environment(suite.variables, side, env)["PYTHONPATH"],
            tree_redirect=side.tree_redirect,
            tree=side.tree_redirect[1] if side.tree_redirect else suite.tree or str(side.root),
            watches=bool(only),
            options=suite.options,
            ignored=suite.ignored,
        )
        try:
            with self._theirs:
                self.pid = ancestor.fork(start, [self._theirs.fileno(), self.log.fileno()])
        except (errors.ProtocolError, OSError) as error:
            self.channel.close()
            self.log.close()
            ancestor.close()
            text = f"{side.name}: the measuring process did not start ({error})\n{ancestor.last_output}"
            raise errors.SideError(text) from error

    def use(self, more: int) -> None:
        """Count so many more users, or fewer ones."""
        with self._counting:
            self.users += more
            self.used |= self.collected.spawns

    def wait_ready(self) -> None:
        """Wait until it has collected the benchmarks.

        Raises `SideError` if it ended, exceeded the policy's limit, or imports packages of another tree.
        """
        name = self.side.name
        try:
            answer = self.channel.receive(protocol.Ready, protocol.Failed, timeout=self.policy.start_seconds)
        except errors.ProtocolError as error:
            self.close()
            raise errors.SideError(
                f"{name}: the measuring process did not start ({error})\n{self.last_output}"
            ) from error
        if isinstance(answer, protocol.Failed):
            self.close()
            raise errors.SideError(f"{name}: {answer.message}\n{self.last_output}")
        assert isinstance(answer, protocol.Ready)
        if self.ancestor.imports_tensorflow and answer.offenders:
            reason = f"{Path(answer.offenders[0]).name} runs a TensorFlow op while it is imported"
            answer = replace(answer, needs_own_import=reason)
        if answer.leaked_packages and not answer.needs_own_import:
            raise errors.SideError(
                f"{name}: {', '.join(answer.leaked_packages)} would come from the working tree or an installed copy and not from "
                f"{self.side.spec}, so both sides would be the same; uninstall it, and name its folder in pytest's option pythonpath"
            )
        if not answer.needs_own_import and (hidden := hidden_packages(names_of(self.side.spec), answer.hidden)):
            raise errors.SideError(
                f"{name}: {', '.join(hidden)} would come from the source tree and not from {self.side.spec}, so both sides "
                "would be the same; install the tree by pip install -e . and keep its folder out of the path (no pythonpath "
                "in pytest's settings, --import-mode=importlib), or race git:REV"
            )
        self.collected = answer

    def skip_reason(self, case: Case) -> str | None:
        """Return why this zygote cannot run the case, ``None`` if it can."""
        file = str(self.side.root / case.name.partition("::")[0])
        if file in self.collected.offenders:
            return (
                f"{Path(file).name} runs a TensorFlow op while it is imported, so its process cannot be forked; "
                "move the op into the benchmark or a fixture"
            )
        for place in (file, *map(str, Path(file).parents)):
            if error := self.collected.broken.get(place):
                name, fix = Path(file if place == file else "conftest.py").name, fix_of(error, self.side.root)
                cause = f": {found}" if (found := errors.headline_of(error)) else ""
                headline = f"{name} cannot be imported on the side {self.side.name}{cause}{'; ' if fix else ''}{fix}"
                return f"{headline}\n{error}"
        if not name_among(self.collected.cases, case):
            if self.side.tree_redirect and not Path(file).exists():
                return f"the side {self.side.name} has no file {case.name.partition('::')[0]}; race a side whose source tree has it"
            return (
                f"the side {self.side.name} does not collect {case.name}; if its source tree lacks it, race another one; "
                "if its id depends on TensorFlow's values, give the parameters ids of their own; if on an option of a "
                "plugin or a conftest.py, such as --count, leave that out"
            )
        return None

    def checked(self, request: LaunchRequest, case: Case) -> LaunchRequest:
        """Return a request with the case's name in this process. Raises `BenchmarkError` if it cannot run the case."""
        if (reason := self.skip_reason(case)) is not None:
            raise errors.BenchmarkError(reason)
        name = name_among(self.collected.cases, case)
        return replace(request, case=name) if isinstance(request, protocol.CaseRequest) else request

    def launch(self, request: LaunchRequest, descriptors: Sequence[int]) -> int:
        """Fork the process of a launch; return its pid. Raises `SideError` if the zygote is gone."""
        return self._answer(request, protocol.Launched, descriptors).pid

    def reap(self, pid: int, *, kill: bool) -> int | None:
        """End the process of a launch; return its exit code, negative for a signal, ``None`` if unknown."""
        patience = 0.0 if kill else _END_SECONDS
        if self.used:  # this process has become the launch
            return self.close(patience)
        try:
            return self._answer(protocol.Reap(pid, patience), protocol.Reaped).status
        except errors.SideError:
            return None

    def _answer(self, request: protocol.ForkRequest, wanted: type[M], descriptors: Sequence[int] = ()) -> M:
        """Send a request and return its answer. After an error the zygote and its launches have ended.

        Raises `SideError` if no answer came in time, or it is not the answer to this request.
        """
        try:
            return self._ask(request, wanted, descriptors)
        except (errors.ProtocolError, OSError) as error:
            # A late answer would otherwise be taken for the answer to a later request.
            self.close()
            raise errors.SideError(f"{self.side.name}: the zygote is gone ({error})\n{self.last_output}") from error

    @property
    def alive(self) -> bool:
        """Whether it can still fork or become a launch."""
        if self.used or self.log.closed or not self.ancestor.alive:
            return False
        with self._asking:  # an answer that another thread waits for is no message without a request
            return not self.channel.ended

    def close(self, patience: float = CLOSE_SECONDS) -> int | None:
        """End it and the processes it forked; return its exit code, ``None`` if unknown. Ending twice is fine."""
        with self._ending:
            self.channel.close()  # it exits at the end of file
            if self.log.closed:
                return None
            status = self.ancestor.reap(self.pid, patience)
            self._close_log()
            return status


def name_among(names: Sequence[str], case: Case) -> str:
    """Return the case's name in a process that has collected these cases, ``""`` if it does not have it.

    The controller collects with a stub of TensorFlow. pytest then names parameters that are functions of TensorFlow
    by their number, so a name may differ. The case is known by its place among those of its function.
    """
    if case.name in names:
        return case.name
    base = case.name.partition("[")[0]
    alike = [name for name in names if name.partition("[")[0] == base]
    place, of = case.place
    return alike[place] if place < len(alike) == of else ""
