"""The zygotes of a run: started when a race needs them, and ended when others need their room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tfbench.errors import SideError
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.race.interfaces import Entrant
from tfbench.race.scratch import Scratch
from tfbench.race.zygote import Suite, Zygote
from tfbench.sides.side import Side

Environment = tuple[tuple[str, str], ...]
_Key = tuple[str, Environment, int]
"""Name of a side, environment variables of a variant, and number of a pair."""
_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, which takes seconds each; list devices inside benchmarks and fixtures"
)


class ZygotePool:
    """Zygotes by side, environment and number of their pair.

    Beyond the policy's `zygotes_alive` the least recently used ones end.

    Args:
        at_once: Zygotes that start at the same time.
    """

    def __init__(self, suite: Suite, policy: Policy, at_once: int) -> None:
        self._suite = suite
        self._policy = policy
        self._at_once = at_once
        self._scratch = Scratch(suite.made)
        self._zygotes: dict[_Key, Zygote] = {}
        """The least recently used one is the first."""
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

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        """Start the missing zygotes of these pairs.

        Raises:
            SideError: A zygote does not start. Later calls for its side and environment raise it again at once.
        """
        pools = {(side.name, env): side for side, env in wanted}
        for pool in pools:
            if (failure := self._failed.get(pool)) is not None:
                raise failure
        keys = [(*pool, pair) for pool in pools for pair in dict.fromkeys(pairs)]
        missing = []
        for key in keys:
            zygote = self._zygotes.pop(key, None)
            if zygote is not None and zygote.alive:
                self._zygotes[key] = zygote  # at the end, as the most recently used
                continue
            if zygote is not None:
                zygote.close()
            missing.append(key)
        self._make_room(len(missing), keys)
        for first in range(0, len(missing), self._at_once):
            self._start_together({key: pools[key[:2]] for key in missing[first : first + self._at_once]})

    def _make_room(self, count: int, kept: Sequence[_Key]) -> None:
        """End the least recently used zygotes that are not kept, so that ``count`` more stay within the limit."""
        surplus = len(self._zygotes) + count - self._policy.zygotes_alive
        for key in [key for key in self._zygotes if key not in kept][: max(0, surplus)]:
            self._zygotes.pop(key).close()

    def _start_together(self, sides: Mapping[_Key, Side]) -> None:
        """Start these zygotes. If one fails, all of them end.

        Raises:
            SideError: A zygote does not start.
        """
        starting: dict[_Key, Zygote] = {}
        try:
            for key, side in sides.items():
                starting[key] = self._started(key, side)
            for key, zygote in starting.items():
                self._wait_ready(key, zygote)
        except BaseException:
            for zygote in starting.values():
                zygote.close()
            raise
        self._zygotes.update(starting)

    def _started(self, key: _Key, side: Side) -> Zygote:
        name, env, _ = key
        try:
            return Zygote(side, dict(env), self._suite, self._policy, self._scratch.folder)
        except SideError as error:
            self._note_failure((name, env), error)
            raise

    def _wait_ready(self, key: _Key, zygote: Zygote) -> None:
        name, env, _ = key
        try:
            zygote.wait_ready()
        except SideError as error:
            self._note_failure((name, env), error)
            raise
        settings = {key: value for key, value in zygote.environment["settings"].items() if key not in dict(env)}
        self._described[name] = {**zygote.environment, "settings": settings}
        if zygote.import_seconds is not None:
            self._import_seconds.setdefault(name, []).append(zygote.import_seconds)
        if zygote.spawns and _SPAWNS.format(name) not in self.notes:
            self.notes.append(_SPAWNS.format(name))

    def _note_failure(self, pool: tuple[str, Environment], error: SideError) -> None:
        """Remember a failure in one line: its first case has shown the whole output."""
        settings = " ".join(f"{name}={value}" for name, value in pool[1])
        where = f" (with {settings})" if settings else ""
        self._failed[pool] = SideError(f"{str(error).partition(chr(10))[0]}{where}; it was not tried again")

    def zygote(self, entrant: Entrant, pair: int) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Raises:
            SideError: The zygote does not start.
        """
        self.ready([(entrant.side, entrant.case.env)], [pair])
        return self._zygotes[entrant.side.name, entrant.case.env, pair]

    def environment(self, side: Side) -> JSON:
        """Return the environment info of a side, without the settings of variants; empty if it has not started."""
        return self._described.get(side.name, {})

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        found = self._import_seconds.get(side.name)
        return median(found) if found else None

    def release(self, side: Side) -> None:
        """End the zygotes of a side, each of which holds about 200 MB."""
        for key in [key for key in self._zygotes if key[0] == side.name]:
            self._zygotes.pop(key).close()
        for pool in [pool for pool in self._failed if pool[0] == side.name]:
            del self._failed[pool]

    def keep_only(self, environments: Collection[Environment]) -> None:
        """End the zygotes of all other environments. A later request starts them again."""
        for key in [key for key in self._zygotes if key[1] not in environments]:
            self._zygotes.pop(key).close()

    def close(self) -> None:
        """End every zygote and all that it started, and remove their temporary files."""
        try:
            while self._zygotes:
                self._zygotes.popitem()[1].close()
        finally:
            self._scratch.close()
