"""A launch in which nothing is timed: the probes look, the step runs a few times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol import Channel
from tfbench.worker import bench_options, tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe
from tfbench.worker.probes.artifact import Artifact
from tfbench.worker.probes.flops import Flops
from tfbench.worker.probes.graph import Graph
from tfbench.worker.probes.live import Live
from tfbench.worker.probes.memory import DevicePeak
from tfbench.worker.probes.outputs import Outputs
from tfbench.worker.probes.traces import Traces
from tfbench.worker.probes.xla import Xla

_SETTLING = 1
"""Calls after the first one that may still fill a cache."""


@dataclass
class Probing:
    """A launched process that was told to look and not to time; made before the benchmark's fixtures run."""

    channel: Channel
    folder: Path
    """Where files for the controller go."""
    calls: int
    """Calls behind the first ones, in which tensors pile up or functions are traced again."""
    called: bool = False
    facts: JSON = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._xla = Xla(self.folder)
        tf_internals.seed()

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Run the step under the probes' eyes and tell what they found.

        Raises:
            BenchmarkError: A keyword of ``bench`` cannot be meant, or the step returns nothing.
        """
        self.facts.update(bench_options.facts(keywords))
        traces, live = Traces(), Live()
        # The graphs are asked for last before the first call and first behind it, so that nobody else's are in them.
        watch = _Watch([
            self._xla, Outputs(self.folder), traces, live, Flops(traces), DevicePeak(),
            Artifact(keywords.get(bench_options.ARTIFACT)), Graph(),
        ])  # fmt: skip
        for probe in watch.probes:
            watch.ask(probe, probe.before)
        result = step(*arguments)
        if result is None:
            raise BenchmarkError("the step returned nothing: return its result, so that the work cannot be left out")
        for probe in reversed(watch.probes):
            watch.ask(probe, probe.between, result)
        del result
        for _ in range(_SETTLING):
            step(*arguments)
        watch.ask(live, live.settled)
        for _ in range(self.calls):
            step(*arguments)
        for probe in watch.probes:
            watch.ask(probe, probe.after, self.calls)
        found = {probe.name: watch.ask(probe, probe.found) for probe in watch.probes}
        found = {name: what for name, what in found.items() if name not in watch.absent}
        self.channel.send("probed", found=found, absent=watch.absent, facts=self.facts)


class _Watch:
    """Asks probes, and no longer those that have once failed."""

    def __init__(self, probes: list[Probe]) -> None:
        self.probes = probes
        self.absent: dict[str, str] = {}
        """Probe -> why it cannot be read."""

    def ask(self, probe: Probe, what: Callable[..., Any], *arguments: Any) -> Any:
        if probe.name in self.absent:
            return None
        try:
            return what(*arguments)
        except MetricUnavailable as error:
            self.absent[probe.name] = str(error)
        except Exception as error:  # a corner of TensorFlow that has moved must not cost the other probes
            self.absent[probe.name] = f"it could not be read ({type(error).__name__}: {str(error)[:200]})"
        return None
