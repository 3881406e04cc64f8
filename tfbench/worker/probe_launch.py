"""A launch that takes no times: probes read the other metrics while the step runs a few times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.model import JSON, ONCE
from tfbench.protocol.messages import ProbeCase, Probed
from tfbench.suite.fingerprint import digest
from tfbench.worker import tf_internals
from tfbench.worker.bench import Bench, Step
from tfbench.worker.probes import MetricUnavailable, Probe
from tfbench.worker.probes.graph import Graph, Xla
from tfbench.worker.probes.leaks import Leaks
from tfbench.worker.probes.memory import DevicePeak, Live
from tfbench.worker.probes.outputs import Artifact, Outputs
from tfbench.worker.probes.traces import Flops, Traces

_SEED = 1
"""Start of the generators of random numbers: outputs are compared, so all processes draw the same ones."""


@dataclass(repr=False)
class ProbingLaunch(Bench[ProbeCase]):
    """Runs the step between the calls of the probes, and sends their evidence."""

    def __post_init__(self) -> None:
        self.facts["source"] = digest(self.function)
        self._xla = Xla(Path(self.request.folder))
        self._absent: dict[str, str] = {}
        tf_internals.seed(_SEED)

    def serve(self, call: Step) -> None:
        traces, live = Traces(), Live()
        # Graph comes last, so it collects from just before the first call to just after it, and no other graphs.
        probes = [
            self._xla, Outputs(Path(self.request.folder)), traces, live, Flops(traces), DevicePeak(),
            Artifact(self.artifact), Graph(),
        ]  # fmt: skip
        for probe in probes:
            self._ask(probe, probe.before)
        result = call()
        self.check_result(result)
        for probe in reversed(probes):
            self._ask(probe, probe.between, result)
        del result
        leaks = Leaks()
        if self.facts.get(ONCE):
            probes.remove(live)
            for probe in probes:
                self._ask(probe, probe.after, 0)
        else:
            call()  # it may still fill a cache
            self._ask(live, live.settled)
            for _ in range(self.request.calls):
                call()
            for probe in probes:
                self._ask(probe, probe.after, self.request.calls)
            # Last, since these calls are more or fewer, as long as they take.
            self._ask(leaks, leaks.repeat, call, *self.request.windows)
        found = {probe.name: self._ask(probe, probe.found) for probe in [*probes, leaks]}
        found = {name: evidence for name, evidence in found.items() if name not in self._absent}
        self._send(found, self._absent)

    def serve_reported(self, seconds: float) -> None:
        probes = (self._xla, Outputs, Traces, Live, Flops, DevicePeak, Artifact, Graph, Leaks)
        why = "the benchmark loops by itself, so no call of a step can be read"
        self._send({}, {probe.name: why for probe in probes})

    def _send(self, found: JSON, absent: dict[str, str]) -> None:
        if read := self.own_files.read():  # last, since a step may read what it needs in its first call
            self.facts |= {"read": read, "installed": self.own_files.installed()}
        self.channel.send(Probed(found, absent, self.facts))

    def _ask(self, probe: Probe, method: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the method returns, ``None`` if the probe fails or has failed before."""
        if probe.name in self._absent:
            return None
        try:
            return method(*arguments)
        except MetricUnavailable as error:
            self._absent[probe.name] = str(error)
        except Exception as error:  # a change in TensorFlow's internals must not cost the other probes
            self._absent[probe.name] = f"the probe failed ({type(error).__name__}: {str(error)[:200]})"
        return None
