"""Options of pytest in the processes that collect benchmarks with the real TensorFlow."""

from __future__ import annotations

import pytest

_INI = ("tfbench_paths", "tfbench_thresholds", "tfbench_tf_test_benchmarks")
"""The ini options of tfbench, which the controller reads."""
_STRICTNESS = ("strict", "strict_config", "strict_markers", "strict_parametrization_ids", "strict_xfail")


def declare_ini(parser: pytest.Parser) -> None:
    """Let pytest know the ini options of tfbench, whose plugin is not loaded."""
    for name in _INI:
        parser.addini(name, "known to the controller", type="linelist", default=[])


def collecting(root: str, import_mode: str) -> list[str]:
    """Return the options with which pytest collects below ``root``.

    The user's own pytest run reports warnings and unknown names. Here they must not fail the collection.
    """
    options = [f"--rootdir={root}", "-q", "--continue-on-collection-errors", "--override-ini=addopts="]
    options += [
        f"--import-mode={import_mode}",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:tfbench.plugin",
        "-p",
        "no:warnings",
    ]
    options += [f"--override-ini={key}=false" for key in _STRICTNESS]
    return [*options, "--override-ini=required_plugins="]  # plugins are not loaded here
