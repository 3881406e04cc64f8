"""A launch that takes no times: probes read the other metrics while the step runs a few times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol.channel import Channel
from tfbench.protocol.messages import ProbeCase, Probed
from tfbench.suite.fingerprint import digest
from tfbench.worker import bench_options, tf_internals
from tfbench.worker.bench import NO_RESULT, LaunchHandler
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


class ProbingLaunch(LaunchHandler[ProbeCase]):
    """Runs the step between the calls of the probes, and sends their evidence."""

    def __init__(self, channel: Channel, request: ProbeCase, pipes: Sequence[int], function: object) -> None:
        super().__init__(channel, request, pipes, function)
        self.facts["source"] = digest(function)
        self._folder = Path(request.folder)
        self._xla = Xla(self._folder)
        tf_internals.seed()

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        traces, live = Traces(), Live()
        # Graph comes last, so it collects from just before the first call to just after it, and no other graphs.
        probes = _Probes([
            self._xla, Outputs(self._folder), traces, live, Flops(traces), DevicePeak(),
            Artifact(keywords.get(bench_options.ARTIFACT)), Graph(),
        ])  # fmt: skip
        for probe in probes.probes:
            probes.ask(probe, probe.before)
        result = step(*arguments)
        if result is None:
            raise BenchmarkError(NO_RESULT)
        for probe in reversed(probes.probes):
            probes.ask(probe, probe.between, result)
        del result
        for _ in range(_SETTLING):
            step(*arguments)
        probes.ask(live, live.settled)
        for _ in range(self.request.calls):
            step(*arguments)
        for probe in probes.probes:
            probes.ask(probe, probe.after, self.request.calls)
        found = {probe.name: probes.ask(probe, probe.found) for probe in probes.probes}
        found = {name: evidence for name, evidence in found.items() if name not in probes.absent}
        self.channel.send(Probed(found, probes.absent, self.facts))


class _Probes:
    """Calls probes, and leaves out a probe once it has failed."""

    def __init__(self, probes: list[Probe]) -> None:
        self.probes = probes
        self.absent: dict[str, str] = {}
        """Probe -> reason of its failure."""

    def ask(self, probe: Probe, method: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the method returns, ``None`` if the probe has failed."""
        if probe.name in self.absent:
            return None
        try:
            return method(*arguments)
        except MetricUnavailable as error:
            self.absent[probe.name] = str(error)
        except Exception as error:  # a change in TensorFlow's internals must not cost the other probes
            self.absent[probe.name] = f"the probe failed ({type(error).__name__}: {str(error)[:200]})"
        return None
