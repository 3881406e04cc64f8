"""Probes: each reads one kind of evidence for the metrics other than time.

Probes run in a launch that takes no times. Their methods are called ``before`` the first call of the step, ``between``
the first call and the later ones, and ``after`` the last call. The evidence is JSON, from which the controller derives
the metrics.
"""

from __future__ import annotations

from tfbench.model import JSON


class Probe:
    """Reads one kind of evidence. A subclass overrides only the methods that it needs."""

    name = ""

    def before(self) -> None:
        """Prepare for the first call of the step in this process."""

    def between(self, result: object) -> None:
        """Read the state after the first call, which returned ``result``."""

    def after(self, calls: int) -> None:
        """Read the state after so many further calls, whose results are released."""

    def found(self) -> JSON:
        """Return the evidence as JSON.

        Raises:
            MetricUnavailable: It cannot be read here.
        """
        raise NotImplementedError


class MetricUnavailable(Exception):
    """A probe cannot read its evidence. The message states the reason."""
