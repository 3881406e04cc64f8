"""tfbench: a performance regression suite for TensorFlow that races two versions instead of comparing saved times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tfbench.errors import ReportError, TfbenchError
from tfbench.suite.axes import Axis, Level, Variant, across
from tfbench.suite.claims import as_accurate, as_fast, at_least, at_most, faster, no_leak, smaller

if TYPE_CHECKING:
    from tfbench.model import Outcome, Ratio, Reason, Report, Verdict

__all__ = [
    "Axis", "Bench", "Level", "Outcome", "Ratio", "Reason", "Report", "ReportError", "Shared", "TfbenchError", "Variant",
    "Verdict", "across", "as_accurate", "as_fast", "at_least", "at_most", "faster", "load_report", "no_leak", "smaller",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the types of a report at their first use: they need more packages than the worker has."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tfbench import model

    return getattr(model, name)


def load_report(path: str | PathLike[str]) -> Report:
    """Read a report: a file of ``--report-json``, or a folder or zip archive with one.

    Raises:
        ReportError: There is no report, there are several, or it is invalid. The message names the place.
    """
    from tfbench.report import artifact  # it needs more packages than the worker has

    return artifact.load_report(Path(path))


class _Measure(Protocol):
    def __call__(
        self,
        step: Callable[..., Any],
        /,
        *arguments: Any,
        flops: float | None = None,
        bytes: float | None = None,
        items: float | None = None,
        expect_ops: Mapping[str, int] | None = None,
        compiled: bool | None = None,
        max_traces: int | None = None,
        max_peak_bytes: float | None = None,
        parity: float | None = None,
        accuracy: float | None = None,
        sparsity: float | None = None,
        unique_weights: float | None = None,
        artifact: bytes | str | PathLike[str] | None = None,
        ceiling: Literal["flops", "bytes"] | None = None,
        cache: Literal["cold", "warm"] | None = None,
    ) -> None:
        """Measure ``step(*arguments)``, which must return its result.

        Args:
            step: One iteration of the work. For an argument with a name, give ``functools.partial(step, name=…)``.
            arguments: Passed to every call.
            flops, bytes, items: The work of one call, for rates. ``bytes`` is the least traffic.
            expect_ops: Op -> how often the graph contains it.
            compiled: Whether XLA compiles the step.
            max_traces: Most traces of the step.
            max_peak_bytes: Largest peak of memory: of the accelerator if there is one, otherwise of the process.
            parity: Largest error against the reference variant's result, relative to its size.
            accuracy, sparsity, unique_weights: Qualities of a model, for the report.
            artifact: A file, or its content, whose size is reported.
            ceiling: The step sets the machine's roofline for this work.
            cache: Whether calls find their tensors in the cache of the device. By default they do on a CPU.

        Raises:
            BenchmarkError: It is called twice, without a function, or with an invalid value.
        """


class Bench(_Measure, Protocol):
    """The fixture ``bench``: it measures one step under ``pytest --benchmark``."""

    @property
    def once(self) -> _Measure:
        """Measure a step in its first and only call of the process, one sample per launch."""


class Shared(Protocol):
    """The fixture ``shared``: it builds a folder once for all launches of a run."""

    def __call__(self, build: Callable[..., Any], /, *arguments: Any) -> Path:
        """Return the folder that ``build(folder, *arguments)`` has filled."""
