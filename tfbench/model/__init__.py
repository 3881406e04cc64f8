"""Immutable types shared by all packages: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfbench.model.case import *  # noqa: F403

if TYPE_CHECKING:
    from tfbench.model.measurement import *  # noqa: F403
    from tfbench.model.reasons import *  # noqa: F403
    from tfbench.model.report import *  # noqa: F403

_MODULES = ("measurement", "report", "reasons")


def __getattr__(name: str) -> Any:
    """Import the types of files at their first use: workers need none of them, and have no msgspec."""
    if name[:1].isupper() or name == "because":  # a submodule is not looked for
        for module in _MODULES:
            if hasattr(loaded := import_module(f"{__name__}.{module}"), name):
                return getattr(loaded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
