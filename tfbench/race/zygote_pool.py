"""The zygotes of a run and their ancestors: started when a race needs them, ended when others need their room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, cast

from tfbench.errors import SideError
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.workers import Scratch, Suite, worker_environment
from tfbench.race.zygote import Ancestor, Zygote
from tfbench.sides.spec import Side

Environment = tuple[tuple[str, str], ...]
_Key = tuple[str, Environment, int, str]
"""Name of a side, environment variables of a variant, number of a pair, and the only benchmark file or ``""``."""
_Origin = tuple[str, str, frozenset[tuple[str, str]], int]
"""Name of a side that has ancestors of its own, or ``""``; interpreter, environment variables and number of the pair."""
_OWN_IMPORT = (
    "each side imports TensorFlow itself, which costs seconds and makes more launches necessary, because {}; set "
    "variables before pytest starts"
)
_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, which takes seconds each; list devices inside benchmarks and fixtures"
)


Method = TypeVar("Method", bound=Callable[..., Any])


def _alone(method: Method) -> Method:
    """Have a method of a pool hold its lock."""

    @wraps(method)
    def locked(self: ZygotePool, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return cast(Method, locked)


class ZygotePool:
    """Zygotes by side, environment and number of their pair, for the races of several threads.

    Beyond the policy's `zygotes_alive` the least recently used ones end. One with processes ends after them.

    Args:
        at_once: Zygotes that start at the same time.
    """

    def __init__(self, suite: Suite, policy: Policy, at_once: int) -> None:
        self._suite = suite
        self._policy = policy
        self._at_once = at_once
        self._scratch = Scratch(suite.made)
        self.lock = threading.RLock()
        """Held while zygotes are chosen, started or ended."""
        self.stopping = threading.Event()
        """Set to end the races of all threads as Ctrl-C does."""
        self._zygotes: dict[_Key, Zygote] = {}
        """The least recently used one is the first."""
        self._retired: list[Zygote] = []
        """Those that end as soon as their processes have ended."""
        self._ancestors: dict[_Origin, Ancestor] = {}
        self._own_import: set[Environment] = set()
        """Environments in which each side's zygotes import TensorFlow themselves."""
        self._failed: dict[tuple[str, Environment], SideError] = {}
        self._described: dict[str, JSON] = {}
        """Name of a side -> its environment info."""
        self._import_seconds: dict[str, list[float]] = {}
        self.notes: list[str] = []
        """Warnings about the way launches are made, for the user."""

    @property
    def scratch(self) -> Path:
        """The folder of the workers' temporary files.

        Raises:
            SideError: It cannot be created.
        """
        return self._scratch.folder

    @_alone
    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int], only: str = "") -> None:
        """Start the missing zygotes of these pairs.

        Args:
            only: The only benchmark file that they collect; ``""`` for every file.

        Raises:
            SideError: A zygote does not start. Later calls for its side and environment raise it again at once.
        """
        sides = {(side.name, env): side for side, env in wanted}
        for pool in sides:
            if (failure := self._failed.get(pool)) is not None:
                raise failure
        # The ancestor of a pair has forked none before the first, so no side is always the first.
        pools = [*sides], [*sides][::-1]
        keys = [(*pool, pair, only) for pair in dict.fromkeys(pairs) for pool in pools[pair % 2]]
        tried: set[tuple[_Key, _Origin]] = set()
        while missing := self._missing(keys):
            self._make_room(len(missing), keys)
            origins: dict[_Origin, dict[_Key, Side]] = {}
            for key in missing:
                side = sides[key[:2]]
                origin = self._origin(side, key)
                if (key, origin) in tried:
                    with self._noting_failure(key):
                        raise SideError(f"{side.name}: the measuring process ended right after its start")
                origins.setdefault(origin, {})[key] = side
            batch = list(origins.items())[: self._at_once]
            starting = {key: (origin, side) for origin, zygotes in batch for key, side in zygotes.items()}
            tried |= {(key, origin) for key, (origin, _) in starting.items()}
            self._start_together(starting)

    def _missing(self, keys: Sequence[_Key]) -> list[_Key]:
        """Return the keys without a live zygote. The others become the most recently used ones."""
        missing = []
        for key in keys:
            zygote = self._zygotes.pop(key, None)
            if zygote is not None and zygote.alive:
                self._zygotes[key] = zygote
                continue
            if zygote is not None:
                zygote.close()
            missing.append(key)
        return missing

    def _make_room(self, count: int, kept: Sequence[_Key]) -> None:
        """End the least recently used zygotes that are not kept, so that ``count`` more stay within the limit."""
        surplus = len(self._zygotes) + count - self._policy.zygotes_alive
        self._end([key for key in self._zygotes if key not in kept][: max(0, surplus)])

    def _end(self, keys: Sequence[_Key]) -> None:
        """End these zygotes, and the ancestors that have no other."""
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
        started = Ancestor(side, dict(origin[2]), self._suite, self._policy, imports, self._scratch.folder)
        self._ancestors[origin] = started
        return started

    def _start_together(self, wanted: Mapping[_Key, tuple[_Origin, Side]]) -> None:
        """Start these zygotes. If one fails, all of them end.

        Raises:
            SideError: A zygote does not start.
        """
        starting: dict[_Key, Zygote] = {}
        try:
            for key, (origin, side) in wanted.items():
                with self._noting_failure(key):
                    self._ancestor(origin, side)
            for key, (origin, side) in wanted.items():
                with self._noting_failure(key):
                    ancestor = self._ancestor(origin, side)
                    env = dict(key[1])
                    starting[key] = Zygote(
                        ancestor, side, env, self._suite, self._policy, self._scratch.folder, key[3], self.stopping
                    )  # fmt: skip
            for key, zygote in starting.items():
                with self._noting_failure(key):
                    zygote.wait_ready()
                self._note_ready(key, zygote)
        except BaseException:
            for zygote in starting.values():
                zygote.close()
            self._end_idle_ancestors()
            raise
        self._zygotes.update(starting)
        for key, zygote in starting.items():
            if zygote.needs_own_import:
                self._separate(key[1], zygote.needs_own_import)

    def _separate(self, env: Environment, reason: str) -> None:
        """End the zygotes of an environment: from now on each side imports TensorFlow itself."""
        if env not in self._own_import:
            self._own_import.add(env)
            self._end([key for key in self._zygotes if key[1] == env])
            self._note(_OWN_IMPORT.format(reason))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _note_ready(self, key: _Key, zygote: Zygote) -> None:
        name, env, *_ = key
        settings = {key: value for key, value in zygote.environment["settings"].items() if key not in dict(env)}
        self._described[name] = {**zygote.environment, "settings": settings}
        if zygote.import_seconds is not None:
            self._import_seconds.setdefault(name, []).append(zygote.import_seconds)
        if zygote.spawns:
            self._note(_SPAWNS.format(name))

    @contextmanager
    def _noting_failure(self, key: _Key) -> Iterator[None]:
        """Remember a failure in one line: its first case has shown the whole output."""
        try:
            yield
        except SideError as error:
            settings = " ".join(f"{name}={value}" for name, value in key[1])
            where = f" (with {settings})" if settings else ""
            text = f"{str(error).partition(chr(10))[0]}{where}; it was not tried again"
            self._failed[key[:2]] = SideError(text)
            raise

    @_alone
    def zygote(self, entrant: Entrant, pair: int, *, apart: bool = False) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Args:
            apart: Whether it collects the benchmark file of the entrant's case only.

        Raises:
            SideError: The zygote does not start.
        """
        only = entrant.case.name.partition("::")[0] if apart else ""
        self.ready([(entrant.side, entrant.case.env)], [pair], only)
        return self._zygotes[entrant.side.name, entrant.case.env, pair, only]

    @_alone
    def have_common_ancestors(self, wanted: Sequence[tuple[Side, Environment]]) -> bool:
        """Whether these are several zygotes of a pair, forked from one ancestor, as far as is known."""
        origins = {(side.name, env): self._origin(side, (side.name, env, 0, "")) for side, env in wanted}
        return len(origins) > 1 == len(set(origins.values()))

    def environment(self, side: Side) -> JSON:
        """Return the environment info of a side, without the settings of variants; empty if it has not started."""
        return self._described.get(side.name, {})

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        found = self._import_seconds.get(side.name)
        return median(found) if found else None

    @_alone
    def release(self, side: Side) -> None:
        """End the zygotes of a side."""
        self._end([key for key in self._zygotes if key[0] == side.name])
        for pool in [pool for pool in self._failed if pool[0] == side.name]:
            del self._failed[pool]

    @_alone
    def keep_only(self, environments: Collection[Environment]) -> None:
        """End the zygotes of all other environments. A later request starts them again."""
        self._end([key for key in self._zygotes if key[1] not in environments])

    def close(self) -> None:
        """End every zygote and all that it started, and remove their temporary files."""
        try:
            for zygote in self._retired:
                zygote.users = 0
            for zygote in self._zygotes.values():
                zygote.users = 0
            self._end(list(self._zygotes))
        finally:
            self._scratch.close()
