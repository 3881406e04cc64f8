"""Find functions that Python calls for every line or call, such as those of coverage, profilers and debuggers."""

from __future__ import annotations

import os
import sys

ALLOWED = "TFBENCH_TRACED_WORKERS"
"""With this environment variable set, workers may be traced: tfbench's own tests measure their coverage."""
_TOOLS = range(6)
"""Identifiers of tools in `sys.monitoring`."""


def tracer() -> str:
    """Name what traces this thread, ``""`` if nothing does."""
    if os.environ.get(ALLOWED):
        return ""
    for kind, function in (("trace", sys.gettrace()), ("profile", sys.getprofile())):
        if function is not None:
            return f"a {kind} function of {type(function).__module__}.{type(function).__qualname__}"
    if sys.version_info >= (3, 12):
        for tool in _TOOLS:
            if (name := sys.monitoring.get_tool(tool)) is not None and sys.monitoring.get_events(tool):
                return f"the monitoring tool {name}"
    return ""
