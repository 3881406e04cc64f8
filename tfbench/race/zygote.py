"""A zygote, as the controller sees it: started, asked to fork launches, and ended."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from tfbench.errors import BenchmarkError, ProtocolError, SideError
from tfbench.model import JSON, Case
from tfbench.policy import Policy
from tfbench.protocol import messages
from tfbench.protocol.channel import pair
from tfbench.race.ancestor import CLOSE_SECONDS, A, Ancestor, Requests
from tfbench.race.workers import Suite, tail, worker_environment
from tfbench.sides.side import Side
from tfbench.suite.missing_module import fix_of

_END_SECONDS = 5.0
"""The process of a launch that has done its work gets this long to exit by itself."""


class Zygote:
    """A process that collects the benchmarks of a side and forks launches. `wait_ready` waits until it has collected.

    Args:
        ancestor: Forks it.
        env: Environment variables of the variant.
        scratch: Folder of its temporary files and those of its launches.
        only: The only benchmark file that it collects, with a note of all that it reads; ``""`` for every file.

    Raises:
        SideError: It cannot be forked.
    """

    def __init__(
        self,
        ancestor: Ancestor,
        side: Side,
        env: Mapping[str, str],
        suite: Suite,
        policy: Policy,
        scratch: Path,
        only: str = "",
    ) -> None:
        self.ancestor = ancestor
        self.side = side
        self.cases: tuple[str, ...] = ()
        self.broken: dict[str, str] = {}
        self.offenders: frozenset[str] = frozenset()
        self.environment: JSON = {}
        self.import_seconds: float | None = None
        """Import time of TensorFlow, ``None`` if no benchmark imports it."""
        self.spawns = False
        """Whether it has initialised CUDA. It cannot fork then, and becomes the process of its only launch."""
        self.used = False
        """Whether it has become the process of a launch."""
        self.needs_own_import = ""
        """Why what its ancestor has imported does not suit its benchmarks; ``""`` if it does."""
        self.last_output = ""
        """The last lines that it wrote, once it has ended."""
        self.scratch = scratch
        self.policy = policy
        try:
            self.log: IO[bytes] = tempfile.TemporaryFile(dir=scratch)
        except OSError as error:
            raise SideError(f"{side.name}: no temporary file can be written: {error.strerror}") from error
        channel, theirs = pair()
        self._requests = Requests(channel, policy.answer_seconds)
        start = messages.StartZygote(
            root=str(side.root),
            files=(only,) if only else tuple(dict.fromkeys((*suite.files, *side.files))),
            inifile=str(side.root / suite.inifile) if suite.inifile else "",
            import_mode=suite.import_mode,
            made=suite.made,
            python_path=worker_environment(suite.variables, side, env)["PYTHONPATH"],
            tree_redirect=side.tree_redirect,
            tree=side.tree_redirect[1] if side.tree_redirect else suite.tree or str(side.root),
            watches=bool(only),
        )
        try:
            with theirs:
                self.pid = ancestor.fork(start, [theirs.fileno(), self.log.fileno()])
        except (ProtocolError, OSError) as error:
            channel.close()
            self.log.close()
            ancestor.close()
            text = f"{side.name}: the measuring process did not start ({error})\n{ancestor.last_output}"
            raise SideError(text) from error

    def wait_ready(self) -> None:
        """Wait until it has collected the benchmarks.

        Raises:
            SideError: It ended, did not get there within the policy's limit, or imports packages of another tree.
        """
        name = self.side.name
        channel = self._requests.channel
        try:
            answer = channel.receive(messages.Ready, messages.Failed, timeout=self.policy.start_seconds)
        except ProtocolError as error:
            self.close()
            raise SideError(f"{name}: the measuring process did not start ({error})\n{self.last_output}") from error
        if isinstance(answer, messages.Failed):
            self.close()
            raise SideError(f"{name}: {answer.message}\n{self.last_output}")
        assert isinstance(answer, messages.Ready)
        self.cases = answer.cases
        self.broken = answer.broken
        self.offenders = frozenset(answer.offenders)
        self.environment = answer.environment
        self.needs_own_import = answer.needs_own_import
        if self.ancestor.imports_tensorflow and answer.offenders:
            self.needs_own_import = f"{Path(answer.offenders[0]).name} runs a TensorFlow op while it is imported"
        if answer.leaked_packages:
            raise SideError(
                f"{name}: {', '.join(answer.leaked_packages)} would come from the working tree and not from "
                f"{self.side.spec}, so both sides would be the same; uninstall it, and name its folder in pytest's option pythonpath"
            )
        self.import_seconds = answer.import_seconds
        self.spawns = answer.spawns

    def skip_reason(self, case: Case) -> str | None:
        """Return why this zygote cannot run the case, ``None`` if it can."""
        file = str(self.side.root / case.name.partition("::")[0])
        if file in self.offenders:
            return (
                f"{Path(file).name} runs a TensorFlow op while it is imported, so its process cannot be forked; "
                "move the op into the benchmark or a fixture"
            )
        if file in self.broken:
            fix = fix_of(self.broken[file], self.side.root)
            headline = f"{Path(file).name} cannot be imported on the side {self.side.name}{'; ' if fix else ''}{fix}"
            return f"{headline}\n{self.broken[file]}"
        if not self.name_of(case):
            return (
                f"the side {self.side.name} does not collect {case.name}; "
                "if its id depends on TensorFlow's values, give the parameters ids of their own"
            )
        return None

    def name_of(self, case: Case) -> str:
        """Return the case's name in this process, ``""`` if it does not have it.

        The controller collects with a stub of TensorFlow. pytest then names parameters that are functions of TensorFlow
        by their number, so a name may differ. The case is known by its place among those of its function.
        """
        if case.name in self.cases:
            return case.name
        base = case.name.partition("[")[0]
        alike = [name for name in self.cases if name.partition("[")[0] == base]
        place, of = case.place
        return alike[place] if place < len(alike) == of else ""

    def checked(self, request: messages.LaunchRequest, case: Case) -> messages.LaunchRequest:
        """Return a request with the case's name in this process.

        Raises:
            BenchmarkError: This zygote cannot run the case.
        """
        if (reason := self.skip_reason(case)) is not None:
            raise BenchmarkError(reason)
        return replace(request, case=self.name_of(case)) if isinstance(request, messages.CaseRequest) else request

    def launch(self, request: messages.LaunchRequest, descriptors: Sequence[int]) -> int:
        """Fork the process of a launch; return its pid.

        Raises:
            SideError: The zygote is gone.
        """
        self.used = self.spawns
        return self._ask(request, messages.Launched, descriptors).pid

    def reap(self, pid: int, *, kill: bool) -> int | None:
        """End the process of a launch; return its exit code, negative for a signal, ``None`` if unknown."""
        patience = 0.0 if kill else _END_SECONDS
        if self.used:  # this process has become the launch
            return self._end(patience)
        try:
            return self._ask(messages.Reap(pid, patience), messages.Reaped).status
        except SideError:
            return None

    def _ask(self, request: messages.ForkRequest, wanted: type[A], descriptors: Sequence[int] = ()) -> A:
        """Send a request and return its answer. After an error the zygote and its launches have ended.

        Raises:
            SideError: No answer came in time, or it is not the answer to this request.
        """
        try:
            return self._requests.ask(request, wanted, descriptors)
        except (ProtocolError, OSError) as error:
            # A late answer would otherwise be taken for the answer to a later request.
            self.close()
            raise SideError(f"{self.side.name}: the zygote is gone ({error})\n{self.last_output}") from error

    @property
    def alive(self) -> bool:
        """Whether it can still fork or become a launch."""
        return not self.used and not self.log.closed and self.ancestor.alive and not self._requests.channel.ended

    def close(self) -> None:
        """End it and the processes it forked. Ending twice is fine."""
        self._end(CLOSE_SECONDS)

    def _end(self, patience: float) -> int | None:
        """End it; return its exit code, ``None`` if unknown."""
        self._requests.channel.close()  # it exits at the end of file
        if self.log.closed:
            return None
        status = self.ancestor.reap(self.pid, patience)
        self.last_output = tail(self.log)
        self.log.close()
        return status
