"""Collect the benchmarks with pytest, for commands and for other source trees; runs none of them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks  # pytest offers it nowhere else

from tfbench.errors import DeclarationError, UsageError
from tfbench.fs import scratch_dir, write_whole
from tfbench.imports import FolderByFolder, enter, redirect_imports
from tfbench.model import JSON, THRESHOLDS, Case
from tfbench.model.formats import line
from tfbench.plugin import RUNNER, takes_bench
from tfbench.plugin.cases import ELSEWHERE
from tfbench.plugin.options import PLUGIN, gate_options, given, place_of_module, selection_of
from tfbench.plugin.runner import Runner
from tfbench.policy import Policy
from tfbench.race.workers import Suite
from tfbench.report.screen import say
from tfbench.sides.counterparts import Listing, Selection
from tfbench.sides.yardstick import ini_file
from tfbench.suite import tensorflow_stub
from tfbench.untrusted import render_json, some

_TAIL = 15
_LEFT_OUT = {"parametrize", "usefixtures", "skip", "skipif", "xfail"}
"""Marks that this process has applied already, when it lists a module for another one."""


@dataclass(frozen=True)
class Collected:
    """The benchmarks that pytest collected."""

    root: Path
    suite: Suite
    cases: Mapping[str, Case]
    """By name."""
    skipped: frozenset[str] = frozenset()
    """Names of the cases that a mark of pytest skips."""
    deselected: Mapping[str, Case] = field(default_factory=dict)
    """Cases in the collected files that are not selected."""
    policy: Policy = field(default_factory=Policy)
    selection: Selection = field(default_factory=Selection)
    """What selected the cases, to select those of another source tree."""
    gate: tuple[str, ...] = ()
    """Options that decide what passes, those of the configuration file included."""
    functions: Mapping[str, pytest.Function] = field(default_factory=dict)
    """The pytest item of each case, by name."""
    broken: frozenset[str] = frozenset()
    """Files and folders that cannot be imported, relative to the root; ``.`` for all."""
    seen: frozenset[str] = frozenset()
    """Files and folders that pytest has collected or skipped, whether they have benchmarks or not."""

    def named(self, name: str) -> Case:
        """Find a case by its name, or by any part of the name that is unique.

        Raises `UsageError` if no case or several cases match.
        """
        exact = [case for case in self.cases.values() if case.name == name or case.name.endswith(f"::{name}")]
        matching = exact or [case for case in self.cases.values() if name in case.name]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise UsageError(f"no benchmark matches {name!r}; `pytest --benchmark --collect-only -q` lists them")
        names = some([case.name for case in matching], 3)
        raise UsageError(f"{name!r} matches {len(matching)} benchmarks: {names}; give a full name")


def collect(
    arguments: Sequence[str] = (), tolerant: bool = False, values: Mapping[str, Any] | None = None
) -> Collected:
    """Collect the benchmarks, as ``pytest --benchmark`` would.

    Raises `UsageError` if pytest fails; the message contains its last lines.

    Args:
        arguments: Files, folders and selections for pytest; empty for its configured ones.
        tolerant: Go on without files, and folders of a ``conftest.py``, that cannot be imported.
        values: Of options that conftest.py files define, by their names in Python.
    """
    catcher = _Catcher(values or {})
    printed = io.StringIO()
    with (
        # Plugins may need a cache, and the user's stays.
        tempfile.TemporaryDirectory(prefix="cache-", dir=scratch_dir()) as cache,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        options = ["--benchmark", "--collect-only", "-q", "-p", "tfbench.plugin", "-o", f"cache_dir={cache}"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this process has imported the plugin
        options += ["--continue-on-collection-errors"] if tolerant else []
        code = pytest.main([*options, *arguments], plugins=[catcher, *([FolderByFolder()] if tolerant else [])])
    fine = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    if tolerant and catcher.broken:
        fine.add(pytest.ExitCode.TESTS_FAILED)
    if catcher.collected is None or code not in fine:
        lines = printed.getvalue().strip().splitlines()
        wrong = [line for line in lines if line.startswith("ERROR: ")]  # a list of cases may come before it
        last = "\n".join(wrong if code == pytest.ExitCode.USAGE_ERROR and wrong else lines[-_TAIL:])
        raise UsageError(f"pytest could not collect the benchmarks:\n{last}")
    return catcher.collected


class _Catcher:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.collected: Collected | None = None
        self.broken: set[str] = set()
        self.seen: set[str] = set()
        self._values = values

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        vars(config.option).update(self._values)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        (self.broken if report.failed else self.seen).add(report.nodeid.partition("::")[0] or ".")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        runner: Runner | None = session.config.pluginmanager.get_plugin(RUNNER)
        assert runner is not None
        skipped = frozenset(item.nodeid for item in session.items if _skipped(item))
        functions = {item.nodeid: item for item in session.items if isinstance(item, pytest.Function)}
        self.collected = Collected(
            session.config.rootpath, runner.suite, dict(runner.cases), skipped, _deselected(runner), runner.policy,
            selection_of(session.config, given(session.config), runner.policy.name),
            gate_options(session.config.option), functions, frozenset(self.broken), frozenset(self.seen),
        )  # fmt: skip


def _deselected(runner: Runner) -> dict[str, Case]:
    """Return the other cases in the collected files, without wrongly declared ones."""
    cases = {}
    for name, item in runner.collected.items():
        if name not in runner.cases:
            with contextlib.suppress(DeclarationError):
                cases[name] = runner.case(item)
    return cases


def _skipped(item: pytest.Item) -> bool:
    """Tell whether pytest would skip an item by its marks. A mark that cannot be evaluated fails when it runs."""
    try:
        xfail = evaluate_xfail_marks(item)
        return evaluate_skip_marks(item) is not None or (xfail is not None and not xfail.run)
    except pytest.fail.Exception:
        return False


def _without_unknown_plugins(words: Sequence[str]) -> list[str]:
    """Return options without the plugins that this tree does not have, such as one that the change adds."""
    known = {point.name for point in entry_points(group="pytest11")}
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] == PLUGIN and not (word.startswith("no:") or word in known or place_of_module(word)):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _listed_with_tensorflow(collected: Collected) -> JSON:
    def content(case: Case) -> JSON:
        item = collected.functions[case.name]
        skip, plain = evaluate_skip_marks(item), not takes_bench(item)
        marks = sorted({mark.name for mark in item.iter_markers()} - _LEFT_OUT)
        return {"case": dataclasses.asdict(case), "plain": plain, "marks": marks, "skip": skip and skip.reason}

    return {name: content(case) for name, case in collected.cases.items()}


def _collect_elsewhere(text: str) -> int:
    """Write the cases of another source tree with digests of their code, on request of `sides.counterparts`."""
    order = json.loads(text)
    ELSEWHERE.update(order)
    tensorflow_stub.REAL = order.get("real", False)
    enter(order["root"])
    sys.path.append(order["root"])  # as in the workers, which would import what this process could not
    if order["tree_redirect"]:
        redirect_imports(*order["tree_redirect"])
    # Warnings of the other tree must not fail the listing, as they do not fail its race.
    arguments = ["--rootdir=.", "-W", "ignore", *_without_unknown_plugins(order["arguments"])]
    if "above" in order:  # otherwise a configuration file elsewhere lets -k match the folders that the tree lies in
        arguments += [f"--confcutdir={order['above']}"]
    if order["tree_redirect"]:
        named = os.path.exists(order["inifile"])
        top = Path(order["tree_redirect"][1])
        arguments += ["-c", order["inifile"] if named else ini_file(Path(order["root"]), top)]
    try:
        collected = collect(arguments, not tensorflow_stub.REAL, order.get("values"))
    except UsageError as error:
        say(str(error), error=True)
        return 1
    if tensorflow_stub.REAL:
        write_whole(Path(order["answer"]), render_json(_listed_with_tensorflow(collected)))
        return 0
    policy = collected.policy  # another one than the run's, if only the other tree's configuration names one
    usual = () if policy.name == order["policy"] else tuple((name, getattr(policy, name)) for name in THRESHOLDS)
    cases = {
        name: replace(case, thresholds=case.thresholds or usual, statistic=case.statistic or policy.statistic)
        for name, case in {**collected.deselected, **collected.cases}.items()
    }
    deselected, broken = frozenset(collected.deselected), tuple(sorted(collected.broken))
    listing = Listing(cases, collected.skipped, deselected, broken, collected.seen, tuple(collected.gate))
    write_whole(Path(order["answer"]), line(listing))
    return 0


if __name__ == "__main__":
    sys.exit(_collect_elsewhere(sys.argv[1]))
