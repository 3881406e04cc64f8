"""What a launch shows beside its time, each thing read by a probe of its own.

A probe sees a launch in which nothing is timed. Its methods are called in this order: ``before`` the
first call of the step, ``between`` the first call and the later ones, ``after`` the last call. What it found
is plain JSON; deriving metrics from it is the controller's work.
"""

from __future__ import annotations

from tfbench.model import JSON


class Probe:
    """Reads one thing; a method that a probe does not need does nothing."""

    name = ""

    def before(self) -> None:
        """Nothing of the step has run in this process."""

    def between(self, result: object) -> None:
        """The first call is done; ``result`` is what it returned."""

    def after(self, calls: int) -> None:
        """So many further calls are done, their results let go."""

    def found(self) -> JSON:
        """What there is to tell.

        Raises:
            MetricUnavailable: It cannot be told here, and why.
        """
        raise NotImplementedError


class MetricUnavailable(Exception):
    """What a probe wants to read is not there; the message says why."""
