"""The plugin's other half, loaded under ``--benchmark`` alone: items in, outcomes out."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import BaselineError, DeclarationError, TfbenchError, UsageError
from tfbench.fs import write_whole
from tfbench.gpus.selection import parse_device
from tfbench.model import TIME, Case, Outcome, Sample, Verdict
from tfbench.plugin.options import (
    available_cpus,
    case_of,
    is_benchmark,
    parse_cpus,
    parse_profiler_config,
    parse_slowdown,
    prefixes,
    wanted_by_device,
)
from tfbench.plugin.progress import Display
from tfbench.policy import preset
from tfbench.race.process_launcher import processors
from tfbench.race.zygote import Suite
from tfbench.report import json_writer, terminal
from tfbench.session.baseline import CHOICES
from tfbench.session.request import CaseResult, RunRequest
from tfbench.session.session import Session
from tfbench.storage.layout import PROFILES, Layout
from tfbench.suite.shards import parse_shard


class Runner:
    """Turns items into cases, asks the session, and turns its answers into outcomes of tests.

    Raises:
        UsageError: An option has a value that cannot be used.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.cases: dict[str, Case] = {}
        self._config = config
        self._notes: list[str] = []
        self._errors: list[str] = []
        self._session: Session | None = None
        self._suite: list[str] = []
        """Names of the cases of all shards."""
        self._collected: frozenset[str] = frozenset()
        option = config.getoption
        self._device, self._gpus = parse_device(option("device"))
        if option("replay") not in CHOICES:
            raise UsageError(f"--replay {option('replay')!r}: choose from {', '.join(CHOICES)}")
        if option("against") and option("baseline"):
            raise UsageError("--against and --baseline both name the other side: give one of them")
        self._slowdown = parse_slowdown(option("inject_slowdown"))
        if self._slowdown and not (option("against") or option("baseline")):
            raise UsageError("--inject-slowdown slows the contender of a comparison: give --against self beside it")
        if config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput"):
            raise UsageError("tfbench measures one thing at a time: run it without pytest-xdist's -n")
        _check_taken_for_a_test(config, "--report-json", option("report_json"))
        self._profile = PROFILES if option("profile") is True else str(option("profile") or "")
        _check_taken_for_a_test(config, "--profile", self._profile)
        self._profiler_config = parse_profiler_config(option("profile_levels"), option("profile_method"))
        self._shard = parse_shard(option("shard")) if option("shard") else None
        self._policy = preset(option("policy"))
        self._processors = processors(parse_cpus(option("cpus")) if option("cpus") else None, available_cpus())

    # Collection

    def seen(self, items: Sequence[pytest.Item]) -> None:
        """Every item there is, before any is deselected."""
        self._collected = frozenset(item.nodeid for item in items if is_benchmark(item))

    def selected(self, items: list[pytest.Item]) -> None:
        """Keep the benchmarks and get ready to run them.

        Raises:
            TfbenchError: A declaration is impossible or an option names what is not there.
        """
        kept: list[pytest.Item] = []
        for item in items:
            if is_benchmark(item):
                assert isinstance(item, pytest.Function)
                case = case_of(item)
                if case.name in self.cases:
                    raise DeclarationError(f"{case.name} is collected twice; give each benchmark a name of its own")
                if not wanted_by_device(case, self._device):
                    continue
                self._suite.append(case.name)
                if self._shard is None or self._shard.has(case):
                    # Its own fixtures are for the measuring process; here it is a sample to be filed.
                    item.fixturenames = ["benchmark"]
                    self.cases[case.name] = case
                    kept.append(item)
            elif "benchmark" in getattr(item, "fixturenames", ()) and self._has(item):
                kept.append(item)
        if gone := [item for item in items if item not in set(kept)]:
            self._config.hook.pytest_deselected(items=gone)
        items[:] = kept
        if not self._config.getoption("collectonly"):
            self._session = Session(self._request(), self._display())
            self._session.expect(list(self.cases.values()))

    def _has(self, item: pytest.Item) -> bool:
        """Whether a plain test of pytest-benchmark's belongs to this shard."""
        return self._shard is None or self._shard.has(Case(item.nodeid, "", item.nodeid.partition("[")[0]))

    def _display(self) -> Display:
        self._drawn = Display(self._config.pluginmanager.get_plugin("terminalreporter"))
        return self._drawn

    @property
    def suite(self) -> Suite:
        """The files of the cases that were selected, and how pytest imports them."""
        root, inifile = self._config.rootpath, self._config.inipath
        return Suite(
            files=tuple(dict.fromkeys(name.partition("::")[0] for name in self.cases)),
            inifile=inifile.relative_to(root).as_posix() if inifile and inifile.is_relative_to(root) else "",
            import_mode=self._config.getoption("importmode"),
            made=str(Layout.of(root).shared_set_ups),
            cpus=available_cpus(),
        )

    def _request(self) -> RunRequest:
        config, option = self._config, self._config.getoption
        root = config.rootpath
        whole = config.args_source is not pytest.Config.ArgsSource.ARGS
        return RunRequest(
            root=root,
            suite=self.suite,
            policy=self._policy,
            processors=self._processors,
            executable=sys.executable,
            folder=Layout.of(root).folder,
            collect_command=(sys.executable, "-m", "tfbench.plugin.collect"),
            against=option("against"),
            baseline=option("baseline"),
            replay=option("replay"),
            save=option("save_baseline"),
            slowdown=self._slowdown,
            device=self._device,
            gpus=self._gpus,
            require_gpu=option("require_gpu"),
            seed=random.SystemRandom().randrange(2**32),
            expected=None if whole else prefixes(config.args, str(root)),
            selection=self._selection,
            shard=self._shard,
            suite_cases=tuple(self._suite),
            paths=() if whole else tuple(os.path.relpath(os.path.abspath(one), root) for one in config.args),
            collected=self._collected,
            profile=self._profiles if self._profile else None,
            profile_regressed=self._profiles if option("profile_on_regression") else None,
            profiler_config=self._profiler_config,
        )

    @property
    def _profiles(self) -> Path:
        """Where profiles go: what is named is meant from where pytest was started."""
        given, config = self._profile, self._config
        return config.rootpath / PROFILES if given in ("", PROFILES) else config.invocation_params.dir / given

    @property
    def _selection(self) -> tuple[str, ...]:
        """What chose among the cases that were found, for pytest to choose by elsewhere."""
        option = self._config.getoption
        options = (("-k", [option("keyword")]), ("-m", [option("markexpr")]), ("--deselect", option("deselect") or []))
        device = ("--device", [self._device])
        return tuple(word for name, values in (*options, device) for value in values if value for word in (name, value))

    # Running

    def run(self, item: pytest.Function) -> None:
        """Run the item's case, or fetch what became of it, and end the test accordingly."""
        assert self._session is not None
        case = self.cases[item.nodeid]
        try:
            with self._session.avoid_worker_cpus():
                result = self._session.result(case)
        finally:
            self._drawn.clear()
        if result.sample is not None:
            _file(item, case, result)
        elif fixture := _fixture(item):
            fixture.skipped = True
            fixture._mode = "tfbench"
        if result.verdict is None:
            pytest.skip(result.skip)
        _end_test(result, self._strict)

    @property
    def _strict(self) -> bool:
        return bool(self._config.getoption("strict_gate"))

    # Ending

    def finish(self, session: pytest.Session, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Write what was asked for; returns the exit status of the run."""
        if self._session is None:
            return status
        failed = status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._strict and (missing := self._session.missing()):
            self._errors.append(f"{len(missing)} of the baseline's cases are missing: {missing[0].case.name} …")
            failed = True
        if name := self._config.getoption("save_baseline"):
            if failed:
                self._errors.append(f"the baseline {name!r} was not saved: the run did not pass")
            else:
                try:
                    self._notes.append(f"baseline saved: {self._session.save()}")
                except BaselineError as error:
                    self._errors.append(str(error))
        self._remember()
        if path := self._config.getoption("report_json"):
            try:
                write_whole(Path(path), json_writer.render(self._session.report()))
                self._notes.append(f"report written: {path}")
            except OSError as error:
                self._errors.append(f"--report-json {path}: {error.strerror or error}")
        if self._errors and status == pytest.ExitCode.OK:
            return pytest.ExitCode.TESTS_FAILED
        return status

    def _remember(self) -> None:
        assert self._session is not None
        try:
            Layout(self._session.request.folder).write_gitignore()
            candidate = self._session.remember()
        except (TfbenchError, OSError) as error:
            self._notes.append(f"what this run measured could not be kept: {error}")
            return
        changed = (Outcome.REGRESSED, Outcome.IMPROVED)
        if candidate is not None and any(verdict.outcome in changed for verdict in self._session.report().verdicts):
            command = f"tfbench baseline accept {candidate.stem} --reason '…'"
            self._notes.append(f"if the change is meant, make it the baseline: {command}")

    def summarise(self, reporter: Any) -> None:
        """Print the tables at the end of the run."""
        if self._session is None or not self.cases:
            return
        reporter.section("tfbench")
        report = self._session.report()
        reporter.write(terminal.render(report, width=reporter._tw.fullwidth, colour=reporter._tw.hasmarkup))
        if report.profiles:
            place = os.path.relpath(Path(report.profiles[0]["folder"]).parents[1], self._config.invocation_params.dir)
            reporter.line(f"profiles: {place}; tfbench explain CASE --profile {place} reads them")
        for note in (*self._session.notes, *self._notes):
            reporter.line(note)
        for error in self._errors:
            reporter.line(error, red=True)

    def close(self) -> None:
        """End every process."""
        if self._session is not None:
            self._session.close()
            self._drawn.close()


def _end_test(result: CaseResult, strict: bool) -> None:
    """End a test as its case's verdicts say: what is open about another metric than time stops only a strict gate."""
    assert result.verdict is not None
    output = f"\n--- last output ---\n{result.output}" if result.output else ""
    if failures := result.failures:
        pytest.fail("\n".join([*map(_describe, failures), *result.why]) + output, pytrace=False)
    if result.verdict.outcome in _OPEN:
        (pytest.fail if strict else pytest.skip)(_describe(result.verdict) + output)
    if rows := [row for row in result.metrics if row.outcome in (_OPEN if strict else (Outcome.MISSING,))]:
        (pytest.fail if strict else pytest.skip)("\n".join(map(_describe, rows)))


_OPEN = (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.MISSING)


def _describe(verdict: Verdict) -> str:
    metric = "" if verdict.metric == TIME else f"{verdict.metric} "
    return f"{metric}{verdict.outcome}: {verdict.reason.message}"


def _check_taken_for_a_test(config: pytest.Config, option: str, path: str) -> None:
    """pytest takes an existing file behind an option of a plugin for a test, and its folder for the root."""
    given = config.invocation_params
    if (
        path
        and path in given.args
        and Path(path).exists()
        and not Path(path).resolve().is_relative_to(given.dir.resolve())
    ):
        raise UsageError(
            f"{option} {path}: pytest takes what exists outside of this folder for something to test; "
            f"write {option}={path}, with an equals sign"
        )


def _fixture(item: pytest.Function) -> Any:
    """pytest-benchmark's fixture of this item, ``None`` without."""
    return item.funcargs.get("benchmark")


def _file(item: pytest.Function, case: Case, result: CaseResult) -> None:
    """Hand the sample to pytest-benchmark, whose table, storage and options then work on it.

    Uses private parts of pytest-benchmark 5.3, which is why requirements.txt bounds it.
    """
    sample: Sample | None = result.sample
    fixture = _fixture(item)
    if fixture is None or fixture.disabled or sample is None or not sample.runs:
        return
    fixture._mode = "tfbench"
    fixture.group = fixture.group or case.group.rpartition("::")[2]
    fixture.params = {**(fixture.params or {}), **case.levels}
    fixture.params.pop("variant", None)
    verdict = result.verdict.as_json() if result.verdict else None
    fixture.extra_info["tfbench"] = {"verdict": verdict, "facts": sample.runs[0].facts}
    iterations = sample.runs[0].iterations
    stats = fixture._make_stats(iterations)
    for seconds in sample.seconds:
        stats.update(seconds * iterations)
