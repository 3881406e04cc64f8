"""pytest-benchmark's fixture ``benchmark`` in the process of a launch: it hands its function to the launch.

It has the interface of pytest-benchmark 5 and needs nothing of it. Options about its own way to measure (``rounds``,
``min_time``, ``timer`` …) are accepted and have no effect: a race chooses its own blocks and rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from statistics import fmean, median, quantiles, stdev
from typing import Any

import pytest

from tfbench.model import JSON, PLAIN
from tfbench.worker.bench import Bench, Step
from tfbench.worker.block import PreparedStep

_LONGEST = 200
"""Characters of a value in ``extra_info`` that JSON cannot carry."""


class StatsUnavailable(BaseException):
    """The test reads ``benchmark.stats`` in a launch that takes no times. Its rest is left out there.

    No ``except Exception`` of the test catches it.
    """


class Times:
    """``benchmark.stats``: the times of one iteration in the rounds of this launch, in seconds.

    Fields have pytest-benchmark's names, as attributes and as items, here and in ``stats``.
    """

    def __init__(self, seconds: list[float], iterations: int) -> None:
        self.data, self.sorted_data = seconds, sorted(seconds)
        self.rounds, self.iterations = len(seconds), iterations
        self.min, self.max, self.total = min(seconds), max(seconds), sum(seconds)
        self.mean, self.median = fmean(seconds), median(seconds)
        self.stddev = stdev(seconds) if len(seconds) > 1 else 0.0
        self.q1, _, self.q3 = quantiles(seconds, n=4) if len(seconds) > 1 else (self.median,) * 3
        self.iqr, self.ops = self.q3 - self.q1, 1 / self.mean
        self.stats = self

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(f"benchmark.stats has no {name!r} in a race") from None

    get = __getitem__


class PlainBenchmark:
    """The fixture ``benchmark`` of a plain pytest-benchmark test, see the module.

    Args:
        launch: What the process was forked for.
        node: The test.
    """

    disabled, enabled, skipped, has_error, cprofile = False, True, False, False, False

    def __init__(self, launch: Bench[Any], node: pytest.Item) -> None:
        callspec, mark = getattr(node, "callspec", None), node.get_closest_marker("benchmark")
        self.name, self.fullname = node.name, node.nodeid
        self.param: str | None = callspec.id if callspec else None
        self.params: dict[str, Any] | None = callspec.params if callspec else None
        self.group: str | None = mark.kwargs.get("group") if mark else None
        self.extra_info: dict[str, Any] = {}
        self._launch = launch
        self._reads_stats = False
        self._undo: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return "<the fixture benchmark>"

    def __call__(self, function_to_benchmark: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Race ``function_to_benchmark(*args, **kwargs)``, and return what it returns.

        Raises:
            BenchmarkError: The fixture is used twice, from another thread, or without a function.
        """
        self._launch.take("benchmark", function_to_benchmark)
        return self._race(partial(function_to_benchmark, *args, **kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Race ``target(*args, **kwargs)``, and return what it returns.

        With ``setup`` or ``teardown``, every iteration is timed alone, between the two.

        Raises:
            BenchmarkError: As for a call of the fixture; or ``setup`` returns no arguments, or returns some beside ``args``.
        """
        self._launch.take("benchmark.pedantic", target)
        for name, value, least in (
            ("rounds", rounds, 1),
            ("iterations", iterations, 1),
            ("warmup_rounds", warmup_rounds, 0),
        ):
            if not isinstance(value, int) or value < least:
                self._launch.refuse(f"benchmark.pedantic: {name}={value!r} must be a whole number from {least}")
        if setup is None and teardown is None:
            return self._race(partial(target, *args, **(kwargs or {})))
        if setup is not None and iterations > 1:
            self._launch.refuse(
                f"benchmark.pedantic: iterations={iterations} with a setup, which runs before each; leave iterations out"
            )
        return self._race(self._prepared(target, args, kwargs or {}, setup, teardown))

    def _prepared(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        setup: Callable[[], Any] | None,
        teardown: Callable[..., Any] | None,
    ) -> PreparedStep:
        given = args, kwargs
        now: list[Any] = [args, kwargs]

        def bind() -> Callable[[], object]:
            if setup is not None and (arguments := setup()):
                if any(given):
                    self._launch.refuse("benchmark.pedantic: give either args and kwargs, or a setup that returns them")
                try:
                    positional, named = arguments
                    now[:] = tuple(positional), dict(named)
                except (TypeError, ValueError):
                    kind = repr(arguments)[:40]
                    self._launch.refuse(
                        f"benchmark.pedantic: setup returned {kind}; it must return (args, kwargs) or None"
                    )
            return partial(target, *now[0], **now[1])

        def clear() -> None:
            if teardown is not None:
                teardown(*now[0], **now[1])
            now[:] = given  # what setup made must not live until the next iteration

        return PreparedStep(bind, clear)

    def weave(self, target: Any, **options: Any) -> None:
        """Race calls of ``target`` that the test makes later, with aspectlib as in pytest-benchmark.

        Raises:
            BenchmarkError: aspectlib is not installed.
        """
        try:
            aspectlib = import_module("aspectlib")
        except ImportError:
            self._launch.refuse("benchmark.weave needs aspectlib: pip install aspectlib")

        def aspect(function: Callable[..., Any]) -> Callable[..., Any]:
            def woven(*args: Any, **kwargs: Any) -> Any:
                if self._launch.called:  # the launch itself may call it, such as time.sleep
                    return function(*args, **kwargs)
                return self(function, *args, **kwargs)

            return woven

        self._undo.append(aspectlib.weave(target, aspect, **options).rollback)

    patch = weave

    @property
    def stats(self) -> Times | None:
        """The times of this launch; ``None`` before the function was handed over.

        Raises:
            StatsUnavailable: The launch takes no times.
        """
        if not self._launch.called:
            return None
        self._reads_stats = True
        if not self._launch.seconds:
            self._launch.ends_early = True
            raise StatsUnavailable
        return Times(self._launch.seconds, self._launch.iterations)

    def close(self) -> None:
        """Undo what `weave` did, and keep what the test has noted for the report."""
        while self._undo:
            self._undo.pop()()
        kept: JSON = {"group": self.group, "extra_info": _plain(self.extra_info), "reads_stats": self._reads_stats}
        self._launch.late_facts[PLAIN] = kept

    def _race(self, step: Step) -> Any:
        self._launch.needs_result = False
        self._launch.serve(step)
        return step()


def _plain(values: Mapping[Any, Any]) -> JSON:
    """Return values as a report can carry them: what is no JSON, as text."""
    plain = {}
    for name, value in values.items():
        try:
            plain[str(name)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            plain[str(name)] = str(value)[:_LONGEST]
    return plain
