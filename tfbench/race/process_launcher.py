"""Launches from pools of zygotes, each on the processors of its case."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from statistics import median

from tfbench.errors import BenchmarkError, SideError, UsageError
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.selection import has_driver, visible
from tfbench.model import JSON, Case
from tfbench.policy import Policy
from tfbench.protocol import DevicesListed, LaunchRequest, ListDevices
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launch import ProcessLaunch
from tfbench.race.timer import Phase, Stopwatch
from tfbench.race.workers import Suite, check_threads, made_scratch, remove_scratch, worker_environment
from tfbench.race.zygote import Ancestor, Process, Zygote
from tfbench.sides.spec import Side

Environment = tuple[tuple[str, str], ...]
ZYGOTES_TOGETHER = 48
"""Upper limit for the zygotes of all sides of a command that races several: 11 GB of private memory, two sides at their limit."""
_Pool = tuple[str, Environment]
_Key = tuple[str, Environment, int, str]
"""Name of a side, environment variables of a variant, number of a pair, and the only benchmark file or ``""``."""
_Origin = tuple[str, str, frozenset[tuple[str, str]], int]
"""Name of a side that has ancestors of its own, or ``""``; interpreter, environment variables and number of the pair."""
_OWN_IMPORT = "each measuring process imports TensorFlow itself, which costs seconds and makes more launches necessary, because {}"
_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, which takes seconds each; list devices inside benchmarks and fixtures"
)


class ProcessLauncher:
    """Opens launches from its zygotes, which are known by side, environment and number of their pair.

    Two sides never share zygotes, even if they are the same program. Launches of pair ``p`` come from zygote ``p`` of
    each side. Beyond the policy's `zygotes_alive` the least recently used zygotes end, after their processes.
    """

    def __init__(
        self,
        suite: Suite,
        policy: Policy,
        processors: Processors,
        gpu_monitor: GpuMonitor | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.stopwatch = stopwatch or Stopwatch()
        self._whole = processors
        self._lane = threading.local()
        self._gpu_monitor = gpu_monitor
        self._waits: dict[tuple[str, ...], float] = {}
        self._opened: Counter[str] = Counter()
        """Name of a case -> its launches so far, which seed the draws of the harness in each. Those of other cases do not
        count, so that the draws do not depend on the order of the races."""
        self._suite = suite
        self._policy = policy
        self._lock = threading.RLock()
        """Held while zygotes are chosen, started or ended, since several threads may race."""
        self._stopping = threading.Event()
        self._zygotes: dict[_Key, Zygote] = {}
        """The least recently used one is the first."""
        self._retired: list[Zygote] = []
        """Those that end as soon as their processes have ended."""
        self._ancestors: dict[_Origin, Ancestor] = {}
        self._starter = ThreadPoolExecutor(1)
        """Starts ancestors. Linux ends them with the thread that started them, so a lane's own would end them too early."""
        self._own_import: set[Environment] = set()
        """Environments in which each side's zygotes import TensorFlow themselves."""
        self._failed: dict[_Pool, SideError] = {}
        self._described: dict[str, JSON] = {}
        """Name of a side -> its environment info."""
        self._import_seconds: dict[str, list[float]] = {}
        self._imports: dict[_Pool, dict[int, Mapping[str, tuple[float, int]]]] = {}
        """What the zygotes of each pair have imported for each benchmark file."""
        self.notes: list[str] = []
        """Warnings about the way launches are made, for the user."""

    @property
    def processors(self) -> Processors:
        """The processors of this thread's lane, or of the run."""
        processors_of_lane: Processors = getattr(self._lane, "processors", self._whole)
        return processors_of_lane

    @contextmanager
    def on(self, lane: Processors) -> Iterator[None]:
        """Run the launches that this thread opens until the block ends on the processors of a lane."""
        self._lane.processors = lane
        try:
            yield
        finally:
            del self._lane.processors

    def stop(self) -> None:
        """End the races of all threads, which then raise ``KeyboardInterrupt``."""
        self._stopping.set()

    def check(self, side: Side, cases: Iterable[Case]) -> None:
        """Check that all variables of a side have an effect in these cases, before a process is started.

        Raises `UsageError` if one has none.
        """
        try:
            worker_environment(self._suite.variables, side, {})
            for cpus in {self.cpus(Entrant(case, side)) for case in cases}:
                check_threads(side, {}, cpus)
        except (SideError, BenchmarkError) as error:
            raise UsageError(str(error)) from None

    def start(
        self, entrant: Entrant, pair: int, request: LaunchRequest, descriptors: Sequence[int] = (), apart: bool = False
    ) -> Process:
        """Fork the process of a launch from the zygote of this pair, or of this pair and the case's file.

        Raises `SideError` if the zygote does not start, and `BenchmarkError` if the side cannot run the case.
        """
        case = entrant.case
        check_threads(entrant.side, dict(case.env), self.cpus(entrant))
        with self._using(entrant, pair, apart) as zygote:
            return Process.start(zygote, zygote.checked(request, entrant.case), descriptors)

    @contextmanager
    def _using(self, entrant: Entrant, pair: int, apart: bool = False) -> Iterator[Zygote]:
        """Provide a zygote that stays until the process of a launch that the block starts has ended.

        Raises `SideError` if the zygote does not start.
        """
        with self._lock:
            zygote = self.zygote(entrant, pair, apart=apart)
            zygote.use(1)
        try:
            yield zygote
        except BaseException:
            zygote.use(-1)
            raise

    def start_pairs(self, entrants: Iterable[Entrant], pairs: Sequence[int]) -> None:
        """Start the missing zygotes of these pairs; see `ready`."""
        self.ready([(entrant.side, entrant.case.env) for entrant in entrants], pairs)

    def open(self, entrants: Sequence[Entrant], pair: int) -> ProcessLaunch:
        """Open a launch whose processes come from this pair of zygotes."""
        self.start_pairs(entrants, [pair])
        on_gpu = self.on_gpu(entrants)
        cpus = tuple(sorted({cpu for entrant in entrants for cpu in self.cpus(entrant)}))
        near = () if any(entrant.case.alone for entrant in entrants) else self.processors.near
        places = [(cpu,) if len(cpus) == 1 else cpus for cpu in near]
        if on_gpu:
            places = places[: self.gpu_room]
        monitor, policy = (self._gpu_monitor, self._policy.on_gpu()) if on_gpu else (None, self._policy)
        name = entrants[-1].case.name
        self._opened[name] += 1
        seed, compiling = self._opened[name], near if on_gpu else ()
        return ProcessLaunch(
            self.start, entrants, pair, policy, cpus, places or [cpus], monitor, seed, compiling, self._waits
        )

    def on_gpu(self, entrants: Iterable[Entrant]) -> bool:
        """Return whether processes of these may use a GPU: there is one, a side sees it, and a case may run on it."""
        return bool(self._gpu_monitor or has_driver()) and any(
            entrant.case.levels.get("device") != "cpu" and visible({**self._suite.variables, **entrant.side.env}) != ()
            for entrant in entrants
        )

    @property
    def gpu_room(self) -> int:
        """How many processes fit into the memory of each GPU at once; one if GPUs are not monitored."""
        return self._gpu_monitor.room if self._gpu_monitor else 1

    def cpus(self, entrant: Entrant, where: Processors | None = None) -> tuple[int, ...]:
        """Return the processors that an entrant's processes are pinned to: of ``where``, or of this thread's lane."""
        return (where or self.processors).of(entrant.case)

    def policy_of(self, policy: Policy, entrants: Sequence[Entrant]) -> Policy:
        """Return the policy for a race of these entrants, which needs fewer pairs if they have common ancestors."""
        if self.on_gpu(entrants):
            policy = policy.on_gpu()
        sides = {(entrant.side.name, entrant.case.env): entrant.side for entrant in entrants}
        with self._lock:
            origins = {self._origin(side, (*pool, 0, "")) for pool, side in sides.items()}
        return policy.with_common_ancestors() if len(sides) > 1 == len(origins) else policy

    def devices(self, side: Side) -> Mapping[str, Sequence[str]]:
        """Return the names of TensorFlow's devices on this side by type, from a process that then ends.

        Raises `SideError` if the zygote does not start, and `BenchmarkError` if TensorFlow cannot list its devices.
        """
        with self._using(Entrant(Case("", "", ""), side), 0) as zygote:
            process = Process.start(zygote, ListDevices(self.processors.every))
        with process:
            return process.answer(DevicesListed, "while it listed devices", self._policy.answer_seconds).devices

    @cached_property
    def scratch(self) -> Path:
        """The folder of the workers' temporary files, made at its first use. Raises `SideError` if it cannot be created."""
        return made_scratch()

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int], only: str = "") -> None:
        """Start the missing zygotes of these pairs, as many at a time as there are processors.

        They collect ``only`` one benchmark file, or every file.
        Raises `SideError` if one does not start. Later calls for its side and environment raise it again at once.
        """
        sides: dict[_Pool, Side] = {(side.name, env): side for side, env in wanted}
        with self.stopwatch.phase(Phase.STARTING), self._lock:
            for pool in sides:
                if (failure := self._failed.get(pool)) is not None:
                    raise failure
            # The ancestor of a pair has forked none before the first, so no side is always the first.
            pools = [*sides], [*sides][::-1]
            keys = [(*pool, pair, only) for pair in dict.fromkeys(pairs) for pool in pools[pair % 2]]
            tried: set[tuple[_Key, _Origin]] = set()
            while missing := self._missing(keys):
                # Beyond the limit of live zygotes, the least recently used ones end.
                surplus = len(self._zygotes) + len(missing) - self._policy.zygotes_alive
                self._end([key for key in self._zygotes if key not in keys][: max(0, surplus)])
                due = {key: (self._origin(side := sides[key[:2]], key), side) for key in missing}
                if again := [key for key, (origin, _) in due.items() if (key, origin) in tried]:
                    with self._remembering(again[0]):
                        raise SideError(f"{again[0][0]}: the measuring process ended right after its start")
                origins = list(dict.fromkeys(origin for origin, _ in due.values()))
                batch = origins[: max(1, len(self._whole.every))]
                starting = {key: how for key, how in due.items() if how[0] in batch}
                tried |= {(key, origin) for key, (origin, _) in starting.items()}
                self._start_together(starting)

    def _missing(self, keys: Sequence[_Key]) -> list[_Key]:
        """Return the keys without a live zygote. The others become the most recently used ones."""
        for key in [key for key in keys if key in self._zygotes]:
            zygote = self._zygotes.pop(key)
            if zygote.alive:
                self._zygotes[key] = zygote
            else:
                self._retired.append(zygote)  # it may have become a launch, which goes on
        return [key for key in keys if key not in self._zygotes]

    def _end(self, keys: Sequence[_Key]) -> None:
        self._retired += [self._zygotes.pop(key) for key in keys]
        for zygote in [zygote for zygote in self._retired if not zygote.users]:
            self._retired.remove(zygote)
            zygote.close()
        self._end_idle_ancestors()

    def _end_idle_ancestors(self) -> None:
        used = {zygote.ancestor for zygote in (*self._zygotes.values(), *self._retired)}
        for origin in [origin for origin, ancestor in self._ancestors.items() if ancestor not in used]:
            self._ancestors.pop(origin).close()

    def _origin(self, side: Side, key: _Key) -> _Origin:
        """Name the ancestor of a zygote: zygotes of one pair share it if their programs and environments are the same."""
        _, env, pair, _ = key
        variables = frozenset(worker_environment(self._suite.variables, side, dict(env), shared=True).items())
        return ("" if env not in self._own_import else side.name), side.executable, variables, pair

    def _ancestor(self, origin: _Origin, side: Side) -> Ancestor:
        known = self._ancestors.get(origin)
        if known is not None and known.alive:
            return known
        if known is not None:
            known.close()
        imports = self._suite.imports_tensorflow and not origin[0]
        variables, folder = dict(origin[2]), self.scratch
        started = self._starter.submit(Ancestor, side, variables, self._suite, self._policy, imports, folder).result()
        self._ancestors[origin] = started
        return started

    def _start_together(self, wanted: Mapping[_Key, tuple[_Origin, Side]]) -> None:
        """Start these zygotes; if one fails, all of them end, and its `SideError` is raised."""
        starting: dict[_Key, Zygote] = {}
        try:
            for key, (origin, side) in wanted.items():
                with self._remembering(key):
                    self._ancestor(origin, side)
            for key, (origin, side) in wanted.items():
                with self._remembering(key):
                    ancestor, (_, env, _, only) = self._ancestor(origin, side), key
                    starting[key] = Zygote(ancestor, side, dict(env), self._suite, only, self._stopping)
            for key, zygote in starting.items():
                with self._remembering(key):
                    zygote.wait_ready()
                    self._note_ready(key, zygote)
        except BaseException:
            for zygote in starting.values():
                zygote.close()
            self._end_idle_ancestors()
            raise
        self._zygotes.update(starting)
        for (_, env, *_), zygote in starting.items():
            if (reason := zygote.collected.needs_own_import) and env not in self._own_import:
                # From now on each side imports TensorFlow itself.
                self._own_import.add(env)
                self._end([key for key in self._zygotes if key[1] == env])
                self._note(_OWN_IMPORT.format(reason))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _note_ready(self, key: _Key, zygote: Zygote) -> None:
        (name, env, *_), ready = key, zygote.collected
        settings = {key: value for key, value in ready.environment["settings"].items() if key not in dict(env)}
        cases = sorted({*self._described.get(name, {}).get("cases", ()), *ready.cases})
        self._described[name] = {**ready.environment, "settings": settings, "cases": cases}
        if not key[3]:  # otherwise no other file has imported anything before
            self._imports.setdefault(key[:2], {})[key[2]] = ready.imports
        if ready.import_seconds is not None:
            self._import_seconds.setdefault(name, []).append(ready.import_seconds)
        if ready.spawns:
            self._note(_SPAWNS.format(name))

    @contextmanager
    def _remembering(self, key: _Key) -> Iterator[None]:
        """Remember a failure in one line: its first case shows the whole output."""
        try:
            yield
        except SideError as error:
            settings = " ".join(f"{name}={value}" for name, value in key[1])
            where = f" (with {settings})" if settings else ""
            self._failed[key[:2]] = SideError(f"{error.headline}{where}; it was not tried again")
            raise

    def zygote(self, entrant: Entrant, pair: int, *, apart: bool = False) -> Zygote:
        """Return the zygote of this pair, started if necessary. Raises `SideError` if it does not start.

        If ``apart``, it collects the benchmark file of the entrant's case only.
        """
        only = entrant.case.name.partition("::")[0] if apart else ""
        with self._lock:
            self.ready([(entrant.side, entrant.case.env)], [pair], only)
            return self._zygotes[entrant.side.name, entrant.case.env, pair, only]

    def environment(self, side: Side) -> JSON:
        """Return a side's environment info without settings of variants, and its cases; empty if it has not started."""
        return self._described.get(side.name, {})

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        seconds = self._import_seconds.get(side.name)
        return median(seconds) if seconds else None

    def imports(self, entrant: Entrant, whole: bool = False) -> dict[int, tuple[float, int]]:
        """Return seconds and resident bytes of what the benchmark file of a case imports, by the pair of the zygote.

        If the ``whole`` import counts, the first file has that of TensorFlow as well.
        """
        file, seconds = entrant.case.name.partition("::")[0], self.import_seconds(entrant.side) or 0.0
        pairs = self._imports.get((entrant.side.name, entrant.case.env), {})
        found = {pair: (*files[file], next(iter(files)) == file) for pair, files in pairs.items() if file in files}
        return {pair: (own + seconds * (whole and first), held) for pair, (own, held, first) in found.items()}

    def release(self, side: Side) -> None:
        """End the zygotes of a side."""
        with self._lock:
            self._end([key for key in self._zygotes if key[0] == side.name])
            self._failed = {pool: error for pool, error in self._failed.items() if pool[0] != side.name}

    def leave(self, environment: Environment) -> None:
        """End the zygotes of an environment. A later request starts them again."""
        with self._lock:
            self._end([key for key in self._zygotes if key[1] == environment])

    def close(self) -> None:
        """End every zygote and all that it started, and remove their temporary files."""
        try:
            for zygote in (*self._retired, *self._zygotes.values()):
                zygote.users = 0
            self._end(list(self._zygotes))
        finally:
            self._starter.shutdown()
            if "scratch" in vars(self):
                remove_scratch(self.scratch, self._suite.made)
